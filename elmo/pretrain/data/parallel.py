"""An ordered parallel map over worker processes, for the passes over a corpus.

With one worker everything runs in the caller's process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from elmo.errors import ConfigError
from elmo.worker_pool import Job, Result, WorkerPool, usable_cores


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
    pool = WorkerPool(max_workers)
    try:
        yield from pool.map_in_order(function, chain(first_two, remaining))
    finally:
        pool.close()
