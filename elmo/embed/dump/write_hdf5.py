"""Vectors as HDF5 in the layout of `allennlp elmo`: one dataset a line, named "0", "1", ...

A dataset is (K, n, D), or (n, D) for one layer or a mix. `sentence_to_index` holds one string of JSON, each sentence
to its dataset's name; of equal sentences the last counts. It is the one thing here that is not streamed.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py

from elmo.embed.dump.part_files import Parts
from elmo.errors import DataError, OutputError

MAX_INDEX_BYTES = 1 << 30  # of all lines; the index is one string, which HDF5 and its readers hold in memory
_MAX_KEY_BYTES = 60_000  # HDF5 keeps a name in 64 KB, with other things


def write_hdf5(path: Path, parts: Parts, *, use_sentence_keys: bool = False, forget_sentences: bool = False) -> None:
    """One dataset a line, named by number or by sentence; the index unless it is not wanted or not needed."""
    with_index = not (use_sentence_keys or forget_sentences)
    if with_index and parts.num_bytes("lines") > MAX_INDEX_BYTES:
        raise OutputError(
            f"sentence_to_index would hold {parts.num_bytes('lines') / 1e9:.1f} GB of text in one string.",
            "Leave it out: elmo merge OUT --forget-sentences",
        )
    index: dict[str, str] = {}
    with _Disk(path) as disk, h5py.File(disk, "w") as file:
        for part in parts:
            rows = zip(part.lines(), part.vectors(parts.layout), strict=True)
            for number, (line, vectors) in enumerate(rows, part.first_line):
                key = line.strip() if use_sentence_keys else str(number)
                file.create_dataset(key, data=vectors, track_times=False)
                disk.check()
                if with_index:
                    index[line.strip()] = key
        if with_index:
            text = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype(), track_times=False)
            text[0] = json.dumps(index)


class _Disk(io.FileIO):
    """A file that takes a failed write calmly: HDF5 does not survive one, so it is told later, by `check`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self._failure: OSError | None = None

    def write(self, data: Any) -> int:
        view = memoryview(data)
        done = 0
        while done < len(view) and self._failure is None:
            try:
                done += super().write(view[done:])
            except OSError as error:
                self._failure = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:  # making it longer can fail too
            self._failure = self._failure or error
            return size or 0

    def check(self) -> None:
        """Raises what a write met."""
        if self._failure is not None:
            raise self._failure

    def __exit__(self, *reason: Any) -> None:
        super().__exit__(*reason)
        if reason[0] is None:
            self.check()


def check_sentence_keys(lines: Iterable[str], source: str) -> None:
    """Refuses sentences that cannot all be names in one HDF5 file, before any of them is embedded.

    A slash makes a group, as it did in `allennlp elmo`: file["1/2 cup"] still finds its dataset. What cannot work:
    blank lines, equal lines, a line that another one needs as a group, "." and NUL.
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
        above = [_digest("/".join(steps[:depth])) for depth in range(1, len(steps))]
        own = _digest(name)
        if own in datasets:
            reason = "was there before"
        elif own in groups or not datasets.isdisjoint(above):
            reason = "is the beginning of another line, up to a slash, or the other way round"
        if reason:
            raise DataError(
                f"{source}:{number}: the line {reason}, so it cannot name a dataset ({line.strip()[:40]!r}).",
                "Drop --use-sentence-keys: datasets are then named by line, and sentence_to_index leads to them.",
            )
        datasets.add(own)
        groups.update(above)


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=16).digest()
