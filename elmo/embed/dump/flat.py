"""All parts as a few long arrays, streamed: what npz and safetensors files hold.

offsets   (lines + 1,) int64: the tokens of line i are offsets[i]:offsets[i+1]
vectors   (tokens, [K,] D), or (lines, [K,] D) where sentences are pooled
tokens    UTF-8 bytes, each token followed by a newline
lines     UTF-8 bytes, each line followed by a newline
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from elmo.embed.dump.part_files import Parts


@dataclass(frozen=True, kw_only=True)
class FlatArray:
    """A named array that is made piece by piece."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    pieces: Iterator[np.ndarray]

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def flat_arrays(parts: Parts) -> list[FlatArray]:
    """The arrays in the order they are stored; each one's pieces can be read once."""
    layout = parts.layout
    shape = (layout.num_kept, layout.dim) if layout.stacked else (layout.dim,)
    return [
        FlatArray(name="offsets", dtype=np.dtype("<i8"), shape=(parts.num_lines + 1,), pieces=_offsets(parts)),
        FlatArray(
            name="vectors",
            dtype=np.dtype(layout.dtype).newbyteorder("<"),
            shape=(parts.num_rows, *shape),
            pieces=_sections(parts, "vectors"),
        ),
        _text(parts, "tokens"),
        _text(parts, "lines"),
    ]


def _text(parts: Parts, name: str) -> FlatArray:
    shape = (parts.num_bytes(name),)
    return FlatArray(name=name, dtype=np.dtype("u1"), shape=shape, pieces=_sections(parts, name))


def _sections(parts: Parts, name: str) -> Iterator[np.ndarray]:
    return (part.array(name) for part in parts)


def _offsets(parts: Parts) -> Iterator[np.ndarray]:
    reached = np.zeros(1, dtype=np.int64)
    yield reached
    for part in parts:
        offsets = reached + np.cumsum(part.array("lengths"))
        reached = offsets[-1:]
        yield offsets
