"""One finished block on disk: its vectors, its lines and their tokens, each section with a checksum of its own.

Written by the job, read back section by section when all parts are put together; needs no torch.

    magic, length of the header (8 bytes), header (JSON), then the sections' bytes one after the other
    vectors   (rows, K, D); a row is a token, or a line where sentences are pooled
    lengths   (lines,) tokens of each line
    lines     UTF-8, each line followed by a newline
    tokens    UTF-8, each token followed by a newline
    h, c      the state after the block, where state is carried
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmo.embed.dump.blocks import Block
from elmo.errors import OutputError
from elmo.files import atomic_file

MAGIC = b"elmo part 1\n"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How vectors are stored and handed out: K a token (with or without that axis) of width D."""

    num_kept: int  # K
    dim: int  # D
    stacked: bool  # the axis K is kept in results
    pooled: bool  # one row a line instead of one a token
    dtype: str

    def sentence(self, rows: np.ndarray) -> np.ndarray:
        """Rows (n, K, D) of one line as a caller gets them: (K, n, D) or (n, D), pooled (K, D) or (D,)."""
        if self.pooled:
            return rows[0] if self.stacked else rows[0, 0]
        return np.ascontiguousarray(rows.transpose(1, 0, 2)) if self.stacked else rows[:, 0]


def write_part(
    path: Path, block: Block, vectors: np.ndarray, state: tuple[np.ndarray, np.ndarray] | None = None
) -> None:
    """Writes a block, whole or not at all."""
    sections = {
        "vectors": vectors,
        "lengths": np.array([len(sentence) for sentence in block.sentences], dtype=np.int64),
        "lines": _text(block.lines),
        "tokens": _text([token for sentence in block.sentences for token in sentence]),
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
    head = json.dumps(header).encode()
    with atomic_file(path) as partial:
        with open(partial, "wb") as file:
            file.write(MAGIC + len(head).to_bytes(8, "little") + head)
            for view in views.values():
                file.write(view)


class Part:
    """A part file that is read section by section."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as file:
            magic, size = file.read(len(MAGIC)), int.from_bytes(file.read(8), "little")
            header = self._parse(file.read(size) if magic == MAGIC and size < 1 << 20 else b"")
        self.number: int = header["block"]
        self.first_line: int = header["first_line"]
        self.sections: dict[str, Any] = header["sections"]
        self._data_at = len(MAGIC) + 8 + size
        if path.stat().st_size != self._data_at + sum(section["bytes"] for section in self.sections.values()):
            raise self._damaged("its length is wrong")

    @property
    def num_lines(self) -> int:
        return int(self.sections["lengths"]["shape"][0])

    @property
    def num_rows(self) -> int:
        return int(self.sections["vectors"]["shape"][0])

    def array(self, name: str) -> np.ndarray:
        """A section, if its checksum is right."""
        section = self.sections[name]
        with open(self.path, "rb") as file:
            file.seek(self._data_at + section["offset"])
            data = bytearray(section["bytes"])
            file.readinto(data)
        if hashlib.sha256(data).hexdigest() != section["sha256"]:
            raise self._damaged(f"the checksum of its {name} is wrong")
        return np.frombuffer(data, dtype=section["dtype"]).reshape(section["shape"])

    def lines(self) -> list[str]:
        return _untext(self.array("lines"))

    def sentences(self) -> list[list[str]]:
        """The tokens of each line."""
        tokens = iter(_untext(self.array("tokens")))
        return [[next(tokens) for _ in range(length)] for length in self.array("lengths")]

    def vectors(self, layout: Layout) -> Iterator[np.ndarray]:
        """The vectors of each line as a caller gets them."""
        rows, at = self.array("vectors"), 0
        for length in self.array("lengths"):
            count = 1 if layout.pooled else int(length)
            yield layout.sentence(rows[at : at + count])
            at += count

    def state(self) -> tuple[np.ndarray, np.ndarray] | None:
        """What was carried out of the block; None: nothing yet."""
        return (self.array("h"), self.array("c")) if "h" in self.sections else None

    def _parse(self, head: bytes) -> dict[str, Any]:
        try:
            return dict(json.loads(head))
        except ValueError as error:
            raise self._damaged("it has no header") from error

    def _damaged(self, how: str) -> OutputError:
        return OutputError(f"{self.path} is damaged: {how}.", "Delete it and run again with --resume.")


def _text(pieces: list[str]) -> np.ndarray:
    return np.frombuffer("".join(f"{piece}\n" for piece in pieces).encode(), dtype=np.uint8)


def _untext(data: np.ndarray) -> list[str]:
    return data.tobytes().decode().split("\n")[:-1]
