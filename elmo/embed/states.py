"""The LSTM state that sentences start from: the three state policies, and the state that "carry" stores.

reset  every sentence starts from the zero state: its vectors depend on nothing else (default)
warm   every sentence starts from the state after one fixed text: its vectors are just as independent, and closer to
       the running text that published models were trained on
carry  every batch row continues from its previous sentence, as in the reference implementations: vectors depend on the
       order, the batch size and what was run before
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from elmo.errors import ConfigError
from elmo.model.lstm import State

POLICIES = ("reset", "warm", "carry")

# The text of "warm": declarative English, tokenised like the training text. It must not change: results depend on it.
WARM_UP_TEXT = (
    "The committee met on Tuesday to discuss the plan , and most of its members agreed that more time was needed .",
    'He said : " We have not decided yet , but it is likely to happen before the end of the year . "',
    "In the north , heavy rain fell for three days and the river rose by almost two metres .",
    "She didn 't expect the company to grow so quickly , according to a report published last month .",
)


def check_policy(policy: str) -> str:
    """Returns the policy; raises ConfigError if there is none of that name."""
    if policy not in POLICIES:
        raise ConfigError(f"state is {policy!r}; expected {', '.join(POLICIES)}.")
    return policy


class InitialStates:
    """The state that the rows of a batch start from under each policy."""

    def __init__(self, zero: State, compute_warm: Callable[[], State]) -> None:
        """`zero` is the zero state of one row, (R, L, 1, ·). `compute_warm` runs the warm-up text, at first use."""
        self._zero, self._compute_warm = zero, compute_warm
        self._warm: State | None = None
        self.carried = CarriedState(zero)

    def rows(self, policy: str, positions: Tensor) -> State:
        """The initial state (R, L, B, ·) of the sentences at these B positions of a batch."""
        if policy == "carry":
            state = self.carried.rows(int(positions.max()) + 1)
            return State(state.h[:, :, positions], state.c[:, :, positions])
        if policy == "warm" and self._warm is None:
            self._warm = self._compute_warm()
        return _repeat(self._warm if policy == "warm" and self._warm else self._zero, len(positions))


class CarriedState:
    """One state per batch row, grown on demand. Rows that are empty or missing in a batch keep their state."""

    def __init__(self, zero: State) -> None:
        self._zero = zero  # of one row
        self._state: State | None = None

    @property
    def state(self) -> State | None:
        """The state of all rows, (R, L, rows, ·); None: no row has run yet."""
        return self._state

    def reset(self, to: State | None = None) -> None:
        """Sets the state of all rows; None: rows start from zero again."""
        self._state = to

    def rows(self, num_rows: int) -> State:
        """The state of the first rows."""
        num_stored = 0 if self._state is None else self._state.h.shape[2]
        if num_stored < num_rows:
            more = _repeat(self._zero, num_rows - num_stored)
            self._state = more if self._state is None else State(*map(_concatenate, self._state, more))
        assert self._state is not None
        return State(self._state.h[:, :, :num_rows], self._state.c[:, :, :num_rows])

    def store(self, state: State, rows: Tensor) -> None:
        """Stores the state (R, L, B, ·) of the given B rows."""
        assert self._state is not None
        h, c = self._state.h.clone(), self._state.c.clone()
        h[:, :, rows], c[:, :, rows] = state.h, state.c
        self._state = State(h, c)


def _repeat(state: State, num_rows: int) -> State:
    """The state of one row (R, L, 1, ·) for every row of a batch, without copying it."""
    return State(state.h.expand(-1, -1, num_rows, -1), state.c.expand(-1, -1, num_rows, -1))


def _concatenate(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([a, b], dim=2)
