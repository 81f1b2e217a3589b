"""Writes npz and safetensors outputs: the part files as a few long arrays, streamed.

offsets   (lines + 1,) int64: the tokens of line i are offsets[i]:offsets[i+1]
vectors   (tokens, [K,] D), or (lines, [K,] D) where sentences are pooled; K chosen layers
tokens    UTF-8 bytes, each token followed by a newline
lines     UTF-8 bytes, each line followed by a newline
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

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


def write_npz(path: Path, part_files: PartFiles) -> None:
    """Streams the arrays into an uncompressed zip file, whose bytes do not depend on the time of writing."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for array in flat_arrays(part_files):
            entry = zipfile.ZipInfo(f"{array.name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            with archive.open(entry, "w", force_zip64=True) as member:
                header = {
                    "descr": np.lib.format.dtype_to_descr(array.dtype),
                    "fortran_order": False,
                    "shape": array.shape,
                }
                np.lib.format.write_array_header_1_0(member, header)
                for piece in array.pieces:
                    member.write(np.ascontiguousarray(piece, dtype=array.dtype).tobytes())


_DTYPES = {"int64": "I64", "float32": "F32", "float16": "F16", "uint8": "U8"}


def write_safetensors(path: Path, part_files: PartFiles) -> None:
    """Streams the arrays after the header, whose sizes are known in advance."""
    arrays = flat_arrays(part_files)
    header: dict[str, Any] = {"__metadata__": {"elmo": json.dumps(part_files.plan["vectors"])}}
    offset = 0
    for array in arrays:
        header[array.name] = {
            "dtype": _DTYPES[array.dtype.name],
            "shape": array.shape,
            "data_offsets": [offset, offset + array.num_bytes],
        }
        offset += array.num_bytes
    header_bytes = json.dumps(header).encode()
    header_bytes += b" " * (-len(header_bytes) % 8)
    with open(path, "wb") as file:
        file.write(len(header_bytes).to_bytes(8, "little") + header_bytes)
        for array in arrays:
            for piece in array.pieces:
                file.write(np.ascontiguousarray(piece, dtype=array.dtype).tobytes())
