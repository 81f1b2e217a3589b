"""OUT.parts/: the finished blocks of an unfinished run, the plan they belong to, and who is writing there.

    plan.json      what the blocks were made of; another input, model or setting may not continue them
    block-N.part   a finished block
    end.json       how many blocks, lines and tokens there are; written by whoever reads the input to its end
    result.json    size and time of the assembled output, written just before it takes its name
    lock           held alone by a whole run or a merge, together by shards; each shard also holds a lock of its own

Needs no torch.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

from elmo.embed.dump.part_file import Layout, Part
from elmo.embed.dump.target import Target
from elmo.errors import OutputError
from elmo.files import atomic_file, explain_write, file_lock
from elmo.settings import changed_settings

log = logging.getLogger(__name__)

Plan = dict[str, Any]
_INFORMATION = {"input.path", "model.name"}  # in the plan for people; a moved file is still the same file
_PART = re.compile(r"block-(\d+)\.part")


class PartsFolder:
    """The parts of one output, locked for as long as it is open."""

    def __init__(self, target: Target) -> None:
        self.target, self.path = target, target.parts_path
        self._locks = ExitStack()
        self.plan: Plan = {}

    def close(self) -> None:
        """Lets others write."""
        self._locks.close()

    def lock(self, shard: tuple[int, int] | None = None) -> None:
        """Takes the folder, alone or as one shard of many; an OutputError names who has it."""
        with explain_write(self.path):
            self.path.mkdir(exist_ok=True)
        self._locks.enter_context(self._lock("lock", shared=shard is not None))
        if shard is not None:
            self._locks.enter_context(self._lock(f"shard-{shard[0]}-of-{shard[1]}.lock"))

    def begin(self, plan: Plan, *, keep: bool, overwrite: bool) -> None:
        """Makes the plan this folder's. An earlier plan must be the same (`keep`), or is forgotten (`overwrite`)."""
        with self._lock("plan.lock", wait=True):
            earlier = self.read("plan.json")
            if earlier is not None and not keep and not overwrite:
                raise OutputError(
                    f"{self.path} holds {len(self.blocks())} finished blocks of an earlier run.",
                    "Continue that run with --resume, or forget it with --overwrite.",
                )
            if earlier is not None and keep:
                self._refuse_difference(earlier, plan)
                plan = earlier
            if earlier is None or not keep:
                self._remove_blocks()
                (self.path / "result.json").unlink(missing_ok=True)
                self.write("plan.json", plan)
        self.plan = plan

    def open_plan(self) -> None:
        """Takes the plan that is there."""
        plan = self.read("plan.json")
        if plan is None:
            raise OutputError(f"{self.path} has no plan.json.", "No run was begun there; see elmo embed --help.")
        self.plan = plan

    @property
    def layout(self) -> Layout:
        return Layout(**self.plan["vectors"]["layout"])

    def part_path(self, number: int) -> Path:
        return self.path / f"block-{number:07d}.part"

    def blocks(self) -> list[int]:
        """Numbers of the blocks that are there, in order."""
        return sorted(int(found[1]) for name in os.listdir(self.path) if (found := _PART.fullmatch(name)))

    def has(self, number: int) -> bool:
        """Whether a block is there whole; one that is damaged counts as missing."""
        try:
            Part(self.part_path(number))
        except FileNotFoundError:
            return False
        except OutputError as error:
            log.warning("%s It is made again.", error.message)
            return False
        return True

    def read(self, name: str) -> dict[str, Any] | None:
        """One of the folder's JSON files, None where it is missing."""
        try:
            text = (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            return dict(json.loads(text))
        except ValueError as error:
            raise OutputError(f"{self.path / name} is damaged ({error}).", "Begin anew with --overwrite.") from error

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        with atomic_file(self.path / name) as partial:
            partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")

    def note_result(self, partial: Path, counts: Mapping[str, int]) -> None:
        """Remembers the assembled file, so that a run killed before the parts are gone knows it again."""
        about = partial.stat()
        self.write("result.json", {"bytes": about.st_size, "mtime_ns": about.st_mtime_ns, "counts": dict(counts)})

    def counts_of_result(self) -> dict[str, int] | None:
        """What was noted of the file under the final name, if that was assembled from these parts."""
        noted = self.read("result.json")
        if noted is None or not self.target.path.exists():
            return None
        about = self.target.path.stat()
        same = (noted["bytes"], noted["mtime_ns"]) == (about.st_size, about.st_mtime_ns)
        return dict(noted["counts"]) if same else None

    def remove(self) -> None:
        """Deletes the folder: while the plan is there, so is the note of the result, wherever this is killed."""
        self._remove_blocks()
        for name in ("plan.json", "result.json"):
            (self.path / name).unlink(missing_ok=True)
        for file in self.path.glob("*lock"):
            file.unlink(missing_ok=True)
        with suppress(OSError):  # not empty: another run has just begun here
            self.path.rmdir()

    def _lock(self, name: str, *, shared: bool = False, wait: bool = False) -> AbstractContextManager[None]:
        in_use = f"{self.target.path} is being written by"
        return file_lock(self.path / name, in_use, "Wait for it or stop it.", shared=shared, wait=wait)

    def _remove_blocks(self) -> None:
        kept = {"result.json", "plan.json"}
        for file in self.path.iterdir():
            if file.name not in kept and not file.name.endswith("lock"):
                file.unlink(missing_ok=True)

    def _refuse_difference(self, earlier: Plan, plan: Plan) -> None:
        # one process may finish what shards began
        ignore = _INFORMATION if plan["shards"] else {*_INFORMATION, "shards"}
        if changed := changed_settings(earlier, plan, ignore=ignore):
            lines = [f"{name}: was {before!r}, is {after!r}" for name, (before, after) in changed.items()]
            raise OutputError(
                f"{self.path} belongs to another run:\n  " + "\n  ".join(lines),
                "Repeat that run's input, model and settings to continue it, or choose another output.",
            )
