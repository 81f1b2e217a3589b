"""Faults in the workers: poison, crash, stall, overload, deadlines, clients that leave. Nobody else is affected."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from live_server import PATIENCE_S, live_server
from served_models import load_faulty, load_tiny


@pytest.fixture(scope="module")
def faulty_server():
    with live_server(load_faulty, batch_texts=64) as server:
        yield server


def texts_are_in_flight(server, latch, count=1):
    """Starts a request that occupies the worker until the latch file exists."""
    pool = ThreadPoolExecutor(count)
    future = pool.submit(server.post, "/embed", {"texts": [[f"LATCH:{latch}"]]})
    server.wait_for(lambda: server.metric("elmo_queue_tokens") >= 1 and server.metric("elmo_queue_requests") == 0)
    return future


def test_poison_fails_alone_in_its_batch(faulty_server, tmp_path):
    latch = tmp_path / "go"
    running = texts_are_in_flight(faulty_server, latch)
    batches = faulty_server.metric("elmo_batches_total")
    with ThreadPoolExecutor(32) as pool:  # 32 requests wait and share a batch
        words = ["POISON" if n == 17 else f"word{n}" for n in range(32)]
        futures = [pool.submit(faulty_server.post, "/embed", {"texts": [[word]]}) for word in words]
        faulty_server.wait_for(lambda: faulty_server.metric("elmo_queue_requests") == 32)
        latch.touch()
        answers = [future.result() for future in futures]
    assert running.result().status == 200
    assert faulty_server.metric("elmo_batches_total") == batches + 2
    statuses = [answer.status for answer in answers]
    assert statuses == [500 if n == 17 else 200 for n in range(32)]
    error = answers[17].json()["items"][0]["error"]
    assert (error["code"], error["id"]) == ("model_error", answers[17].headers["x-request-id"])
    assert b"secret" not in answers[17].body
    offline = load_tiny()
    for word, answer in zip(words, answers, strict=True):
        if word != "POISON":
            (item,) = answer.json()["items"]
            np.testing.assert_allclose(item["layers"]["average"], offline.embed([[word]])[0], atol=1e-5)


def test_poison_fails_alone_in_its_request(faulty_server):
    answer = faulty_server.post("/embed", {"texts": ["a", "POISON", "NAN", "b"]})
    assert answer.status == 200
    assert ["error" in item for item in answer.json()["items"]] == [False, True, True, False]
    assert answer.json()["items"][2]["error"]["code"] == "not_finite"
    refused = faulty_server.post("/embed", {"texts": ["a", "POISON"]}, accept="application/x-npy")
    assert (refused.status, refused.error["field"]) == (500, "texts[1]")


def test_text_that_kills_the_worker_fails_alone_and_the_worker_is_replaced(faulty_server):
    restarts = faulty_server.metric("elmo_worker_restarts_total")
    answer = faulty_server.post("/embed", {"texts": ["a", "CRASH", "b"]})
    assert answer.status == 200
    assert ["error" in item for item in answer.json()["items"]] == [False, True, False]
    assert answer.json()["items"][1]["error"]["code"] == "worker_died"
    assert faulty_server.metric("elmo_worker_restarts_total") >= restarts + 2  # with its neighbours, and alone
    faulty_server.wait_for(lambda: faulty_server.get("/healthz").status == 200)


def test_killed_worker_is_noticed_and_replaced(faulty_server, tmp_path):
    (worker,) = faulty_server.server.service.batcher.workers
    old = worker.pid
    running = texts_are_in_flight(faulty_server, tmp_path / "never")
    os.kill(old, signal.SIGKILL)
    faulty_server.wait_for(lambda: faulty_server.get("/healthz").status == 503)
    answer = running.result()
    assert (answer.status, answer.json()["items"][0]["error"]["code"]) == (503, "worker_died")
    faulty_server.wait_for(lambda: faulty_server.get("/readyz").status == 200)
    assert worker.pid != old
    os.kill(worker.pid, signal.SIGKILL)  # idle this time
    assert faulty_server.post("/embed", {"texts": ["still here"]}).status in (200, 503)
    faulty_server.wait_for(lambda: faulty_server.get("/readyz").status == 200)
    assert faulty_server.post("/embed", {"texts": ["still here"]}).status == 200


def test_stalled_worker_is_noticed_and_replaced():
    with live_server(load_faulty, stall_timeout=6.0) as server:
        with ThreadPoolExecutor(1) as pool:
            stalled = pool.submit(server.post, "/embed", {"texts": ["WEDGE"]})
            server.wait_for(lambda: server.get("/healthz").status == 503)
            assert stalled.result().status == 503
        server.wait_for(lambda: server.get("/healthz").status == 200)
        server.wait_for(lambda: server.post("/embed", {"texts": ["fine"]}).status == 200)


def test_deadline_in_the_queue_is_504_and_nothing_is_computed(faulty_server, tmp_path):
    running = texts_are_in_flight(faulty_server, tmp_path / "go")
    texts = faulty_server.metric("elmo_texts_total")
    answer = faulty_server.post("/embed", {"texts": ["too late"]}, x_request_timeout="0.05")
    assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")
    (tmp_path / "go").touch()
    assert running.result().status == 200
    assert faulty_server.post("/embed", {"texts": ["next"]}).status == 200
    assert faulty_server.metric("elmo_texts_total") == texts + 2  # the running one and the next one
    for header in ("0", "-1", "soon", "nan"):
        assert faulty_server.post("/embed", {"texts": ["a"]}, x_request_timeout=header).status == 400


def test_clients_that_leave_free_their_places(faulty_server, tmp_path):
    running = texts_are_in_flight(faulty_server, tmp_path / "go")
    texts = faulty_server.metric("elmo_texts_total")
    body = json.dumps({"texts": ["never computed"]}).encode()
    head = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(10):
        sockets = [socket.create_connection(("127.0.0.1", faulty_server.port)) for _ in range(50)]
        for connection in sockets:
            connection.sendall(request)
        faulty_server.wait_for(lambda: faulty_server.metric("elmo_queue_requests") > 0)
        for connection in sockets:
            connection.close()
        faulty_server.wait_for(lambda: faulty_server.metric("elmo_queue_requests") == 0)
    (tmp_path / "go").touch()
    assert running.result().status == 200
    faulty_server.wait_for(lambda: faulty_server.metric("elmo_queue_tokens") == 0)
    assert faulty_server.metric("elmo_texts_total") == texts + 1


def test_full_queue_refuses_with_retry_after_and_the_first_two_succeed(tmp_path):
    with live_server(load_faulty, queue_requests=1) as server, ThreadPoolExecutor(2) as pool:
        running = texts_are_in_flight(server, tmp_path / "go")
        queued = pool.submit(server.post, "/embed", {"texts": ["queued"]})
        server.wait_for(lambda: server.metric("elmo_queue_requests") == 1)
        assert server.get("/readyz").status == 503
        for _ in range(10):
            answer = server.post("/embed", {"texts": ["refused"]})
            assert (answer.status, answer.error["code"]) == (429, "overloaded")
            assert 1 <= int(answer.headers["retry-after"]) <= 60
        (tmp_path / "go").touch()
        assert (running.result().status, queued.result().status) == (200, 200)
        requests = {"200": 2, "429": 10}
        lines = server.get("/metrics").body.decode()
        for status, count in requests.items():
            assert f'elmo_requests_total{{route="/embed",status="{status}"}} {count}\n' in lines


def test_every_client_gets_its_own_vectors_whoever_shares_the_batch(tiny_server):
    offline = load_tiny()
    sentences = [[f"client{c}", *["word"] * (c % 7 * 5), f"text{n}"] for c in range(16) for n in range(6)]
    expected = offline.embed(sentences)

    def client(number):
        connection = http.client.HTTPConnection("127.0.0.1", tiny_server.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            for index in range(6 * number, 6 * number + 6):
                body = json.dumps({"texts": [sentences[index]]})
                connection.request("POST", "/embed", body, {"content-type": "application/json"})
                (item,) = json.loads(connection.getresponse().read())["items"]
                np.testing.assert_allclose(item["layers"]["average"], expected[index], atol=1e-5)
        return True

    before = tiny_server.metric('elmo_requests_total{route="/embed",status="200"}')
    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(client, range(16)))
    assert tiny_server.metric('elmo_requests_total{route="/embed",status="200"}') == before + 96


def test_two_workers_share_the_cores_and_both_answer(tmp_path):
    with live_server(load_faulty, workers=2, threads=0) as server:
        running = texts_are_in_flight(server, tmp_path / "go")
        assert server.post("/embed", {"texts": ["by the other worker"]}).status == 200
        first, second = server.server.service.batcher.workers
        assert first.pid != second.pid
        (tmp_path / "go").touch()
        assert running.result().status == 200
