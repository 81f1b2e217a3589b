"""Work spread over processes, results in the order of the jobs: for the passes over a corpus.

Workers are started fresh ("spawn"), so that a parent with threads or a GPU is safe. As with every such program, a
script that calls this needs its `if __name__ == "__main__":`; with one worker everything runs in the caller's process.
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
    """How many workers can run at once here; a container or taskset may leave fewer cores than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_order(
    work: Callable[[Job], Result], jobs: Iterable[Job], num_workers: int | None = None
) -> Iterator[Result]:
    """work(job) for every job, in order, with at most two jobs a worker waiting; a single job stays in this process.

    `work` and its jobs travel by pickle: a module's function, or a partial of one.
    """
    if num_workers is not None and num_workers < 1:
        raise ConfigError(f"workers is {num_workers}; expected 1 or more.")
    workers = num_workers or usable_cores()
    waiting = iter(jobs)
    first = list(islice(waiting, 2))
    if workers == 1 or len(first) < 2:
        yield from map(work, chain(first, waiting))
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_belong_to_parent)
    running: deque[Future[Result]] = deque()
    try:
        for job in chain(first, waiting):
            running.append(pool.submit(work, job))
            if len(running) > 2 * workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    except BrokenProcessPool as error:
        raise ElmoError(
            "A worker process ended without a word: killed from outside, out of memory, or never started.",
            'Try fewer workers. A script must do its work below `if __name__ == "__main__":`.',
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _belong_to_parent() -> None:
    """Ctrl-C is the parent's to answer; and where it was killed, a worker would wait for work for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
