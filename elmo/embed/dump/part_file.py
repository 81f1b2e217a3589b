"""Part files: each stores one finished block with its vectors, lines and tokens, every section with its checksum.

The job writes them; the writers of the output formats read them section by section. Needs no torch.

    magic, length of the header (8 bytes), header (JSON), then the bytes of the sections, one after the other
    vectors   (rows, K, D); a row is a token, or a line where sentences are pooled; K chosen layers
    lengths   (lines,) tokens of each line
    lines     UTF-8, each line followed by a newline
    tokens    UTF-8, each token followed by a newline
    h, c      the LSTM state after the block, where state is carried
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmo.embed.dump.blocks import Block
from elmo.errors import OutputError
from elmo.files import atomic_file, parse_json
from elmo.schema import COUNT, List, OneOf, find_problem

MAGIC = b"elmo part 1\n"
_SECTION = {
    "dtype": OneOf("float16", "float32", "float64", "int64", "uint8"),
    "shape": List(COUNT, least=1),
    "offset": COUNT,
    "bytes": COUNT,
    "sha256": str,
}
_HEADER = {
    "block": COUNT,
    "first_line": COUNT,
    "sections": {"vectors": _SECTION, "lengths": _SECTION, "lines": _SECTION, "tokens": _SECTION, "*": _SECTION},
}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The shape and dtype of stored vectors: K vectors of width D per token, or per line where sentences are pooled."""

    num_kept: int  # K
    dim: int  # D
    stacked: bool  # results have the axis K
    pooled: bool  # one row per line instead of one per token
    dtype: str

    def sentence(self, rows: np.ndarray) -> np.ndarray:
        """Rows (n, K, D) of one line in the shape of results: (K, n, D) or (n, D), pooled (K, D) or (D,)."""
        vectors: np.ndarray
        if self.pooled:
            vectors = rows[0] if self.stacked else rows[0, 0]
        else:
            vectors = np.ascontiguousarray(rows.transpose(1, 0, 2)) if self.stacked else rows[:, 0]
        return vectors

    def split(self, rows: np.ndarray, lengths: Iterable[int]) -> Iterator[np.ndarray]:
        """The vectors of each line in the shape of results, from the rows and the number of tokens of each line."""
        start = 0
        for length in lengths:
            count = 1 if self.pooled else int(length)
            yield self.sentence(rows[start : start + count])
            start += count


def write_part_file(
    path: Path, block: Block, vectors: np.ndarray, state: tuple[np.ndarray, np.ndarray] | None = None
) -> None:
    """Writes a block and its vectors (rows, K, D), completely or not at all."""
    sections = {
        "vectors": vectors,
        "lengths": np.array([len(sentence) for sentence in block.sentences], dtype=np.int64),
        "lines": _encode_strings(block.lines),
        "tokens": _encode_strings([token for sentence in block.sentences for token in sentence]),
    }
    if state is not None:
        sections |= {"h": state[0], "c": state[1]}
    views = {name: np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for name, array in sections.items()}
    header: dict[str, Any] = {"block": block.number, "first_line": block.first_line, "sections": {}}
    offset = 0
    for name, array in sections.items():
        header["sections"][name] = {
            "dtype": str(array.dtype),
            "shape": array.shape,
            "offset": offset,
            "bytes": len(views[name]),
            "sha256": hashlib.sha256(views[name]).hexdigest(),
        }
        offset += len(views[name])
    header_bytes = json.dumps(header).encode()
    with atomic_file(path) as partial:
        with open(partial, "wb") as file:
            file.write(MAGIC + len(header_bytes).to_bytes(8, "little") + header_bytes)
            for view in views.values():
                file.write(view)


class PartFile:
    """A part file that is read section by section; damage is an OutputError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as file:
            magic, size = file.read(len(MAGIC)), int.from_bytes(file.read(8), "little")
            header = self._parse_header(file.read(size) if magic == MAGIC and size < 1 << 20 else b"")
        self.number: int = header["block"]
        self.first_line: int = header["first_line"]
        self.sections: dict[str, Any] = header["sections"]
        self._data_offset = len(MAGIC) + 8 + size
        if path.stat().st_size != self._data_offset + sum(section["bytes"] for section in self.sections.values()):
            raise self._damaged("its length is wrong")

    @property
    def num_lines(self) -> int:
        return int(self.sections["lengths"]["shape"][0])

    @property
    def num_rows(self) -> int:
        return int(self.sections["vectors"]["shape"][0])

    def array(self, name: str) -> np.ndarray:
        """One section; its checksum is verified."""
        section = self.sections[name]
        with open(self.path, "rb") as file:
            file.seek(self._data_offset + section["offset"])
            data = bytearray(section["bytes"])
            file.readinto(data)
        if hashlib.sha256(data).hexdigest() != section["sha256"]:
            raise self._damaged(f"the checksum of its {name} is wrong")
        return np.frombuffer(data, dtype=section["dtype"]).reshape(section["shape"])

    def lines(self) -> list[str]:
        return _decode_strings(self.array("lines"))

    def sentences(self) -> list[list[str]]:
        """The tokens of each line."""
        tokens = iter(_decode_strings(self.array("tokens")))
        return [[next(tokens) for _ in range(length)] for length in self.array("lengths")]

    def vectors(self, layout: Layout) -> Iterator[np.ndarray]:
        """The vectors of each line, in the shape that `Layout.sentence` gives."""
        return layout.split(self.array("vectors"), self.array("lengths"))

    def state(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The LSTM state after the block; None where none is stored."""
        return (self.array("h"), self.array("c")) if "h" in self.sections else None

    def _parse_header(self, data: bytes) -> dict[str, Any]:
        try:
            header = parse_json(data, str(self.path), error=OutputError)
        except OutputError as error:
            raise self._damaged("it has no header") from error
        if problem := find_problem(header, _HEADER):
            raise self._damaged(f"in its header, {problem}")
        for name, section in header["sections"].items():
            if math.prod(section["shape"]) * np.dtype(section["dtype"]).itemsize != section["bytes"]:
                raise self._damaged(f"the size of its {name} is wrong")
        return header

    def _damaged(self, reason: str) -> OutputError:
        return OutputError(f"{self.path} is damaged: {reason}.", "Delete it and run elmo embed again with --resume.")


class PartFiles:
    """All part files of a finished run in order, opened one at a time, with their total sizes."""

    def __init__(self, paths: Sequence[Path], plan: Mapping[str, Any], layout: Layout) -> None:
        self.plan, self.layout, self._paths = plan, layout, paths
        self.num_lines = self.num_rows = 0
        self._num_bytes: dict[str, int] = {}
        for part_file in self:
            stored = part_file.sections["vectors"]
            if (*stored["shape"][1:], stored["dtype"]) != (layout.num_kept, layout.dim, layout.dtype):
                raise OutputError(
                    f"{part_file.path} has vectors of {stored['shape'][1:]} {stored['dtype']}; the plan says "
                    f"{[layout.num_kept, layout.dim]} {layout.dtype}.",
                    "Delete the folder and embed the text again.",
                )
            self.num_lines += part_file.num_lines
            self.num_rows += part_file.num_rows
            for name, section in part_file.sections.items():
                self._num_bytes[name] = self._num_bytes.get(name, 0) + section["bytes"]

    def __iter__(self) -> Iterator[PartFile]:
        return (PartFile(path) for path in self._paths)

    def num_bytes(self, section: str) -> int:
        """Bytes of one section in all part files."""
        return self._num_bytes.get(section, 0)


def _encode_strings(strings: Sequence[str]) -> np.ndarray:
    return np.frombuffer("".join(f"{string}\n" for string in strings).encode(), dtype=np.uint8)


def _decode_strings(data: np.ndarray) -> list[str]:
    return data.tobytes().decode().split("\n")[:-1]
