"""Loading: from a model's name, folder or file to an Embedder that is ready to use."""

from __future__ import annotations

import os
from pathlib import Path

from elmo.devices import choose_device
from elmo.embed.embedder import Embedder
from elmo.errors import WeightsError
from elmo.text.chars import NUM_CHARS
from elmo.text.indexer import ByteIndexer, Indexer, LexiconIndexer, WordIndexer
from elmo.text.tokenizer_function import TokenizerFunction, choose_tokenizer, make_tokenizer
from elmo.text.vocab import Vocabulary
from elmo.weights.catalogue import PUBLISHED_MODELS
from elmo.weights.convert import drop_head
from elmo.weights.fetch import fetch_model
from elmo.weights.formats import read_model
from elmo.weights.hub import is_hub_name
from elmo.weights.lookup import find_model
from elmo.weights.model_names import resolve_alias
from elmo.weights.model_parts import ModelParts, build, check_lexicon, copy_tensors


def load(
    model: str | Path = "default",
    weights: str | Path | None = None,
    *,
    device: str = "auto",  # auto, cpu, cuda, cuda:1, mps
    dtype: str = "float32",
    tokenizer: str | TokenizerFunction | None = None,  # None: the model's own, or else default
    state: str = "reset",
    cache_words: int = 100_000,
    allow_nonfinite: bool = False,
    download: bool = False,  # fetch a published model that is not on this machine
) -> Embedder:
    """An embedder for a model given by name (`elmo models` lists them), by path, or by options and weights file.

    Without `download`, nothing is downloaded: if a known model is not on this machine, the error says how to get it.
    With it, a published model is fetched once, as by `elmo fetch`; so is a model of the Hugging Face Hub, whose name is
    hf://USER/NAME or hf://USER/NAME@REVISION. The device `auto` is CUDA, MPS or the CPU, the first one that is
    available; the choice is logged. A tokenizer is a name (default, unicode, whitespace, spacy:LANG, moses:LANG) or a
    function from a text to its tokens, such as spaCy's `nlp`.
    """
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(f"model is a {type(model).__name__}; expected the name or the path of a model.")
    if isinstance(tokenizer, str):
        make_tokenizer(tokenizer)  # an unknown name is an error before the model is read and compared with it
    is_path = weights is not None or isinstance(model, Path) or os.path.exists(model)  # a path precedes a name
    if download and not is_path and (is_hub_name(model) or resolve_alias(str(model)) in PUBLISHED_MODELS):
        fetch_model(str(model))
    parts = model_parts(model, weights, lazy_head=True)  # vectors need no softmax
    return make_embedder(
        parts,
        name=str(model),
        device=device,
        dtype=dtype,
        tokenizer=choose_tokenizer(parts.tokenizer, tokenizer) or "default",
        state=state,
        cache_words=cache_words,
        allow_nonfinite=allow_nonfinite,
    )


def make_embedder(
    parts: ModelParts,
    *,
    name: str,
    device: str = "auto",
    dtype: str = "float32",
    tokenizer: str | TokenizerFunction = "default",
    state: str = "reset",
    cache_words: int = 100_000,
    allow_nonfinite: bool = False,
) -> Embedder:
    """An embedder for a model that is read already."""
    return Embedder(
        build(parts, allow_nonfinite=allow_nonfinite),
        make_indexer(parts),
        tokenizer=tokenizer,
        state=state,
        device=choose_device(device),
        dtype=dtype,
        cache_words=cache_words,
        vocab=_vocabulary(parts),
        name=name,
        trained=parts.about.get("trained", True),
    )


def model_parts(model: str | Path, weights: str | Path | None = None, *, lazy_head: bool = False) -> ModelParts:
    """The parts of a model given in any way `load` takes; with `lazy_head`, its softmax when it is called for."""
    return read_model(model, weights) if weights is not None else find_model(model, lazy_head=lazy_head)


def module_parts(model: str | Path | ModelParts) -> ModelParts:
    """A model without its softmax, for a torch module; the tensors of parts that are read already are copied.

    So training the module does not change the caller's tensors.
    """
    if isinstance(model, ModelParts):
        return copy_tensors(drop_head(model))
    return drop_head(model_parts(model, lazy_head=True))


def make_indexer(parts: ModelParts) -> Indexer:
    """The indexer that turns tokens into the rows of ids of this model.

    A model whose characters or words nothing numbers, or a lexicon with other numbers than the model's, is an error.
    """
    chars, words = parts.config.chars, parts.config.words
    if parts.lexicon is not None:
        check_lexicon(parts.lexicon, parts.config, parts.source)
        max_chars = chars.max_chars if chars else parts.lexicon.max_chars
        return LexiconIndexer(parts.lexicon.chars, parts.lexicon.words, max_chars)
    if chars is not None:
        if words is not None or chars.num_chars < NUM_CHARS:
            table = "characters and words" if words else f"{chars.num_chars} characters"
            raise WeightsError(
                f"{parts.source}: the model reads {table}, and its folder has no lexicon that numbers them.",
                f"Without a lexicon, a model reads bytes ({NUM_CHARS} characters) or words. Is lexicon.json missing?",
            )
        return ByteIndexer(chars.max_chars)
    if parts.vocab is None:
        raise WeightsError(
            f"{parts.source}: the model reads words, and its folder has no vocabulary.",
            "Put the vocabulary it was trained with into the same folder as vocab.txt.",
        )
    return WordIndexer(Vocabulary(parts.vocab, source=parts.source))


def _vocabulary(parts: ModelParts) -> Vocabulary | None:
    """The vocabulary of the softmax or the word table; a character model without a softmax does not need one."""
    needed = parts.config.head is not None or parts.config.words is not None
    if not needed or parts.vocab is None:
        return None
    return Vocabulary(parts.vocab, source=parts.source, counts=parts.word_counts)
