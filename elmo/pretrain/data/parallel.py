"""An ordered parallel map over worker processes, for the passes over a corpus.

Workers start with the "spawn" method, which is safe when the parent process has threads or uses a GPU. A script that
calls `map_in_order` therefore needs `if __name__ == "__main__":`. With one worker everything runs in the caller's
process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import TypeVar

from elmo.errors import ConfigError, ElmoError

Job = TypeVar("Job")
Result = TypeVar("Result")


def usable_cores() -> int:
    """The number of cores this process may use; a container or taskset can allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_order(
    function: Callable[[Job], Result], jobs: Iterable[Job], num_workers: int | None = None
) -> Iterator[Result]:
    """function(job) of every job, in the order of the jobs; at most about two jobs per worker are queued.

    A single job runs in the caller's process. `function` and the jobs are pickled, so `function` is a module-level
    function or a `functools.partial` of one. num_workers None: one worker per usable core.
    """
    if num_workers is not None and num_workers < 1:
        raise ConfigError(f"workers is {num_workers}; expected 1 or more.")
    max_workers = num_workers or usable_cores()
    remaining = iter(jobs)
    first_two = list(islice(remaining, 2))
    if max_workers == 1 or len(first_two) < 2:
        yield from map(function, chain(first_two, remaining))
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(max_workers, mp_context=context, initializer=_initialize_worker)
    futures: deque[Future[Result]] = deque()
    try:
        for job in chain(first_two, remaining):
            futures.append(pool.submit(function, job))
            if len(futures) > 2 * max_workers:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    except BrokenProcessPool as error:
        raise ElmoError(
            "A worker process ended unexpectedly: it was killed, ran out of memory, or could not start.",
            'Try fewer workers. A script must call this below `if __name__ == "__main__":`.',
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _initialize_worker() -> None:
    """Leaves Ctrl-C to the parent, and ends the worker with its parent, because an orphaned worker waits forever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
