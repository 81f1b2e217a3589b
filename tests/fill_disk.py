"""Runs every writer on disks that are too small, and prints one JSON line per attempt.

    unshare --mount python fill_disk.py FOLDER

It runs in a mount namespace of its own: each attempt gets an empty tmpfs of the given size at FOLDER/disk, and a child
process, because a writer that maps memory can die by SIGBUS.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import numpy as np
import torch
from tiny_run import settings, write_text

from elmo.cli.main import main as elmo
from elmo.embed.disk_cache import cached_array
from elmo.embed.dump.job import dump
from elmo.embed.dump.options import DumpOptions
from elmo.embed.load import load
from elmo.errors import ElmoError
from elmo.pretrain.data.prepare import prepare
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.job import pretrain
from elmo.tasks.record import command_of
from elmo.tasks.task import load_task
from elmo.weights.convert import convert_model

SIZES = (16, 64, 256, 1024, 5000)  # KB
FORMATS = (".jsonl", ".npz", ".hdf5", ".safetensors", ".parquet")


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    disk = folder / "disk"
    disk.mkdir()
    for name, write in writers(folder).items():
        for size in SIZES:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", disk], check=True)
            status, message = in_child(lambda write=write: write(disk))
            left = sorted(path.relative_to(disk).as_posix() for path in disk.rglob("*"))
            subprocess.run(["umount", disk], check=True)
            print(json.dumps({"writer": name, "size": size, "status": status, "message": message, "left": left}))
            if status == 0:
                break  # it fits, so it fits on larger disks


def writers(folder: Path) -> dict[str, Callable[[Path], object]]:
    text = write_text(folder / "text.txt", num_sentences=400)
    words = folder / "words.txt"
    words.write_text("\n".join(f"word{i} word{i + 1}" for i in range(6000)) + "\n")
    embedder = load("tiny-random", device="cpu", tokenizer="whitespace")

    def embed(suffix: str) -> Callable[[Path], object]:
        options = DumpOptions(block_tokens=500, force=True)  # force: no check of the free space in advance
        return lambda disk: dump(embedder, text, disk / f"out{suffix}", options)

    def fill(array: np.ndarray) -> None:
        array[:] = 1.0

    sys.path.insert(0, str(Path(__file__).parent / "tasks"))
    import tiny_tasks

    frozen = {"elmo": {"mode": "frozen"}, "train": {"epochs": 1}}
    command = shlex.split(command_of(load_task("ner"), tiny_tasks.overfit_settings(folder, "ner", frozen)))[1:]

    def train_task(disk: Path) -> None:
        """`elmo task train --cache disk`, with its run on another disk."""
        cache = ["--cache", "disk", "--set", f"elmo.cache_dir={disk / 'cache'}"]
        run_command([*command, *cache, "--out", str(folder / f"run-{os.getpid()}")])

    return {
        "task cache": train_task,
        "prepare": lambda disk: prepare(PrepareConfig(files=(str(words),)), disk / "out", num_workers=1),
        "pretrain": lambda disk: pretrain(settings(text), disk / "out", num_workers=1),
        "convert to elmo": lambda disk: convert_model("tiny-random", disk / "out", target="elmo"),
        "convert to hdf5": lambda disk: convert_model("tiny-random", disk / "out", target="hdf5"),
        "cache": lambda disk: cached_array(disk / "cache" / "out.npy", (1000, 3, 64), fill),
        **{f"embed {suffix}": embed(suffix) for suffix in FORMATS},
    }


class CommandError(ElmoError):
    """A command ended with exit code 1; the message is what it printed."""


def run_command(words: list[str]) -> None:
    """Runs a command in this process; an exit code other than 0 is a CommandError, and other than 1 a RuntimeError."""
    printed = StringIO()
    try:
        with redirect_stderr(printed):
            elmo(words)
    except SystemExit as end:
        if end.code:
            raise (CommandError if end.code == 1 else RuntimeError)(printed.getvalue()) from end


def in_child(work: Callable[[], object]) -> tuple[int, str]:
    """The exit status of a child process (negative: its signal) and the message of its error."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code, message = 2, ""
        try:
            work()
            code = 0
        except ElmoError as error:
            code, message = 1, str(error)
        except BaseException as error:
            message = f"{type(error).__name__}: {error}"
        finally:
            os.write(writer, message.encode())
            os._exit(code)
    os.close(writer)
    with open(reader, "rb") as file:
        message = file.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), message


if __name__ == "__main__":
    main()
