"""The request to a CPU implementation of the LSTM stacks, and its result: numpy arrays only.

A request holds a table of word vectors, sentences of table rows, the initial states, the chosen layers and where the
results go. `NativeBiLM` and `TorchBiLM` take a `CpuRequest` and return a `CpuResult`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class StateArrays:
    """LSTM states of R directions: h (R, L, rows, P) and c (R, L, rows, H), float32."""

    h: np.ndarray
    c: np.ndarray


@dataclass(frozen=True)
class CpuResult:
    """out (K, N, D): the K chosen vectors of every token in the result; state: after each sentence, if requested."""

    out: np.ndarray
    state: StateArrays | None


@dataclass(frozen=True)
class CpuRequest:
    """Sentences over a table of word vectors. `make_request` makes it."""

    table: np.ndarray  # (words, P) float32
    tokens: np.ndarray  # (N,) int64: table rows of all sentences, concatenated
    offsets: np.ndarray  # (S + 1,) int64: the first token of each sentence
    places: np.ndarray  # (N,) int64: the row of `out` for each token's vectors; -1: none
    mix: np.ndarray  # (K, L + 1) float32: each row holds one weight per layer
    num_places: int  # rows of `out`
    initial: StateArrays | None  # one row for all sentences, or one row per sentence; None: zero
    want_state: bool
    out: np.ndarray | None  # (K, num_places, D) float32, filled by the implementation; None: it allocates one

    @property
    def num_sentences(self) -> int:
        return len(self.offsets) - 1

    def check(self, num_layers: int, proj_dim: int) -> None:
        """Checks types and shapes before compiled code gets pointers; that code checks `tokens` and `places` itself."""
        for part in (self.table, self.out, *((self.initial.h, self.initial.c) if self.initial else ())):
            assert part is None or (part.dtype == np.float32 and part.flags.c_contiguous)
        assert self.table.shape[1] == proj_dim
        assert self.mix.shape[1] == num_layers + 1
        assert len(self.tokens) == len(self.places) == self.offsets[-1]
        if self.initial is not None:
            assert self.initial.h.shape[2] == self.initial.c.shape[2]
            assert self.initial.h.shape[2] in (1, self.num_sentences)

    def result(self, dim: int) -> np.ndarray:
        """The array for the result (K, num_places, D): `out` or a new one; zero where no token's vectors go."""
        shape = (len(self.mix), self.num_places, dim)
        has_gaps = np.count_nonzero(self.places >= 0) < self.num_places
        if self.out is None:
            return np.zeros(shape, dtype=np.float32) if has_gaps else np.empty(shape, dtype=np.float32)
        assert self.out.shape == shape
        if has_gaps:
            self.out.fill(0.0)
        return self.out


def make_request(
    table: np.ndarray,
    sentences: Sequence[np.ndarray | Sequence[int]],
    mix: np.ndarray,
    *,
    boundaries: bool = False,
    pad_to: int | None = None,
    initial: StateArrays | None = None,
    want_state: bool = False,
    out: np.ndarray | None = None,
) -> CpuRequest:
    """A request for `sentences` of table rows; the result holds the sentences one after the other.

    Without `boundaries`, the first and the last token of each sentence are read but are not in the result. With
    `pad_to`, each sentence has that many rows in the result, zero after its end. A sentence without tokens has no
    vectors and no state.
    """
    lengths = list(map(len, sentences))
    offsets = np.array([0, *itertools.accumulate(lengths)], dtype=np.int64)
    tokens = np.fromiter(itertools.chain.from_iterable(sentences), dtype=np.int64, count=sum(lengths))
    cut = 0 if boundaries else 1
    if len(lengths) == 1:  # a short cut, for the latency of one sentence
        places, num_places = np.arange(-cut, lengths[0] - cut), max(lengths[0] - 2 * cut, 0)
        places[num_places + cut :] = -1
    else:
        places, num_places = _assign_places(np.array(lengths, dtype=np.int64), offsets, cut, pad_to)
    if pad_to is not None:
        num_places = len(sentences) * pad_to
    if initial is not None:
        initial = StateArrays(*(np.ascontiguousarray(part, dtype=np.float32) for part in (initial.h, initial.c)))
    return CpuRequest(
        table=np.ascontiguousarray(table, dtype=np.float32),
        tokens=tokens,
        offsets=offsets,
        places=places,
        mix=np.ascontiguousarray(mix, dtype=np.float32),
        num_places=num_places,
        initial=initial,
        want_state=want_state,
        out=out,
    )


def _assign_places(lengths: np.ndarray, offsets: np.ndarray, cut: int, pad_to: int | None) -> tuple[np.ndarray, int]:
    """The result row of each token (N,), -1 for the first and last `cut` tokens of a sentence; and the row count."""
    in_result = np.ones(offsets[-1], dtype=bool)
    if cut:
        filled = lengths > 0
        in_result[offsets[:-1][filled]] = False
        in_result[offsets[1:][filled] - 1] = False
    places = np.cumsum(in_result, dtype=np.int64) - 1
    num_places = int(places[-1]) + 1 if len(places) else 0
    if pad_to is not None:
        sentence_of_token = np.repeat(np.arange(len(lengths)), lengths)  # (N,)
        places = sentence_of_token * pad_to + np.arange(len(places)) - offsets[sentence_of_token] - cut
    places[~in_result] = -1
    return places, num_places
