"""Calls one function many times, and prints memory, descriptors and threads of this process as JSON lines.

python soak.py WORK COUNT FOLDER       WORK: a key of WORKS
"""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import torch

from elmo.cli.main import main as elmo
from elmo.embed.load import load
from elmo.errors import ElmoError

NUM_SAMPLES = 12


def main() -> None:
    name, count, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(2)
    call = WORKS[name](folder)
    for number in range(count):
        call(number)
        if (number + 1) % max(1, count // NUM_SAMPLES) == 0:
            print(json.dumps({"calls": number + 1, **measure()}), flush=True)


def measure() -> dict[str, int]:
    gc.collect()
    return {
        "bytes": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }


def embed_words(folder: Path) -> Callable[[int], object]:
    """Sentences of all lengths, the same ones again after 200 calls; every tenth call is an error."""
    embedder = load("tiny-random", device="cpu")

    def call(number: int) -> None:
        generator = random.Random(number % 200)
        words = [f"word{generator.randrange(3000)}" for _ in range(generator.randint(0, 120))]
        embedder.embed([words, words[:3], []])
        if number % 10 == 0:
            with suppress(TypeError, ElmoError):
                embedder.embed([["one", 2]])  # type: ignore[list-item]

    return call


def embed_in_threads(folder: Path) -> Callable[[int], object]:
    """Threads that come and go, and embed with one model."""
    embedder = load("tiny-random", device="cpu")

    def call(number: int) -> None:
        threads = [threading.Thread(target=embedder.embed, args=(f"The cat {k} sat .",)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return call


def load_again(folder: Path) -> Callable[[int], object]:
    """A model that is loaded, used once and dropped; every second time its file does not exist."""

    def call(number: int) -> None:
        load("tiny-random", device="cpu").embed("The cat sat .")
        with suppress(ElmoError):
            load(folder / "missing", device="cpu")

    return call


def run_commands(folder: Path) -> Callable[[int], object]:
    """Commands in this process, also one that fails."""
    (folder / "in.txt").write_text("A cat sat .\nIt slept .\n", encoding="utf-8")
    model = ["--model", "tiny-random", "--device", "cpu"]
    embed = ["embed", str(folder / "in.txt"), str(folder / "out.npz"), "--overwrite", *model]
    commands = [embed, ["info", "tiny-random"], ["info", str(folder / "missing")]]

    def call(number: int) -> None:
        for command in commands:
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()), suppress(SystemExit):
                elmo(command)

    return call


WORKS: dict[str, Callable[[Path], Callable[[int], object]]] = {
    "embed": embed_words,
    "threads": embed_in_threads,
    "load": load_again,
    "commands": run_commands,
}


if __name__ == "__main__":
    main()
