"""The part files as a few long arrays, streamed: the content of npz and safetensors outputs.

offsets   (lines + 1,) int64: the tokens of line i are offsets[i]:offsets[i+1]
vectors   (tokens, [K,] D), or (lines, [K,] D) where sentences are pooled; K chosen layers
tokens    UTF-8 bytes, each token followed by a newline
lines     UTF-8 bytes, each line followed by a newline
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from elmo.embed.dump.part_file import PartFiles


@dataclass(frozen=True, kw_only=True)
class FlatArray:
    """A named array whose content is read piece by piece."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    pieces: Iterator[np.ndarray]

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def flat_arrays(part_files: PartFiles) -> list[FlatArray]:
    """The arrays in the order in which they are stored; the pieces of each can be read once."""
    layout = part_files.layout
    shape = (layout.num_kept, layout.dim) if layout.stacked else (layout.dim,)
    return [
        FlatArray(
            name="offsets", dtype=np.dtype("<i8"), shape=(part_files.num_lines + 1,), pieces=_offsets(part_files)
        ),
        FlatArray(
            name="vectors",
            dtype=np.dtype(layout.dtype).newbyteorder("<"),
            shape=(part_files.num_rows, *shape),
            pieces=_sections(part_files, "vectors"),
        ),
        _text(part_files, "tokens"),
        _text(part_files, "lines"),
    ]


def _text(part_files: PartFiles, name: str) -> FlatArray:
    shape = (part_files.num_bytes(name),)
    return FlatArray(name=name, dtype=np.dtype("u1"), shape=shape, pieces=_sections(part_files, name))


def _sections(part_files: PartFiles, name: str) -> Iterator[np.ndarray]:
    return (part_file.array(name) for part_file in part_files)


def _offsets(part_files: PartFiles) -> Iterator[np.ndarray]:
    last = np.zeros(1, dtype=np.int64)
    yield last
    for part_file in part_files:
        offsets = last + np.cumsum(part_file.array("lengths"))
        last = offsets[-1:]
        yield offsets
