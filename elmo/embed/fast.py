"""Embedding through a CPU twin of the whole biLM (`elmo.kernels`), where this machine has one.

Stands where `sweep` and the token encoder stand otherwise, with the same inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo import kernels
from elmo.embed.choice import Choice
from elmo.kernels.work import Contextual, States, make_work
from elmo.model.bilm import BiLM
from elmo.model.lstm import State


class FastPath:
    """Sentences of table rows to chosen layers; weights are packed when first needed."""

    def __init__(self, model: BiLM, maker: Any) -> None:
        self._model, self._maker = model, maker
        self._twin: Any = None

    def encode(self, rows: np.ndarray) -> Tensor:
        """Rows of ids (N, W) to token vectors (N, P)."""
        return torch.from_numpy(self._packed().encode_rows(rows))

    def contextualize(
        self,
        table: Tensor,
        sentences: Sequence[Sequence[int]],
        choice: Choice,
        initial: State,
        *,
        pad_to: int | None = None,
        want_state: bool = False,
    ) -> tuple[Tensor, State | None]:
        """Chosen layers (K, N, D) of all tokens, one sentence after the other, and the state after each.

        Sentences are rows of the table (words, P) with their boundaries, which are not handed out; but with `pad_to`
        they are, and each sentence takes so many rows, zero after its end. `initial` has a row for each sentence.
        """
        if initial.h.stride(2) == 0:  # one row, repeated
            initial = State(initial.h[:, :, :1], initial.c[:, :, :1])
        work = make_work(
            table.numpy(),
            sentences,
            choice.matrix.numpy(),
            boundaries=pad_to is not None,
            pad_to=pad_to,
            initial=States(h=initial.h.numpy(), c=initial.c.numpy()),
            want_state=want_state,
        )
        found: Contextual = self._packed().contextualize(work)
        state = found.state
        after = None if state is None else State(torch.from_numpy(state.h), torch.from_numpy(state.c))
        return torch.from_numpy(found.out), after

    def _packed(self) -> Any:
        if self._twin is None:
            self._twin = self._maker(self._model)
        return self._twin


def find_fast(model: BiLM, device: str, dtype: str) -> FastPath | None:
    """The twin for this device and dtype, or None: compute plainly."""
    maker = kernels.find("bilm", device, dtype)
    return None if maker is None else FastPath(model, maker)
