"""The processes that benchmarks/serve.py measures: `elmo serve`, nginx before several of them, a server of MiniLM."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
Served = tuple[int, list[int]]  # port, process ids: of the front process and of its workers


@contextlib.contextmanager
def elmo_server(model: str, *options: str, threads: int) -> Iterator[Served]:
    """`elmo serve` with some threads per worker; 0: its default."""
    command = [sys.executable, "-m", "elmo", "serve", "--model", model, "--device", "cpu", "--port", "0", "--json"]
    command += [*(("--threads", str(threads)) if threads else ()), *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        try:
            yield int(facts["url"].rsplit(":", 1)[1]), [facts["pid"], *facts["worker_pids"]]
        finally:
            process.terminate()


@contextlib.contextmanager
def minilm_server(threads: int) -> Iterator[Served]:
    """The plain server of benchmarks/serve_minilm.py."""
    port = free_port()
    script = [sys.executable, str(ROOT / "benchmarks" / "serve_minilm.py"), "--port", str(port)]
    with subprocess.Popen([*script, "--threads", str(threads)]) as process:
        try:
            wait_until_answered(port, "/openapi.json")
            yield port, [process.pid]
        finally:
            process.terminate()


@contextlib.contextmanager
def nginx_balancer(ports: Sequence[int]) -> Iterator[int]:
    """nginx with deploy/nginx.conf before servers on these ports; yields its own port."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        lines = (ROOT / "deploy" / "nginx.conf").read_text().replace("/tmp/elmo-nginx", folder).splitlines()
        servers = [line for line in lines if line.strip().startswith("server 127.0.0.1:")]
        upstream = [servers[0].replace("127.0.0.1:8001", f"127.0.0.1:{one}") for one in ports]
        first = lines.index(servers[0])
        lines[first : first + len(servers)] = upstream
        path = Path(folder) / "nginx.conf"
        path.write_text("\n".join(lines).replace("listen 127.0.0.1:8000", f"listen 127.0.0.1:{port}"))
        settings = "daemon off;" + (" user root;" if os.geteuid() == 0 else "")  # another user cannot write there
        with subprocess.Popen(["nginx", "-c", str(path), "-e", f"{folder}/log", "-g", settings]) as process:
            try:
                wait_until_answered(port, "/healthz")
                yield port
            finally:
                process.terminate()


@contextlib.contextmanager
def health_latencies(port: int) -> Iterator[list[float]]:
    """The seconds of the answers of /healthz, which is asked twenty times per second in the block; infinity: no 200."""
    latencies: list[float] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(0.05):
            begin = time.monotonic()
            is_healthy = is_answered(port, "/healthz")
            latencies.append(time.monotonic() - begin if is_healthy else float("inf"))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield latencies
    finally:
        stop.set()
        thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def wait_until_answered(port: int, path: str) -> None:
    while not is_answered(port, path):
        time.sleep(0.2)


def is_answered(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.request("GET", path)
        return connection.getresponse().status == 200
    return False
