"""What embedding asks of a CPU twin: distinct words, sentences of them, where to start, what to hand out and where to.

Both twins (`cpu_native`, `cpu_torch`) take one `CpuRequest` and give one `CpuResult`, all in numpy.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class StateArrays:
    """Memory of LSTMs: h (directions, L, rows, P) and c (directions, L, rows, H), float32."""

    h: np.ndarray
    c: np.ndarray


@dataclass(frozen=True)
class CpuResult:
    """out (K, N, D): the K wanted vectors of every placed token; state: after each sentence, where it was asked for."""

    out: np.ndarray
    state: StateArrays | None


@dataclass(frozen=True)
class CpuRequest:
    """Sentences over a table of word vectors. Made by `make_request`."""

    table: np.ndarray  # (words, P) float32
    tokens: np.ndarray  # (T,) int64: rows of the table, all sentences one after the other, boundaries included
    offsets: np.ndarray  # (S + 1,) int64: where each sentence begins in tokens
    places: np.ndarray  # (T,) int64: the row of `out` a token's vectors go to; -1: none
    mix: np.ndarray  # (K, L + 1) float32: each row a weighting of a token's layers
    num_places: int  # rows of `out`
    initial: StateArrays | None  # of one row for all sentences, or one each; None: zero
    want_state: bool
    out: np.ndarray | None  # (K, num_places, D) float32, to be filled; None: a fresh one

    @property
    def num_sentences(self) -> int:
        return len(self.offsets) - 1

    def check(self, num_layers: int, proj_dim: int) -> None:
        """Our own invariants, before pointers are handed to compiled code; that looks at tokens and places itself."""
        for part in (self.table, self.out, *((self.initial.h, self.initial.c) if self.initial else ())):
            assert part is None or (part.dtype == np.float32 and part.flags.c_contiguous)
        assert self.table.shape[1] == proj_dim
        assert self.mix.shape[1] == num_layers + 1
        assert len(self.tokens) == len(self.places) == self.offsets[-1]
        if self.initial is not None:
            assert self.initial.h.shape[2] == self.initial.c.shape[2]
            assert self.initial.h.shape[2] in (1, self.num_sentences)

    def result(self, dim: int) -> np.ndarray:
        """The caller's array, or a fresh one: (K, N, D), zero where no token's vectors go."""
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
    """`sentences` are rows of the table (words, P), boundaries included. Results are laid one sentence after the other.

    Without `boundaries`, a sentence's first and last token are read but not handed out. With `pad_to`, each sentence
    takes so many rows of the result, the rest of them zero. A sentence of no tokens has no vectors and no state.
    """
    lengths = list(map(len, sentences))
    offsets = np.array([0, *itertools.accumulate(lengths)], dtype=np.int64)
    tokens = np.fromiter(itertools.chain.from_iterable(sentences), dtype=np.int64, count=sum(lengths))
    cut = 0 if boundaries else 1
    if len(lengths) == 1:  # the shortest way, for those who wait for one sentence
        places, num_places = np.arange(-cut, lengths[0] - cut), max(lengths[0] - 2 * cut, 0)
        places[num_places + cut :] = -1
    else:
        places, num_places = _places(np.array(lengths, dtype=np.int64), offsets, cut, pad_to)
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


def _places(lengths: np.ndarray, offsets: np.ndarray, cut: int, pad_to: int | None) -> tuple[np.ndarray, int]:
    """Each token's row of the result (T,), -1 for the first and last `cut` of a sentence; and how many have one."""
    handed_out = np.ones(offsets[-1], dtype=bool)
    if cut:
        filled = lengths > 0
        handed_out[offsets[:-1][filled]] = False
        handed_out[offsets[1:][filled] - 1] = False
    places = np.cumsum(handed_out, dtype=np.int64) - 1
    num_places = int(places[-1]) + 1 if len(places) else 0
    if pad_to is not None:
        which = np.repeat(np.arange(len(lengths)), lengths)  # (T,), each token's sentence
        places = which * pad_to + np.arange(len(places)) - offsets[which] - cut
    places[~handed_out] = -1
    return places, num_places
