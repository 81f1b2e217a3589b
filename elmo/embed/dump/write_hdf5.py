"""Vectors as HDF5 in the layout of `allennlp elmo`: one dataset per line, named "0", "1", ...

A dataset is (K, n, D) of K layers, or (n, D) of one layer or a mix. `sentence_to_index` holds one JSON string that maps
each sentence to the name of its dataset (the last one of equal sentences). It is kept in memory; all else is streamed.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py

from elmo.embed.dump.part_file import PartFiles
from elmo.errors import DataError, OutputError

MAX_INDEX_BYTES = 1 << 30  # of all lines, because HDF5 and its readers hold the index in memory as one string
_MAX_KEY_BYTES = 60_000  # HDF5 stores a name and other data in 64 KB


def write_hdf5(
    path: Path, part_files: PartFiles, *, use_sentence_keys: bool = False, forget_sentences: bool = False
) -> None:
    """Writes one dataset per line, named by number or by sentence, and sentence_to_index unless either flag is set."""
    with_index = not (use_sentence_keys or forget_sentences)
    if with_index and part_files.num_bytes("lines") > MAX_INDEX_BYTES:
        raise OutputError(
            f"sentence_to_index would hold {part_files.num_bytes('lines') / 1e9:.1f} GB of text in one string.",
            "Leave it out: elmo merge OUT --forget-sentences",
        )
    index: dict[str, str] = {}
    with _CheckedFile(path) as disk, h5py.File(disk, "w") as file:
        for part_file in part_files:
            rows = zip(part_file.lines(), part_file.vectors(part_files.layout), strict=True)
            for number, (line, vectors) in enumerate(rows, part_file.first_line):
                key = line.strip() if use_sentence_keys else str(number)
                file.create_dataset(key, data=vectors, track_times=False)
                disk.check()
                if with_index:
                    index[line.strip()] = key
        if with_index:
            text = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype(), track_times=False)
            text[0] = json.dumps(index)


class _CheckedFile(io.FileIO):
    """A file that stores a write error until `check` raises it, because the HDF5 library crashes on a failed write."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self._failure: OSError | None = None

    def write(self, data: Any) -> int:
        view = memoryview(data)
        written = 0
        while written < len(view) and self._failure is None:
            try:
                written += super().write(view[written:])
            except OSError as error:
                self._failure = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:  # extending the file can fail too
            self._failure = self._failure or error
            return size or 0

    def check(self) -> None:
        """Raises the error of an earlier write, if there was one."""
        if self._failure is not None:
            raise self._failure

    def __exit__(self, *reason: Any) -> None:
        super().__exit__(*reason)
        if reason[0] is None:
            self.check()


def check_sentence_keys(lines: Iterable[str], source: str) -> None:
    """A DataError for sentences that cannot all be names in one HDF5 file, before any of them is embedded.

    A slash makes a group, as in `allennlp elmo`: file["1/2 cup"] finds its dataset. Not possible are blank lines, equal
    lines, a line that is the name of another line's group, "." and NUL.
    """
    datasets: set[bytes] = set()
    groups: set[bytes] = set()
    for number, line in enumerate(lines, 1):
        steps = [step for step in line.strip().split("/") if step not in ("", ".")]
        name = "/".join(steps)
        reason = ""
        if not steps:
            reason = "is blank" if not line.strip() else "has no name in HDF5"
        elif "\0" in name or len(name.encode()) > _MAX_KEY_BYTES:
            reason = "holds a NUL" if "\0" in name else f"is longer than {_MAX_KEY_BYTES:,} bytes"
        parents = [_digest("/".join(steps[:depth])) for depth in range(1, len(steps))]
        digest = _digest(name)
        if digest in datasets:
            reason = "was there before"
        elif digest in groups or not datasets.isdisjoint(parents):
            reason = "is the beginning of another line, up to a slash, or the other way round"
        if reason:
            raise DataError(
                f"{source}:{number}: the line {reason}, so it cannot name a dataset ({line.strip()[:40]!r}).",
                "Drop --use-sentence-keys: datasets are then named by line; sentence_to_index lists them by sentence.",
            )
        datasets.add(digest)
        groups.update(parents)


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=16).digest()
