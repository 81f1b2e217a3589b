"""Handles of the worker processes in the front process: start, one batch at a time, heartbeat, kill."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from elmo.errors import ElmoError
from elmo.serve.jobs import Failure, Job, LoadFailure, ModelInfo, Result
from elmo.serve.model_source import LoadEmbedder, run_worker

SILENT_S = 4.0  # without a heartbeat for this long, a worker is not healthy
_POLL_S = 0.25


class WorkerDied(Exception):
    """The worker process ended, or was killed because it hung, before it answered."""


class WorkerLoadError(ElmoError):
    """A worker could not load its model."""

    def __init__(self, failure: LoadFailure) -> None:
        super().__init__(failure.message, failure.hint)
        self.exit_code = failure.exit_code


class Worker:
    """One worker process. `run` blocks, and one thread at a time calls it; the other methods are for any thread."""

    def __init__(
        self, number: int, load_embedder: LoadEmbedder, *, num_threads: int, batch_timeout: float, stall_timeout: float
    ) -> None:
        self.number = number
        self.is_ready = False  # the model is loaded and the process is not known to be dead
        self._load_embedder, self._num_threads = load_embedder, num_threads
        self._batch_timeout, self._stall_timeout = batch_timeout, stall_timeout
        self._process: Any = None
        self._requests: Connection | None = None
        self._heartbeat: Connection | None = None
        self._last_beat = 0.0
        self._lock = threading.Lock()  # of the heartbeat's end of the pipe

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Starts the process; `wait_until_ready` waits for its model. The heartbeat begins when it runs."""
        context = multiprocessing.get_context("spawn")  # a forked copy would share torch's threads and our sockets
        requests, worker_requests = context.Pipe()
        heartbeat, worker_heartbeat = context.Pipe(duplex=False)
        process = context.Process(
            target=run_worker,
            args=(worker_requests, worker_heartbeat, self._load_embedder, self._num_threads),
            name=f"elmo-worker-{self.number}",
            daemon=True,
        )
        process.start()
        worker_requests.close()
        worker_heartbeat.close()
        self._process = process
        with self._lock:
            self._requests, self._heartbeat, self._last_beat = requests, heartbeat, time.monotonic()

    def wait_until_ready(self, timeout: float) -> ModelInfo:
        """Blocks until the model is loaded. Raises WorkerLoadError with the worker's own message, or WorkerDied."""
        answer = self._receive(timeout, stall_timeout=timeout)  # importing torch may hold the heartbeat back
        if isinstance(answer, LoadFailure):
            self.stop()
            raise WorkerLoadError(answer)
        assert isinstance(answer, ModelInfo)
        self.is_ready = True
        return answer

    def run(self, job: Job, sentences: Sequence[Sequence[str]]) -> list[Result | Failure]:
        """The results of a batch. A worker that takes too long or stops its heartbeat is killed: WorkerDied."""
        assert self._requests is not None
        try:
            self._requests.send((job, sentences))
        except OSError as error:
            self.is_ready = False
            raise WorkerDied(f"worker {self.number} is gone") from error
        answer: list[Result | Failure] = self._receive(self._batch_timeout, stall_timeout=self._stall_timeout)
        return answer

    def silent_seconds(self) -> float:
        """Seconds since the last heartbeat."""
        with self._lock:
            try:
                while self._heartbeat is not None and self._heartbeat.poll():
                    self._heartbeat.recv_bytes()
                    self._last_beat = time.monotonic()
            except (EOFError, OSError):
                pass
            return time.monotonic() - self._last_beat

    def is_healthy(self) -> bool:
        """Whether the process has its model, lives, and has shown its heartbeat a moment ago."""
        return self.is_ready and self._process.is_alive() and self.silent_seconds() < SILENT_S

    def must_be_replaced(self) -> bool:
        """Whether an idle worker has ended, or has been silent for too long."""
        return not self.is_ready or not self._process.is_alive() or self.silent_seconds() > self._stall_timeout

    def stop(self) -> None:
        """Ends the process: it leaves when the pipe closes, and is killed if it does not leave at once."""
        self.is_ready = False
        with self._lock:
            for connection in (self._requests, self._heartbeat):
                if connection is not None:
                    connection.close()
            self._heartbeat = None
        if self._process is not None:
            self._process.join(0.2)
            if self._process.is_alive():
                self._process.kill()
                self._process.join(5)

    def _receive(self, timeout: float, *, stall_timeout: float) -> Any:
        assert self._requests is not None
        begin = time.monotonic()
        while True:
            ready = wait([self._requests, self._process.sentinel], timeout=_POLL_S)
            if self._requests in ready:
                try:
                    return self._requests.recv()
                except (EOFError, OSError):
                    break
            if self._process.sentinel in ready:
                break
            if time.monotonic() - begin > timeout or self.silent_seconds() > stall_timeout:
                self._process.kill()
                self._process.join(5)
                break
        self.is_ready = False
        raise WorkerDied(f"worker {self.number} (process {self.pid}) ended before it answered")
