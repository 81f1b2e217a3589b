"""OUT.parts/, the folder of an unfinished bulk embedding: part files, the plan they belong to, and locks.

    plan.json      input, model and settings of the blocks; a run with other ones may not continue them
    block-N.part   a finished block
    end.json       number of blocks, lines and tokens; written by the process that reads the input to its end
    result.json    size and time of the assembled output, written just before the output gets its name
    lock           held exclusively by a run of one process or a merge, shared by shards; a shard has its own lock too

Needs no torch.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

from elmo.embed.dump.options import DTYPES, FORMATS
from elmo.embed.dump.part_file import Layout, PartFile
from elmo.embed.dump.target import Target
from elmo.errors import OutputError
from elmo.files import atomic_file, explain_write, file_lock, read_json
from elmo.schema import COUNT, Maybe, Number, OneOf, check_shape
from elmo.settings import changed_settings

log = logging.getLogger(__name__)

Plan = dict[str, Any]
_FOR_PEOPLE = {"input.path", "model.name"}  # entries of the plan that may change: a moved file is still the same file
_LAYOUT = {"num_kept": COUNT, "dim": COUNT, "stacked": bool, "pooled": bool, "dtype": OneOf(*DTYPES)}
_COUNTS = {"blocks": Number(low=0, high=10**7, whole=True), "lines": COUNT, "tokens": COUNT}
_SHAPES = {
    "plan.json": {
        "vectors": {"layout": _LAYOUT},
        "output": {"format": OneOf(*FORMATS), "use_sentence_keys": bool, "forget_sentences": bool},
        "shards": Maybe(Number(low=1, high=10**7, whole=True)),
    },
    "end.json": _COUNTS,
    "result.json": {"bytes": COUNT, "mtime_ns": Number(low=-(2**63), high=2**63, whole=True), "counts": _COUNTS},
}
_START_OVER = "Delete the folder and embed the text again."
_PART_FILE = re.compile(r"block-(\d+)\.part")


class PartFolder:
    """The part files of one output. The folder stays locked from `lock` to `close`."""

    def __init__(self, target: Target) -> None:
        self.target, self.path = target, target.parts_path
        self._locks = ExitStack()
        self.plan: Plan = {}

    def close(self) -> None:
        """Releases the locks."""
        self._locks.close()

    def lock(self, shard: tuple[int, int] | None = None) -> None:
        """Makes the folder and locks it, exclusively or as one of several shards; an OutputError names the holder."""
        with explain_write(self.path):
            self.path.mkdir(exist_ok=True)
        self._locks.enter_context(self._lock("lock", shared=shard is not None))
        if shard is not None:
            self._locks.enter_context(self._lock(f"shard-{shard[0]}-of-{shard[1]}.lock"))

    def begin(self, plan: Plan, *, resume: bool, overwrite: bool) -> None:
        """Stores the plan of a run. An earlier plan must be the same (`resume`), or is discarded (`overwrite`)."""
        with self._lock("plan.lock", wait=True):
            earlier = None if overwrite and not resume else self.read("plan.json")
            if earlier is not None and not resume and not overwrite:
                raise OutputError(
                    f"{self.path} holds {len(self.blocks())} finished blocks of an earlier run.",
                    "Continue that run with --resume, or discard it with --overwrite.",
                )
            if earlier is not None and resume:
                self._check_same_plan(earlier, plan)
                plan = earlier
            if earlier is None or not resume:
                self._remove_blocks()
                (self.path / "result.json").unlink(missing_ok=True)
                self.write("plan.json", plan)
        self.plan = plan

    def open_plan(self) -> None:
        """Reads the plan that is stored in the folder."""
        plan = self.read("plan.json")
        if plan is None:
            raise OutputError(f"{self.path} has no plan.json.", "No run was begun there; see elmo embed --help.")
        self.plan = plan

    @property
    def layout(self) -> Layout:
        stored = self.plan["vectors"]["layout"]
        return Layout(**{name: stored[name] for name in _LAYOUT})

    def part_path(self, number: int) -> Path:
        """The part file of a block."""
        return self.path / f"block-{number:07d}.part"

    def blocks(self) -> list[int]:
        """Numbers of the blocks that have a part file, in order."""
        return sorted(int(match[1]) for name in os.listdir(self.path) if (match := _PART_FILE.fullmatch(name)))

    def has(self, number: int) -> bool:
        """Whether a block is finished; a damaged part file counts as missing."""
        try:
            PartFile(self.part_path(number))
        except FileNotFoundError:
            return False
        except OutputError as error:
            log.warning("%s The block is computed again.", error.message)
            return False
        return True

    def read(self, name: str) -> dict[str, Any] | None:
        """One of the folder's JSON files; None where it is missing."""
        path = self.path / name
        if not path.exists():
            return None
        try:
            values = read_json(path, error=OutputError, max_bytes=64 << 20)
        except OutputError as error:
            raise OutputError(error.message, _START_OVER) from error
        check_shape(values, _SHAPES[name], path, error=OutputError, hint=_START_OVER)
        return values

    def write(self, name: str, values: Mapping[str, Any]) -> None:
        """Writes one of the folder's JSON files."""
        with atomic_file(self.path / name) as partial:
            partial.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")

    def note_result(self, partial: Path, counts: Mapping[str, int]) -> None:
        """Stores what identifies the assembled file, in case the run is killed before the part files are removed."""
        status = partial.stat()
        self.write("result.json", {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns, "counts": dict(counts)})

    def counts_of_result(self) -> dict[str, int] | None:
        """Blocks, lines and tokens of the output, if the output was assembled from these part files; otherwise None."""
        result = self.read("result.json")
        if result is None or not self.target.path.exists():
            return None
        status = self.target.path.stat()
        is_same = (result["bytes"], result["mtime_ns"]) == (status.st_size, status.st_mtime_ns)
        return dict(result["counts"]) if is_same else None

    def remove(self) -> None:
        """Deletes the folder, result.json after plan.json, so that a later run can finish a removal that was killed."""
        self._remove_blocks()
        for name in ("plan.json", "result.json"):
            (self.path / name).unlink(missing_ok=True)
        for path in self.path.glob("*lock"):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty: another run has just begun here
            self.path.rmdir()

    def _lock(self, name: str, *, shared: bool = False, wait: bool = False) -> AbstractContextManager[None]:
        in_use = f"{self.target.path} is being written by"
        return file_lock(self.path / name, in_use, "Wait for it or stop it.", shared=shared, wait=wait)

    def _remove_blocks(self) -> None:
        for path in self.path.iterdir():
            if path.is_dir():  # the staging folder of a process that was killed
                shutil.rmtree(path, ignore_errors=True)
            elif path.name not in ("result.json", "plan.json") and not path.name.endswith("lock"):
                path.unlink(missing_ok=True)

    def _check_same_plan(self, earlier: Plan, plan: Plan) -> None:
        # one process may finish what shards began
        ignore = _FOR_PEOPLE if plan["shards"] else {*_FOR_PEOPLE, "shards"}
        if changed := changed_settings(earlier, plan, ignore=ignore):
            lines = [f"{name}: was {before!r}, is {after!r}" for name, (before, after) in changed.items()]
            raise OutputError(
                f"{self.path} belongs to another run:\n  " + "\n  ".join(lines),
                "Repeat that run's input, model and settings to continue it, or choose another output.",
            )
