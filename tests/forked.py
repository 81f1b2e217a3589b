"""Work in forked child processes that can be killed: a fork starts in milliseconds, while `import torch` takes seconds.

Import this only in a process with one thread, because a fork copies no other thread.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

statuses: list[int] = []  # exit statuses of all children; a negative one is the number of the signal


def num_killed() -> int:
    return statuses.count(-signal.SIGKILL)


def in_child(
    work: Callable[[], object],
    after: float | None = None,
    *,
    ready: Path | None = None,
    until: Callable[[], object] | None = None,
    send: signal.Signals = signal.SIGKILL,
    wake: float | None = None,
) -> int:
    """The exit code of `work` in a forked process, which gets the signal `send` after some time or at an event.

    The event: the file `ready` exists, or `until` has returned. The process leads a group, and this returns when the
    workers that it started have ended, too. `wake` is the number of seconds after which a suspended process is
    continued.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            work()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    if ready is not None:
        while not ready.exists() and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            time.sleep(0.02)
        after = 0.3
    if until is not None:
        until()
        after = 0.0
    if after is not None:
        time.sleep(after)
        os.kill(pid, send)
    if wake is not None:
        time.sleep(wake)
        os.kill(pid, signal.SIGCONT)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    _wait_for_workers(pid)
    return statuses[-1]


def _wait_for_workers(group: int) -> None:
    """Waits until the processes that the child started have ended: they must end by themselves if it was killed."""
    for _ in range(50 * 900):
        if not _exists(group):
            return
        time.sleep(0.02)
    raise AssertionError(f"processes of group {group} outlive their parent")


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
