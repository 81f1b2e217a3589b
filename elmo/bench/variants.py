"""All variants of embedding that this machine can run, by name: from token lists to all layers.

    allennlp       AllenNLP itself, where it can be imported; "sorted": fed sentences sorted by length
    loop           the same computation in plain PyTorch (`baseline`); "sorted" likewise
    plain          this package with ELMO_KERNELS=off
    torch          this package with the PyTorch kernels, for each dtype
    native         this package with the compiled kernels, for each dtype
    cuda           this package on a GPU, for each dtype

All variants of this package are an ordinary Embedder whose word cache is empty at the start of every call.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from elmo.bench.baseline import BATCH_SIZE, Embed, Sentences, baseline_loop, sorted_by_length
from elmo.bench.peers import allennlp_embed
from elmo.embed.embedder import Embedder
from elmo.embed.load import load
from elmo.errors import ConfigError
from elmo.kernels.api import kernels_set_to
from elmo.kernels.cpu.abi import has_dtype
from elmo.kernels.cpu.levels import CannotBuild
from elmo.model.bilm import BiLM
from elmo.model.config import PRESETS, BiLMConfig
from elmo.text.indexer import ByteIndexer, Indexer

log = logging.getLogger(__name__)

DTYPES = ("float32", "bfloat16", "int8")
BASELINES = ("loop", "loop sorted", "allennlp", "allennlp sorted")  # the other variants are compared with these


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model to measure with."""

    name: str
    model: BiLM
    indexer: Indexer


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to embed, with the device and dtype of its matrix products."""

    name: str
    dtype: str  # float32, bfloat16, int8
    device: str  # cpu, cuda
    embed: Embed


def random_subject(size: str) -> Subject:
    """A preset with random weights; speed does not depend on the weights."""
    if size not in PRESETS:
        raise ConfigError(
            f"size is {size!r}; expected one of {', '.join(PRESETS)}.", "Measure a model of your own with --model."
        )
    torch.manual_seed(0)
    return Subject(name=size, model=BiLM(PRESETS[size]).eval().requires_grad_(False), indexer=ByteIndexer())


def loaded_subject(model: str) -> Subject:
    """A model by name or path."""
    embedder = load(model, device="cpu")
    return Subject(name=model, model=embedder.model, indexer=embedder.indexer)


def make_variants(subject: Subject, dtypes: Sequence[str]) -> dict[str, Variant]:
    """All variants that this machine can run, by name.

    Weights are packed at first use, so that a variant uses no memory before it is measured.
    """
    variants = {}
    for name, embed in _baselines(subject).items():
        variants[name] = Variant(name=name, dtype="float32", device="cpu", embed=embed)
    variants["plain"] = Variant(
        name="plain", dtype="float32", device="cpu", embed=lazy_embed(subject, "off", "float32")
    )
    for dtype in dtypes:
        if dtype != "int8":
            name = f"torch {dtype}"
            variants[name] = Variant(name=name, dtype=dtype, device="cpu", embed=lazy_embed(subject, "torch", dtype))
        if _has_native(dtype):
            name = f"native {dtype}"
            variants[name] = Variant(name=name, dtype=dtype, device="cpu", embed=lazy_embed(subject, "", dtype))
    if torch.cuda.is_available():
        for dtype in (dtype for dtype in dtypes if dtype != "int8"):
            name = f"cuda {dtype}"
            variants[name] = Variant(
                name=name, dtype=dtype, device="cuda", embed=lazy_embed(subject, "", dtype, "cuda")
            )
    return variants


def lazy_embed(subject: Subject, kernels: str, dtype: str, device: str = "cpu") -> Embed:
    """A function that embeds with this package; it makes its embedder at the first call."""
    embedders: list[Embedder] = []  # the embedder, once it has been needed

    def run(sentences: Sentences) -> list[np.ndarray]:
        if not embedders:
            embedders.append(make_embedder(subject, kernels, dtype, device))
        embedders[0].forget_words()
        vectors: list[np.ndarray] = embedders[0].layers(sentences, batch_size=BATCH_SIZE)
        return vectors

    return run


def make_embedder(subject: Subject, kernels: str, dtype: str, device: str = "cpu") -> Embedder:
    """An embedder whose kernels are chosen with ELMO_KERNELS set to `kernels`."""
    model = subject.model if device == "cpu" else copy.deepcopy(subject.model)  # an embedder moves its model
    with kernels_set_to(kernels):
        return Embedder(model, subject.indexer, dtype=dtype, device=device)


def _baselines(subject: Subject) -> dict[str, Embed]:
    if not _has_published_architecture(subject.model.config) or not isinstance(subject.indexer, ByteIndexer):
        return {}

    def loop(sentences: Sentences) -> list[np.ndarray]:
        return baseline_loop(subject.model, subject.indexer, sentences)

    baselines: dict[str, Embed] = {"loop": loop, "loop sorted": sorted_by_length(loop)}
    if (allennlp := allennlp_embed(subject.model)) is not None:
        baselines |= {"allennlp": allennlp, "allennlp sorted": sorted_by_length(allennlp)}
    return baselines


def _has_published_architecture(config: BiLMConfig) -> bool:
    """Whether the network has the architecture of the published models, the only one the baselines implement."""
    lstm = config.lstm
    clips = lstm.cell_clip is not None and lstm.proj_clip is not None
    return config.words is None and config.bidirectional and lstm.projects and lstm.skip and clips


def _has_native(dtype: str) -> bool:
    try:
        return has_dtype(dtype)
    except CannotBuild as error:
        log.warning("Compiled kernels are not available: %s", error)
        return False
