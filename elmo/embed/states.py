"""What an LSTM remembers when a sentence begins: nothing, a fixed warm-up, or the sentence before it.

reset  fresh memory for each sentence: its vectors depend on nothing else (default)
warm   every sentence starts from the memory after one fixed text: just as independent, and closer to the
       running text that published models were trained on
carry  each row of a batch continues from the row's last sentence, as the reference implementations do: vectors
       depend on order, batch size and what ran before
"""

from __future__ import annotations

import torch

from elmo.errors import ConfigError
from elmo.model.lstm import State

POLICIES = ("reset", "warm", "carry")


def check_policy(policy: str) -> str:
    """The policy, if there is one of that name."""
    if policy not in POLICIES:
        raise ConfigError(f"state is {policy!r}; expected {', '.join(POLICIES)}.")
    return policy


def repeat(state: State, num_rows: int) -> State:
    """One row's memory (directions, L, 1, ·) for every row of a batch."""
    return State(state.h.expand(-1, -1, num_rows, -1), state.c.expand(-1, -1, num_rows, -1))


class CarriedState:
    """One memory a batch row, grown on demand; rows that a batch does not have, or that are empty, stay as they are."""

    def __init__(self, fresh: State) -> None:
        self._fresh = fresh  # of one row, all zero
        self._state: State | None = None

    @property
    def state(self) -> State | None:
        """The memory of all rows there are; None: no row yet."""
        return self._state

    def reset(self, to: State | None = None) -> None:
        self._state = to

    def rows(self, num_rows: int) -> State:
        """The memory of the first rows."""
        have = 0 if self._state is None else self._state.h.shape[2]
        if have < num_rows:
            more = repeat(self._fresh, num_rows - have)
            self._state = more if self._state is None else State(*map(_join, self._state, more))
        assert self._state is not None
        return State(self._state.h[:, :, :num_rows], self._state.c[:, :, :num_rows])

    def keep(self, state: State, rows: torch.Tensor) -> None:
        """Stores the memory (directions, L, B, ·) of the given B rows."""
        assert self._state is not None
        h, c = self._state.h.clone(), self._state.c.clone()
        h[:, :, rows], c[:, :, rows] = state.h, state.c
        self._state = State(h, c)


def _join(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.cat([a, b], dim=2)
