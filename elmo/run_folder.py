"""The folder of a training run: one process at a time writes there, in pretraining and in task runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from elmo.errors import OutputError
from elmo.files import explain_write, file_lock

LOCK = ".lock"


@contextmanager
def lock_run_folder(folder: Path, *, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Makes the folder and locks it until the end of the block or of the process.

    If another process holds the lock, this is an OutputError that names it; with `wait`, which prints a line, this
    waits for it.
    """
    with explain_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
    in_use, hint = f"{folder} is in use by", "Wait for it, stop it, or choose another --out."
    with ExitStack() as held:
        try:
            held.enter_context(file_lock(folder / LOCK, in_use, hint))
        except OutputError as error:
            if wait is None:
                raise
            wait(f"{error.message} Waiting for it.")
            held.enter_context(file_lock(folder / LOCK, in_use, hint, wait=True))
        yield
