"""ElmoTokenEmbeddings: ELMo as token embeddings of flair, for its SequenceTagger and other models.

    from elmo.integrations.flair import ElmoTokenEmbeddings

    tagger = SequenceTagger(embeddings=ElmoTokenEmbeddings("english"), ...)

A saved model of flair contains the weights, so that the biLM's own files are not needed to load it. Import this module
before `SequenceTagger.load`, because flair looks the class up by its name.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmo.errors import ConfigError
from elmo.files import require_extra
from elmo.integrations.torch import ElmoEmbedding
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig
from elmo.weights.convert import drop_head
from elmo.weights.lookup import find_model
from elmo.weights.model_parts import Lexicon, ModelParts

flair = require_extra("flair", "flair")
base = require_extra("flair.embeddings.base", "flair")
TokenEmbeddings: Any = base.TokenEmbeddings

LAYERS = ("mix", "all", "top", "average")


@base.register_embeddings
class ElmoTokenEmbeddings(TokenEmbeddings):
    """One vector per token of flair's sentences, from a frozen biLM unless `requires_grad` is set.

    With layers "mix", the weights of the layers are trained with the model, as in the paper. "all" joins the layers
    (width (L+1) * D), as flair's own ELMoEmbeddings did by default; "top", "average" and a number are the others. These
    are computed once per sentence if flair stores embeddings (`embeddings_storage_mode`).
    """

    def __init__(
        self,
        model: str | Path | ModelParts = "default",  # whatever `elmo.load` takes, or a model that is read already
        *,
        layers: str | int = "mix",  # mix, all, top, average, or the number of a layer
        requires_grad: bool = False,  # True: the biLM is trained too
        layer_norm: str = "none",  # of the mix: none, batch, token
        dropout: float = 0.0,  # of the mix
    ) -> None:
        parts = drop_head(model if isinstance(model, ModelParts) else find_model(model, lazy_head=True))
        num_layers = parts.config.num_layers
        is_number = isinstance(layers, int) and not isinstance(layers, bool) and 0 <= layers < num_layers
        if layers not in LAYERS and not is_number:
            raise ConfigError(
                f"layers is {layers!r}; expected {', '.join(LAYERS)}, or a number from 0 to {num_layers - 1}."
            )
        if layers != "mix" and (layer_norm != "none" or dropout):
            raise ConfigError(f"layer_norm and dropout belong to the mix; layers is {layers!r}.", "Leave them out.")
        self.name = f"elmo-{parts.source if isinstance(model, ModelParts) else model}-{layers}"
        self.static_embeddings = layers != "mix" and not requires_grad
        super().__init__()
        self.layers = layers
        self._options = {"requires_grad": requires_grad, "layer_norm": layer_norm, "dropout": dropout}
        self._architecture = _architecture(parts)
        self.elmo = ElmoEmbedding(parts, requires_grad=requires_grad, layer_norm=layer_norm, dropout=dropout)
        self.to(flair.device)
        self.eval()

    @property
    def embedding_length(self) -> int:
        """The width of a token's vector."""
        return self.elmo.dim * (self.elmo.num_layers if self.layers == "all" else 1)

    def to_params(self) -> dict[str, Any]:
        """What flair saves beside the weights: the shape of the biLM, its symbols, and the options."""
        return {"name": self.name, "layers": self.layers, **self._options, "architecture": self._architecture}

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> ElmoTokenEmbeddings:
        """The embeddings that `to_params` describes, with zeros as weights: flair loads the saved ones afterwards."""
        options = {key: params[key] for key in ("layers", "requires_grad", "layer_norm", "dropout")}
        embeddings = cls(_empty_parts(params["architecture"]), **options)
        embeddings.name = params["name"]
        return embeddings

    def extra_repr(self) -> str:
        return f"{self.name!r}, embedding_length={self.embedding_length}"

    def _everything_embedded(self, data_points: Any) -> bool:
        # vectors that flair stored under a mix or a biLM that is being trained are those of earlier weights
        return self.static_embeddings and bool(super()._everything_embedded(data_points))

    def _add_embeddings_internal(self, sentences: list[Any]) -> None:
        tokens = [[token.text for token in sentence.tokens] for sentence in sentences]
        vectors = self._vectors(tokens)  # (B, T, D)
        for sentence, row in zip(sentences, vectors, strict=True):
            for token, vector in zip(sentence.tokens, row, strict=False):  # the row is padded
                token.set_embedding(self.name, vector)

    def _vectors(self, tokens: list[list[str]]) -> Tensor:
        if self.layers == "mix":
            mixed: Tensor = self.elmo(tokens)[0]
            return mixed
        layers: Tensor = self.elmo.layers(tokens)[0]  # (L+1, B, T, D)
        if self.layers == "all":
            return layers.permute(1, 2, 0, 3).flatten(2)  # (B, T, (L+1) * D)
        if self.layers == "average":
            return layers.mean(dim=0)
        return layers[-1 if self.layers == "top" else int(self.layers)]


def _architecture(parts: ModelParts) -> dict[str, Any]:
    """The model without its weights, as plain values."""
    return {
        "config": parts.config.to_dict(),
        "vocab": None if parts.vocab is None else list(parts.vocab),
        "lexicon": None if parts.lexicon is None else dataclasses.asdict(parts.lexicon),
    }


def _empty_parts(architecture: dict[str, Any]) -> ModelParts:
    config = BiLMConfig.from_dict(architecture["config"])
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in BiLM(config).state_dict().items()}
    vocab, lexicon = architecture["vocab"], architecture["lexicon"]
    return ModelParts(
        config=config,
        tensors={name: torch.zeros(shape) for name, shape in shapes.items()},
        vocab=None if vocab is None else tuple(vocab),
        lexicon=None if lexicon is None else Lexicon(**lexicon),
        source="a saved flair model",
    )
