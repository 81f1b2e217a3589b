"""A pool of worker processes that compute jobs in order, for passes over a corpus and for encoding on several devices.

Workers start with the "spawn" method, which is safe when the parent process has threads or uses a GPU. Unlike other
spawned processes, they do not run the script of their parent again unless it defines a class that they need: a script
without `if __name__ == "__main__":` may use a pool.
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
from multiprocessing import spawn
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from elmo.errors import ConfigError, ElmoError

Job = TypeVar("Job")
Result = TypeVar("Result")


def usable_cores() -> int:
    """The number of cores this process may use; a container or taskset can allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPool:
    """Processes that live until `close`, or until the parent process ends. They ignore Ctrl-C: the parent decides."""

    def __init__(
        self,
        num_workers: int,
        prepare: Callable[..., None] | None = None,
        arguments: tuple[Any, ...] = (),
        *,
        needs_script: bool = False,
    ) -> None:
        """Each worker calls `prepare` with the arguments once, before its first job.

        With `needs_script`, workers first run the parent's script, as a module that is not `__main__`.
        """
        if num_workers < 1:
            raise ConfigError(f"workers is {num_workers}; expected 1 or more.")
        self.num_workers = num_workers
        self.is_closed = False
        self._needs_script = needs_script
        context = multiprocessing.get_context("spawn") if needs_script else spawn_context()
        self._processes = ProcessPoolExecutor(
            num_workers, mp_context=context, initializer=_initialize_worker, initargs=(prepare, arguments)
        )

    def map_in_order(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """function(job) of every job, in the order of the jobs; at most about two jobs per worker are queued.

        `function` and the jobs are pickled, so `function` is a module-level function or a `functools.partial` of one.
        """
        futures: deque[Future[Result]] = deque()
        try:
            for job in jobs:
                futures.append(self._processes.submit(function, job))
                if len(futures) > 2 * self.num_workers:
                    yield futures.popleft().result()
            while futures:
                yield futures.popleft().result()
        except BrokenProcessPool as error:
            script = ' Your script needs `if __name__ == "__main__":`, because workers run it again for its classes.'
            raise ElmoError(
                "A worker process ended unexpectedly: it was killed, ran out of memory, or could not start.",
                "Try fewer workers." + (script if self._needs_script else ""),
            ) from error
        finally:
            for future in futures:  # of a caller that stopped early
                future.cancel()

    def close(self) -> None:
        """Ends the workers after the jobs that they are computing."""
        self.is_closed = True
        self._processes.shutdown(wait=True, cancel_futures=True)


def spawn_context() -> SpawnContext:
    """The context in which workers, and the queues that they share, are made."""
    return _WorkerContext()


_start_lock = threading.Lock()


class _Worker(SpawnProcess):
    """A spawned process that does not run its parent's script."""

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:  # what `start` calls; multiprocessing has no public way
        def without_script(name: str) -> dict[str, Any]:
            data = preparation_data(name)  # what the process learns about its parent
            is_script = "init_main_from_path", "init_main_from_name"
            # another thread may start a process of its own at the same time
            return {key: value for key, value in data.items() if name != process_obj.name or key not in is_script}

        with _start_lock:
            preparation_data = spawn.get_preparation_data
            spawn.get_preparation_data = without_script
            try:
                return SpawnProcess._Popen(process_obj)
            finally:
                spawn.get_preparation_data = preparation_data


class _WorkerContext(SpawnContext):
    Process = _Worker


def _initialize_worker(prepare: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    """Leaves Ctrl-C to the parent, and ends the worker with its parent, because an orphaned worker waits forever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if prepare is not None:
        prepare(*arguments)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
