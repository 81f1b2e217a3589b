"""Embedding through a CPU twin of the whole biLM (`elmo.kernels`), where this machine has one.

Stands where `sweep` and the token encoder stand otherwise, with the same inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.embed.layer_choice import LayerChoice
from elmo.kernels import api as kernels
from elmo.kernels.cpu.request import Contextual, States, make_work
from elmo.model.bilm import BiLM
from elmo.model.lstm import State


class FastPath:
    """Sentences of table rows to chosen layers; weights are packed when first needed."""

    def __init__(self, model: BiLM, maker: Any) -> None:
        self._model, self._maker = model, maker
        self._twin: Any = None

    def encode(self, rows: np.ndarray) -> np.ndarray:
        """Rows of ids (N, W) to token vectors (N, P)."""
        vectors: np.ndarray = self._packed().encode_rows(rows)
        return vectors

    def contextualize(
        self,
        table: Tensor,
        sentences: Sequence[Sequence[int]],
        choice: LayerChoice,
        initial: States,
        *,
        boundaries: bool = True,
        pad_to: int | None = None,
        want_state: bool = False,
    ) -> tuple[Tensor, States | None]:
        """Chosen layers (K, N, D) of all tokens, one sentence after the other, and the state after each.

        Sentences are rows of the table (words, P); without `boundaries`, the first and last of each are read but not
        handed out. With `pad_to`, each sentence takes so many rows, zero after its end. `initial` has a row
        for each sentence, or one for all.
        """
        work = make_work(
            table.numpy(),
            sentences,
            choice.matrix.numpy(),
            boundaries=boundaries,
            pad_to=pad_to,
            initial=initial,
            want_state=want_state,
        )
        found: Contextual = self._packed().contextualize(work)
        return torch.from_numpy(found.out), found.state

    def _packed(self) -> Any:
        if self._twin is None:
            self._twin = self._maker(self._model)
        return self._twin


def to_states(state: State) -> States:
    """The same memory as a twin takes it: one row where all rows are the same."""
    rows = 1 if state.h.stride(2) == 0 else state.h.shape[2]  # repeated without being copied
    return States(h=state.h[:, :, :rows].numpy(), c=state.c[:, :, :rows].numpy())


def find_fast(model: BiLM, device: str, dtype: str) -> FastPath | None:
    """The twin for this device and dtype, or None: compute plainly."""
    maker = kernels.find_kernel("bilm", device, dtype, model)
    return None if maker is None else FastPath(model, maker)
