"""The life of the server: bind the port, load the model in the workers, serve, and stop without losing requests."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import uvicorn

from elmo.errors import ConfigError, ElmoError
from elmo.serve.app import make_app
from elmo.serve.bank import SHIPPED, SentenceBank, read_bank
from elmo.serve.batcher import Batcher
from elmo.serve.jobs import ModelInfo
from elmo.serve.metrics import Metrics
from elmo.serve.model_source import LoadEmbedder
from elmo.serve.protocol import timed_protocol
from elmo.serve.request_queue import RequestQueue
from elmo.serve.service import Service
from elmo.serve.settings import MAX_HEADER_BYTES, ServeSettings
from elmo.serve.workers import Worker, WorkerDied
from elmo.text.tokenize import tokenizer
from elmo.text.tokenizer_function import make_tokenizer


@dataclass(frozen=True)
class Started:
    """A server that listens."""

    url: str
    info: ModelInfo
    worker_pids: tuple[int | None, ...]


def serve(
    settings: ServeSettings, load_embedder: LoadEmbedder, *, on_start: Callable[[Started], None] | None = None
) -> int:
    """Runs the server until a signal and returns the exit code: 0 after SIGTERM, 130 after Ctrl-C.

    A port that is taken, a model that cannot be loaded or a bank that cannot be read is an ElmoError before anything
    listens. `on_start` is called when the server listens.
    """
    listener = bind(settings.host, settings.port)
    with contextlib.closing(listener):
        if settings.bank is not None:
            read_bank(settings.bank, tokenizer("whitespace"))  # a bad file is reported before the model is loaded
        with running_workers(settings, load_embedder) as (workers, info):
            return asyncio.run(Server(settings, workers, info).run(listener, on_start))


def bind(host: str, port: int) -> socket.socket:
    """A socket that holds the address. It does not listen yet: connections are refused until the model is loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(f"--host {host} is not an address of this machine.", "Use for example 127.0.0.1.") from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _bind_error(error, host, port) from error
    return listener


@contextlib.contextmanager
def running_workers(settings: ServeSettings, load_embedder: LoadEmbedder) -> Iterator[tuple[list[Worker], ModelInfo]]:
    """Worker processes with their model; ended at the exit of the block."""
    workers = [
        Worker(
            number,
            load_embedder,
            num_threads=settings.threads_per_worker(),
            batch_timeout=settings.batch_timeout,
            stall_timeout=settings.stall_timeout,
        )
        for number in range(settings.workers)
    ]
    try:
        for worker in workers:
            worker.start()
        with ThreadPoolExecutor(len(workers)) as threads:
            infos = list(threads.map(lambda worker: worker.wait_until_ready(settings.start_timeout), workers))
        yield workers, infos[0]
    except WorkerDied as error:
        raise ElmoError(f"The server cannot start: {error}.", "The memory may be too small for the model.") from error
    finally:
        for worker in workers:
            worker.stop()


class Server:
    """The front process while it serves. Tests run it in a thread; `serve` in the main thread, with signals."""

    def __init__(self, settings: ServeSettings, workers: list[Worker], info: ModelInfo) -> None:
        queue = RequestQueue(
            max_requests=settings.queue_requests,
            max_tokens=settings.queue_tokens,
            batch_tokens=settings.batch_tokens,
            batch_texts=settings.batch_texts,
        )
        batcher = Batcher(queue, workers, info, Metrics(), start_timeout=settings.start_timeout)
        self.service = Service(settings, batcher, _bank(settings, info))
        self._signal: int | None = None
        self._http = _HttpServer(_http_config(self.service))

    async def run(self, listener: socket.socket, on_start: Callable[[Started], None] | None = None) -> int:
        """Serves on a bound socket until `stop` or a signal."""
        loop = asyncio.get_running_loop()
        batcher = self.service.batcher
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # Windows; another thread
                loop.add_signal_handler(number, self._on_signal, number)
        batcher.start()
        started = Started(_url(listener), batcher.info, tuple(worker.pid for worker in batcher.workers))
        announcement = asyncio.create_task(self._announce(started, on_start))
        try:
            with _quiet("uvicorn.error", logging.CRITICAL), _quiet("elmo.text.surrogates", logging.ERROR):
                await self._http.serve(sockets=[listener])
        except OSError as error:  # of `listen`: another server bound the address at the same time
            raise _bind_error(error, *listener.getsockname()[:2]) from error
        finally:
            announcement.cancel()
            await batcher.stop()
        return 130 if self._signal == signal.SIGINT else 0

    def stop(self) -> None:
        """Begins the graceful shutdown: running requests are answered, new connections are refused."""
        self.service.is_draining = True
        self._http.should_exit = True

    async def _announce(self, started: Started, on_start: Callable[[Started], None] | None) -> None:
        while not self._http.started:
            await asyncio.sleep(0.01)
        if on_start is not None:
            on_start(started)

    def _on_signal(self, number: int) -> None:
        if self._signal is not None:  # a second signal: at once
            for worker in self.service.batcher.workers:
                worker.stop()
            os._exit(128 + number)
        self._signal = number
        self.stop()


class _HttpServer(uvicorn.Server):
    """Uvicorn without its signal handlers, which would raise the signal again after a graceful shutdown."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _http_config(service: Service) -> uvicorn.Config:
    settings = service.settings
    return uvicorn.Config(
        make_app(service),
        http=timed_protocol(settings.read_timeout, settings.write_timeout),
        ws="none",
        lifespan="off",
        loop="asyncio",
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=max(1, round(settings.keep_alive)),
        timeout_graceful_shutdown=max(1, round(settings.grace)),
        backlog=2048,
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
    )


def _bank(settings: ServeSettings, info: ModelInfo) -> SentenceBank | None:
    if settings.bank is not None:
        return SentenceBank(read_bank(settings.bank, make_tokenizer(info.tokenizer)))
    if not SHIPPED.exists():
        return None
    return SentenceBank(read_bank(SHIPPED, tokenizer("whitespace")))  # its sentences are tokenised


@contextlib.contextmanager
def _quiet(logger: str, level: int) -> Iterator[None]:
    """Raises a logger's level: uvicorn warns about single connections, and clients see U+FFFD in their tokens."""
    before = logging.getLogger(logger).level
    logging.getLogger(logger).setLevel(level)
    try:
        yield
    finally:
        logging.getLogger(logger).setLevel(before)


def _bind_error(error: OSError, host: str, port: int) -> ElmoError:
    if error.errno == errno.EADDRINUSE:
        return ElmoError(f"Port {port} of {host} is in use by another process.", "--port 0 takes any free port.")
    if error.errno == errno.EACCES:
        hint = "Ports below 1024 need permission; use --port 8000 behind a reverse proxy."
        return ElmoError(f"Port {port} of {host} may not be used by this user.", hint)
    return ElmoError(f"Cannot listen on port {port} of {host} ({error.strerror}).", "Use --host 127.0.0.1.")


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
