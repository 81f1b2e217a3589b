"""The protocol of executors, which run the network for an Embedder, and the choice of one for a device and a dtype.

PlainExecutor  plain PyTorch, any device and dtype
CpuExecutor    CPU kernels, float32, bfloat16 and int8
CudaExecutor   CUDA kernels, float32, bfloat16 and float16; uses a PlainExecutor for what they do not do
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from elmo.embed.layer_choice import LayerChoice
from elmo.embed.run.batches import BatchOptions
from elmo.embed.run.cpu import CpuExecutor
from elmo.embed.run.cuda import CudaExecutor
from elmo.embed.run.fork import prepare_for_fork
from elmo.embed.run.plain import PlainExecutor
from elmo.embed.states import CarriedState
from elmo.embed.word_cache import WordCache
from elmo.errors import ConfigError
from elmo.kernels.api import find_kernel, why_unsupported
from elmo.model.bilm import BiLM
from elmo.text.indexer import Indexer

log = logging.getLogger(__name__)

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.float32,  # products in 8 bits, results in float32
}
_LARGE_STEP, _LARGEST_STEP = 1 / 32, 1 / 4  # of int8, as shares of the largest possible output of a cell


class Executor(Protocol):
    """Runs a frozen biLM over tokenised sentences. It may be pickled, and threads may share it."""

    @property
    def model(self) -> BiLM:
        """The model, on its device."""

    @property
    def words(self) -> WordCache[Any]:
        """The cache of word vectors."""

    @property
    def carried(self) -> CarriedState:
        """The LSTM state that state "carry" stores between calls."""

    def vectors(
        self, sentences: Iterable[Sequence[str]], layer_choice: LayerChoice, options: BatchOptions, *, on_host: bool
    ) -> Iterator[Tensor]:
        """The chosen layers (K, n, D) of each sentence, in order, each in memory of its own.

        The sentences may be a stream of any length: memory is constant. `on_host` moves the result to the CPU.
        """

    def pooled(
        self, sentences: Iterable[Sequence[str]], layer_choice: LayerChoice, options: BatchOptions, pooling: str
    ) -> Iterator[tuple[np.ndarray, int]]:
        """For some sentences at a time, in order: one vector per sentence, and the number of tokens they have together.

        The vectors are (S, D), or (S, K, D) for a stacked layer choice.
        """

    def padded_batches(
        self, sentences: Sequence[Sequence[str]], layer_choice: LayerChoice, options: BatchOptions
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Batch by batch: the numbers (B,) of its sentences and their chosen layers (K, B, T, D), padded with zeros.

        The sentence boundaries are included. Sentences without tokens are in no batch.
        """

    def clear_words(self) -> None:
        """Discards the cached word vectors."""


def choose_executor(model: BiLM, indexer: Indexer, *, device: str, dtype: str, cache_words: int) -> Executor:
    """The fastest executor for a model on this machine. Freezes the model and moves it to the device.

    The CPU kernels round the weights themselves, so the model stays in float32 for them.
    """
    prepare_for_fork()
    make_gpu = find_kernel("bilm_bulk", device, dtype, model)
    make_cpu = None if make_gpu is not None else find_kernel("bilm", device, dtype, model)
    if dtype == "int8" and make_cpu is None:
        reason = why_unsupported("bilm", device, dtype, model)
        if reason is not None:
            raise ConfigError(f"dtype is 'int8', which this model cannot use: {reason}.", "Use float32 or bfloat16.")
        hint = "Use float32 or bfloat16; `elmo doctor` says what this machine has."
        raise ConfigError("dtype is 'int8', which needs AVX-512 with VNNI and compiled kernels.", hint)
    if dtype == "int8":
        _check_int8(model)
    model = model.to(device=device, dtype=DTYPES[dtype] if make_cpu is None else torch.float32)
    model = model.eval().requires_grad_(False)
    if make_cpu is not None:
        return CpuExecutor(model, indexer, make_cpu, cache_words)
    plain = PlainExecutor(model, indexer, cache_words)
    return plain if make_gpu is None else CudaExecutor(plain, indexer, make_gpu, cache_words)


def _check_int8(model: BiLM) -> None:
    """Warns of, or refuses, 8-bit products of a model whose cell clip leaves few of the 255 values to a cell's output.

    Before the projection, a cell's output is stored in steps of 1/127, and its limit is tanh(cell_clip). The cosine
    with float32 is measured in docs/weights.md: with a step of a quarter of the limit, the vectors mean nothing.
    """
    lstm = model.config.lstm
    if lstm.cell_clip is None or not lstm.projects:
        return
    share = 1 / (127 * math.tanh(lstm.cell_clip))
    if share > _LARGEST_STEP:
        raise ConfigError(
            f"dtype is 'int8', and the model's cell_clip is {lstm.cell_clip:g}: outputs of its cells are so small that "
            "8 bits round most of them to zero.",
            "Use float32 or bfloat16.",
        )
    if share > _LARGE_STEP:
        log.warning(
            "dtype int8 is coarse for this model: with cell_clip %g, one step is %.0f%% of the largest cell output. "
            "Compare with float32 before you use it.",
            lstm.cell_clip,
            100 * share,
        )
