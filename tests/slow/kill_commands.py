"""Kills `elmo prepare` or `elmo task train` at random moments, gives the same command again, and compares the results.

    python kill_commands.py COMMAND FOLDER COUNT       COMMAND: prepare, task

The exit code is 0 if every repeated command gave the files of an uninterrupted one, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import random
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo  # the first optimizer imports it, which would take seconds in every child
from forked import in_child, num_killed

sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))
import tiny_tasks

from elmo.cli.main import main as elmo
from elmo.tasks.record import command_of
from elmo.tasks.task import load_task


def prepare_command(folder: Path) -> list[str]:
    """Text of a few thousand different words, so that two workers are busy for a while."""
    text = folder / "text.txt"
    text.write_text("".join(f"word{i % 7919} and word{i % 6007} met .\n" for i in range(60_000)), encoding="utf-8")
    return ["prepare", str(text), "--workers", "2"]


def task_command(folder: Path) -> list[str]:
    train = {"epochs": 8, "patience": 99, "validate_every": 3}
    config = tiny_tasks.overfit_settings(folder, "ner", {"elmo": {"mode": "frozen"}, "train": train})
    return shlex.split(command_of(load_task("ner"), config))[1:]


COMMANDS = {"prepare": prepare_command, "task": task_command}


def main() -> None:
    name, folder, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    command = COMMANDS[name](folder)

    def run(out: Path) -> Callable[[], object]:
        return lambda: elmo([*command, "--out", str(out)])

    start = time.monotonic()
    assert in_child(run(folder / "uninterrupted" / "out")) == 0
    seconds = time.monotonic() - start
    expected = contents(folder / "uninterrupted" / "out")
    generator = random.Random(count)
    for number in range(count):
        parent = folder / f"killed-{number}"
        parent.mkdir()
        for _ in range(generator.choice((1, 1, 2))):  # some are killed twice
            in_child(run(parent / "out"), after=generator.uniform(0, seconds))
        assert in_child(run(parent / "out")) == 0, parent
        found = contents(parent / "out")
        different = [name for name in sorted(expected | found) if expected.get(name) != found.get(name)]
        assert not different, (parent, different)
        assert [path.name for path in parent.iterdir()] == ["out"], sorted(parent.iterdir())
        shutil.rmtree(parent)
    print("killed", num_killed(), "processes")


def contents(folder: Path) -> dict[str, str]:
    """The checksum of every file, without the times that a record holds."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(without_times(path)).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"  # it names the last process
    }


def without_times(path: Path) -> bytes:
    if path.name != "record.json":
        return path.read_bytes()
    record = json.loads(path.read_text(encoding="utf-8"))
    record.pop("seconds")
    for validation in record["curve"]:
        validation.pop("seconds")
    return json.dumps(record).encode()


if __name__ == "__main__":
    main()
