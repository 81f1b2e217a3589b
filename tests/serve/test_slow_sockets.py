"""Clients that send or read slowly are disconnected, and others are served meanwhile."""

from __future__ import annotations

import json
import socket

import pytest
from live_server import PATIENCE_S, live_server, read_all
from served_models import load_tiny


@pytest.fixture(scope="module")
def hasty_server():
    with live_server(load_tiny, read_timeout=2.0, write_timeout=1.0, max_tokens=8192, keep_alive=1.0) as server:
        yield server


def connect(server, data):
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)
    connection.sendall(data)
    return connection


def test_slow_headers_and_bodies_are_closed_while_others_are_served(hasty_server):
    before = hasty_server.metric("process_open_fds")
    headers = [connect(hasty_server, b"GET /healthz HTTP/1.1\r\nHost: loc") for _ in range(300)]
    head = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    bodies = [connect(hasty_server, head + b'{"texts"') for _ in range(100)]
    assert hasty_server.metric("process_open_fds") >= before + 300  # all are open
    assert hasty_server.post("/embed", {"texts": ["served meanwhile"]}).status == 200
    for connection in headers:
        assert read_all(connection) == b""  # closed
        connection.close()
    for connection in bodies:
        assert read_all(connection).startswith(b"HTTP/1.1 408")
        connection.close()
    hasty_server.wait_for(lambda: hasty_server.metric("process_open_fds") <= before + 2)


def test_connection_that_sends_nothing_is_closed(hasty_server):
    with connect(hasty_server, b"") as connection:
        assert read_all(connection) == b""


def test_second_request_with_slow_headers_is_closed_too(hasty_server):
    first = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(hasty_server, first + b"GET /healthz HTTP/1.1\r\nHo") as connection:
        assert read_all(connection).count(b"HTTP/1.1") == 1


def test_client_that_does_not_read_its_answer_is_disconnected(hasty_server):
    body = json.dumps({"texts": [["word"] * 4000], "layers": "all"}).encode()  # its answer has 30 MB
    head = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    before = hasty_server.metric("process_open_fds")
    with connect(hasty_server, head + b"Content-Length: %d\r\n\r\n" % len(body) + body):
        hasty_server.wait_for(lambda: hasty_server.metric("elmo_texts_total") >= 1)
        hasty_server.wait_for(lambda: hasty_server.metric("process_open_fds") <= before + 1)  # this client's end
    assert hasty_server.post("/embed", {"texts": ["fine"]}).status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET\r\n\r\n", b"POST /embed HTTP/1.1\r\n\r\n",
        b"\r\n" * 50_000,
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
    ids=lambda data: repr(data[:30]),
)  # fmt: skip
def test_bytes_that_are_not_http_do_no_harm(hasty_server, data):
    answer = hasty_server.raw(data)
    assert answer == b"" or answer.split(b" ")[1][:1] in (b"2", b"4"), answer
    assert hasty_server.get("/healthz").status == 200
