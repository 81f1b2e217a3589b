"""`elmo.Tok2Vec.v1`: the token-to-vector layer of spaCy's trainable components (ner, tagger, parser, textcat ...).

The biLM is frozen; the mix of its layers (paper equation 1) and a linear layer are trained with the component. The
parameters are thinc's, so that spaCy's optimizer, averages and serialisation apply to them. A saved pipeline refers to
the model by name or path; its checksum is saved too and compared when the pipeline is used again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from elmo.errors import WeightsError
from elmo.files import require_extra
from elmo.integrations.spacy.documents import layers_of_docs, load_model
from elmo.integrations.spacy.layer_cache import LayerCache
from elmo.settings import check_count

thinc = require_extra("thinc.api", "spacy", "spaCy")


def make_tok2vec(
    model: str = "default",
    width: int = 96,
    embed: Any = None,
    cache_path: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    state: str = "reset",
) -> Any:
    """A thinc layer from documents to one array (tokens, width) each: mix, dropout, linear layer, layer norm.

    The vectors of `embed`, another layer over documents such as spacy.MultiHashEmbed.v2, are joined to those of the mix
    before the linear layer. `cache_path` is a file (`elmo.integrations.spacy.layer_cache`) in which training stores the
    layers of its sentences, for the next epochs and runs; a pipeline that only predicts does not use it.
    """
    width = check_count("width", width)
    mix = _mix_model(LayerSource(model, cache_path, device=device, dtype=dtype, state=state))
    vectors = mix if embed is None else thinc.concatenate(mix, embed)
    project = thinc.chain(thinc.Dropout(), thinc.Linear(nO=width), thinc.LayerNorm(nI=width))
    tok2vec = thinc.chain(vectors, thinc.with_array(project))
    tok2vec.set_dim("nO", width)
    tok2vec.set_ref("elmo_mix", mix)
    return tok2vec


class LayerSource:
    """The frozen part: documents to layers. It is no state of the thinc model, so that copies of it share the biLM."""

    def __init__(self, model: str, cache_path: str | None, device: str, dtype: str, state: str) -> None:
        from elmo.embed.model_checksum import model_checksum

        self._arguments = model, cache_path, device, dtype, state
        self._embedder = load_model(model, device=device, dtype=dtype, state=state)
        self._cache: LayerCache | None = None  # opened by the first update
        self.name, self.num_layers, self.dim = model, self._embedder.num_layers, self._embedder.dim
        self.sha256 = model_checksum(self._embedder)

    def __reduce__(self) -> tuple[type, tuple[str | None, ...]]:
        return type(self), self._arguments  # another process loads the model again

    def layers(self, docs: list[Any], *, is_train: bool) -> np.ndarray:
        """(L+1, N, D) for the N tokens of all documents."""
        cache_path = self._arguments[1]
        if is_train and self._cache is None and cache_path is not None:
            self._cache = LayerCache(cache_path, self._embedder)
        embed = self._embedder.layers if self._cache is None else self._cache.layers
        return np.concatenate(layers_of_docs(docs, embed, self.num_layers, self.dim), axis=1)


def _mix_model(source: LayerSource) -> Any:
    return thinc.Model(
        "elmo_mix",
        functools.partial(_forward, source),
        init=functools.partial(_initialize, source),
        dims={"nO": source.dim},
        params={"weights": None, "gamma": None},
        attrs={"model_sha256": source.sha256},
    )


def _initialize(source: LayerSource, model: Any, X: Any = None, Y: Any = None) -> None:
    model.set_param("weights", model.ops.alloc1f(source.num_layers))
    model.set_param("gamma", model.ops.alloc1f(1) + 1)


def _forward(source: LayerSource, model: Any, docs: list[Any], is_train: bool) -> tuple[list[Any], Callable[..., Any]]:
    """One array (n, D) per document, gamma * sum of s_j * layer_j with s = softmax(weights)."""
    if model.attrs["model_sha256"] != source.sha256:
        raise WeightsError(
            f"The pipeline was trained with another model than the {source.name!r} of this machine.",
            "Load the pipeline with that model: spacy.load(PIPELINE, config={'components.NAME.model.tok2vec.model': "
            "PATH}), or train it again.",
        )
    if not docs:
        return [], lambda d_outputs: []
    ops = model.ops
    lengths = [len(doc) for doc in docs]
    layers = ops.asarray(source.layers(docs, is_train=is_train))  # (L+1, N, D)
    scaled = ops.xp.exp(model.get_param("weights") - model.get_param("weights").max())
    shares, gamma = scaled / scaled.sum(), model.get_param("gamma")
    mixed = ops.xp.tensordot(shares, layers, axes=1)  # (N, D)

    def backprop(d_outputs: list[Any]) -> list[Any]:
        d_mixed = ops.xp.concatenate(d_outputs)  # (N, D)
        d_shares = gamma * ops.xp.tensordot(layers, d_mixed, axes=2)  # (L+1,)
        model.inc_grad("weights", shares * (d_shares - (shares * d_shares).sum()))
        model.inc_grad("gamma", (mixed * d_mixed).sum().reshape(1))
        return []  # no gradient flows into documents

    return ops.unflatten(gamma * mixed, lengths), backprop


architectures = require_extra("spacy", "spacy", "spaCy").registry.architectures
architectures.register("elmo.Tok2Vec.v1", func=make_tok2vec)
