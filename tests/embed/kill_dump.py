"""Kills bulk embeddings at chosen or random moments, resumes each, and fails if one gives other bytes.

    python kill_dump.py OPTIONS WEIGHTS SOURCE FOLDER SUFFIX NUM_RANDOM

This is a separate process with one thread, so that it can fork: a child starts in milliseconds, while `import torch`
takes seconds. A child dies by SIGKILL, without a chance to clean up: just before the n-th call of one of CALLS, or
after a random time.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from forked import in_child

from elmo.embed.dump.job import dump
from elmo.embed.dump.options import DumpOptions
from elmo.embed.load import load

CALLS = ("replace", "unlink", "rmdir")  # of os: all steps that change files under their final names


def main() -> None:
    options_path, weights_path, source, folder, suffix, num_random = sys.argv[1:]
    torch.set_num_threads(1)
    embedder = load(options_path, weights_path, device="cpu", tokenizer="whitespace")
    settings = {"block_tokens": 200, "resume": True}

    def embed(name: str) -> Callable[[], object]:
        return lambda: dump(embedder, source, Path(folder, name + suffix), DumpOptions(**settings))

    start = time.monotonic()
    assert in_child(embed("complete")) == 0
    seconds = time.monotonic() - start
    expected = Path(folder, "complete" + suffix).read_bytes()
    points = 0
    for call in CALLS:
        for count in range(1, 1000):
            name = f"{call}-{count}"
            if not dies(name, lambda name=name, a=(call, count): kill_self_at(*a, embed(name))):  # type: ignore[call-arg]
                break
            points += 1
            check(folder, name + suffix, expected, embed(name))
    generator = random.Random(1)
    for number in range(int(num_random)):
        name = f"random-{number}"
        if dies(name, embed(name), after=generator.uniform(0, seconds)):
            points += 1
            check(folder, name + suffix, expected, embed(name))
    print("killed at", points, "points")


def kill_self_at(call: str, count: int, work: Callable[[], object]) -> None:
    """Runs the work and kills this process just before the count-th call of os.<call>."""
    original = getattr(os, call)
    seen = 0

    def counted(*args: object, **options: object) -> object:
        nonlocal seen
        seen += 1
        if seen == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **options)

    setattr(os, call, counted)
    work()


def dies(name: str, work: Callable[[], object], after: float | None = None) -> bool:
    status = in_child(work, after)
    assert status in (0, -signal.SIGKILL), (name, status)
    return status != 0


def check(folder: str, name: str, expected: bytes, work: Callable[[], object]) -> None:
    """Resumes and compares; a run that was killed after its last step cannot be resumed, which is an error."""
    finished = Path(folder, name).exists() and not Path(folder, name + ".parts", "plan.json").exists()
    assert in_child(work) == (1 if finished else 0), name
    assert Path(folder, name).read_bytes() == expected, f"{name} differs"
    left = [path.name for path in Path(folder).iterdir() if name in path.name]
    assert finished or left == [name], left
    Path(folder, name).unlink()


if __name__ == "__main__":
    main()
