"""Many clients at once: nothing is lost, answers are right, and refusals are counted and say when to come back.

The slow tests have the full numbers of clients and requests; benchmarks/serve.py measures times.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from live_server import LiveServer, live_server
from served_models import load_tiny

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from http_load import embedding_bodies, run, run_clients

full = pytest.mark.slow


@pytest.mark.parametrize("requests_per_client", [4, pytest.param(100, marks=full)])
def test_64_clients_lose_nothing_and_get_the_offline_vectors(tiny_server: LiveServer, requests_per_client: int) -> None:
    total = 64 * requests_per_client
    texts = [" ".join(["a", *["word"] * (n % 23), f"number{n}"]) for n in range(total)]
    expected = load_tiny().encode(texts)

    def is_right(number: int, body: bytes) -> bool:
        vector = np.frombuffer(base64.b64decode(json.loads(body)["data"][0]["embedding"]), "<f4")
        return bool(np.abs(vector - expected[number]).max() <= 1e-5)

    bodies = embedding_bodies([[text] for text in texts], "tiny")
    result = run(run_clients(tiny_server.port, "/v1/embeddings", bodies, clients=64, check=is_right))
    assert (dict(result.statuses), result.num_lost, result.num_wrong) == ({200: total}, 0, 0)


@pytest.mark.parametrize("requests_per_client", [1, pytest.param(10, marks=full)])
def test_512_clients_are_answered_or_refused_and_succeed_when_they_return(requests_per_client: int) -> None:
    total = 512 * requests_per_client
    bodies = embedding_bodies([[f"text {n}"] for n in range(total)], "tiny")
    with live_server(load_tiny, queue_requests=64) as server:
        once = run(run_clients(server.port, "/v1/embeddings", bodies, clients=512))
        assert once.statuses[200] + once.statuses[429] == total
        assert set(once.statuses) == {200, 429}  # 64 places for 512 clients: some are refused
        assert (once.num_lost, once.num_without_retry_after) == (0, 0)
        again = run(run_clients(server.port, "/v1/embeddings", bodies, clients=512, retry=True))
        assert again.statuses[200] == total
        counted = server.metric('elmo_requests_total{route="/v1/embeddings",status="200"}')
        assert counted == once.statuses[200] + total


def test_health_is_answered_while_three_times_the_capacity_arrives() -> None:
    bodies = embedding_bodies([[f"text {n}"] for n in range(192)], "tiny")
    with live_server(load_tiny, queue_requests=64) as server:
        load = threading.Thread(
            target=lambda: run(run_clients(server.port, "/v1/embeddings", bodies, clients=192, retry=True))
        )
        load.start()
        statuses = {server.get("/healthz").status for _ in range(50)}
        load.join()
    assert statuses == {200}
