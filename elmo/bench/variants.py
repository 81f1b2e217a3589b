"""Every way from token lists to all layers that this machine has, by name.

    allennlp       AllenNLP itself, where it can be imported; "sorted": fed sentences of like length
    loop           what it does, in our words (`obvious`); "sorted" likewise
    plain          this package with ELMO_KERNELS=off
    torch          its twin in PyTorch alone, for each dtype
    native         its compiled twin, for each dtype
    cuda           the same embedder on a GPU

All of this package's paths are an Embedder as people hold it, its word memory empty at the start of every call.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from elmo.bench.baseline import BATCH, Embed, Sentences, baseline_loop, by_length
from elmo.bench.peers import allennlp_embed
from elmo.embed.embedder import Embedder
from elmo.embed.load import load
from elmo.errors import ConfigError
from elmo.kernels.api import kernels_set_to
from elmo.kernels.cpu.abi import has_dtype
from elmo.kernels.cpu.build import CannotBuild
from elmo.model.bilm import BiLM
from elmo.model.config import PRESETS, BiLMConfig
from elmo.text.indexer import ByteIndexer, Indexer

log = logging.getLogger(__name__)

DTYPES = ("float32", "bfloat16", "int8")
BASELINES = ("loop", "loop sorted", "allennlp", "allennlp sorted")  # what the others are held against


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model to measure with."""

    name: str
    model: BiLM
    indexer: Indexer


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to embed, and where and in what it multiplies."""

    name: str
    dtype: str  # float32, bfloat16, int8
    device: str  # cpu, cuda
    embed: Embed


def random_subject(size: str) -> Subject:
    """A preset with random weights: speed does not depend on them."""
    if size not in PRESETS:
        raise ConfigError(f"size is {size!r}; expected one of {', '.join(PRESETS)}.", "A model of yours: --model.")
    torch.manual_seed(0)
    return Subject(name=size, model=BiLM(PRESETS[size]).eval().requires_grad_(False), indexer=ByteIndexer())


def loaded_subject(model: str) -> Subject:
    """A model by name or path."""
    embedder = load(model, device="cpu")
    return Subject(name=model, model=embedder.model, indexer=embedder.indexer)


def variants_of(subject: Subject, dtypes: Sequence[str]) -> dict[str, Variant]:
    """Every path this machine has, by name; weights are packed at first use, so that a path's memory is its own."""
    paths = {}
    for name, embed in _baselines(subject).items():
        paths[name] = Variant(name=name, dtype="float32", device="cpu", embed=embed)
    paths["plain"] = Variant(name="plain", dtype="float32", device="cpu", embed=through(subject, "off", "float32"))
    for dtype in dtypes:
        if dtype != "int8":
            name = f"torch {dtype}"
            paths[name] = Variant(name=name, dtype=dtype, device="cpu", embed=through(subject, "torch", dtype))
        if _has_native(dtype):
            name = f"native {dtype}"
            paths[name] = Variant(name=name, dtype=dtype, device="cpu", embed=through(subject, "", dtype))
    if torch.cuda.is_available():
        for dtype in (dtype for dtype in dtypes if dtype != "int8"):
            name = f"cuda {dtype}"
            paths[name] = Variant(name=name, dtype=dtype, device="cuda", embed=through(subject, "", dtype, "cuda"))
    return paths


def through(subject: Subject, kernels: str, dtype: str, device: str = "cpu") -> Embed:
    """The package itself, with ELMO_KERNELS as given."""
    made: list[Embedder] = []

    def run(sentences: Sentences) -> list[np.ndarray]:
        if not made:
            made.append(make_embedder(subject, kernels, dtype, device))
        made[0].forget_words()
        found: list[np.ndarray] = made[0].layers(sentences, batch_size=BATCH)
        return found

    return run


def make_embedder(subject: Subject, kernels: str, dtype: str, device: str = "cpu") -> Embedder:
    """An embedder whose twin was looked for with ELMO_KERNELS as given."""
    model = subject.model if device == "cpu" else copy.deepcopy(subject.model)  # an embedder moves its model
    with kernels_set_to(kernels):
        return Embedder(model, subject.indexer, dtype=dtype, device=device)


def _baselines(subject: Subject) -> dict[str, Embed]:
    if not _as_published(subject.model.config) or not isinstance(subject.indexer, ByteIndexer):
        return {}

    def loop(sentences: Sentences) -> list[np.ndarray]:
        return baseline_loop(subject.model, subject.indexer, sentences)

    found: dict[str, Embed] = {"loop": loop, "loop sorted": by_length(loop)}
    if (allennlp := allennlp_embed(subject.model)) is not None:
        found |= {"allennlp": allennlp, "allennlp sorted": by_length(allennlp)}
    return found


def _as_published(config: BiLMConfig) -> bool:
    """Whether the network is of the one kind the released models are."""
    lstm = config.lstm
    clips = lstm.cell_clip is not None and lstm.proj_clip is not None
    return config.words is None and config.bidirectional and lstm.projects and lstm.skip and clips


def _has_native(dtype: str) -> bool:
    try:
        return has_dtype(dtype)
    except CannotBuild as error:
        log.warning("no compiled kernels: %s", error)
        return False
