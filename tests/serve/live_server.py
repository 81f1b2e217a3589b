"""A real server for tests: HTTP in a thread of this process, the model in real worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elmo.serve.server import Server, bind, running_workers
from elmo.serve.settings import ServeSettings

PATIENCE_S = 900  # no assertion depends on it: only how long a hanging test waits on a busy machine


@dataclass(frozen=True)
class Answer:
    """A response as a client sees it."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return self.json()["error"]


@dataclass(frozen=True)
class LiveServer:
    """A running server."""

    port: int
    server: Server

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, None, headers)

    def post(self, path: str, value: Any, **headers: str) -> Answer:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        names = {name.replace("_", "-"): text for name, text in headers.items()}
        return self.request("POST", path, body, {"content-type": "application/json"} | names)

    def raw(self, data: bytes) -> bytes:
        """Sends bytes and reads until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
            connection.sendall(data)
            return read_all(connection)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = self.get("/metrics").body.decode().splitlines()
        prefix = name if "{" in name else (name + " ", name + "{")
        values = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(prefix)]
        return sum(map(float, values))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Returns when a condition holds."""
        for _ in range(PATIENCE_S * 50):
            if condition():
                return
            time.sleep(0.02)
        raise AssertionError("the condition did not become true")


def read_all(connection: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def live_server(load: Callable[[], Any], **settings: Any) -> Iterator[LiveServer]:
    """A server of the embedder that `load`, a picklable function, returns; without settings it is very patient."""
    patient = dict.fromkeys(("timeout", "read_timeout", "write_timeout", "batch_timeout", "stall_timeout"), 900.0)
    options = ServeSettings(**{"port": 0, "threads": 1, **patient, **settings})
    listener = bind(options.host, options.port)
    with contextlib.closing(listener), running_workers(options, load) as (workers, info):
        server = Server(options, workers, info)
        started = threading.Event()
        port = listener.getsockname()[1]
        thread = threading.Thread(
            target=lambda: asyncio.run(server.run(listener, lambda _: started.set())), name="live-server"
        )
        thread.start()
        try:
            assert started.wait(PATIENCE_S), "the server did not start"
            yield LiveServer(port, server)
        finally:
            server.stop()
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "the server did not stop"
