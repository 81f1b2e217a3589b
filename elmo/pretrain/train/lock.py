"""One trainer a run folder: an operating-system lock, so that a dead process never holds it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elmo.errors import OutputError
from elmo.files import explain_write
from elmo.pretrain.train import distributed

if os.name == "posix":
    import fcntl


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder (made if need be) until the end; a second holder is told who has it."""
    if distributed.rank() != 0:  # the first process holds it for all
        yield
        return
    with explain_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / ".lock", "a+", encoding="utf-8")  # noqa: SIM115 (held until the run ends)
    with file:
        if os.name == "posix":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise OutputError(
                    f"{folder} is in use by {holder}.", "Wait for it, stop it, or choose another --out."
                ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
