"""Many clients at once: nothing is lost, answers are right, and refusals are counted and say when to come back.

The slow tests have the full numbers of clients and requests; benchmarks/serve.py measures times.
"""

from __future__ import annotations

import base64
import json
import re
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
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="[^"\\\n]*",?)+)\})? (\d+(?:\.\d+)?(?:e-?\d+)?)')


def read_metrics(text: str) -> dict[str, float]:
    """The samples of Prometheus's text format; fails if the text is not valid."""
    assert text.endswith("\n")
    samples: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            family = re.sub("_(bucket|sum|count)$", "", match[1])
            assert kinds.get(match[1]) in ("counter", "gauge") or kinds[family] == "histogram", line
            name = line.rsplit(" ", 1)[0]
            assert name not in samples, line
            samples[name] = float(match[3])
    for name, value in samples.items():  # the last bucket of a histogram counts all observations
        if 'le="+Inf"' in name:
            labels = name.replace("_bucket", "_count").replace('le="+Inf"', "").replace(",}", "}").replace("{}", "")
            assert samples[labels] == value, name
    return samples


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


def test_metrics_are_valid_under_load_and_add_up_to_the_requests_sent() -> None:
    bodies = embedding_bodies([[f"text {n}"] if n % 8 else ["  "] for n in range(512)], "tiny")
    results = []
    with live_server(load_tiny, queue_requests=64) as server:
        load = threading.Thread(
            target=lambda: results.append(run(run_clients(server.port, "/v1/embeddings", bodies, clients=256)))
        )
        load.start()
        totals = []
        while load.is_alive():
            samples = read_metrics(server.get("/metrics").body.decode())
            totals.append(sum(value for name, value in samples.items() if name.startswith("elmo_requests_total")))
        load.join()
        samples = read_metrics(server.get("/metrics").body.decode())
    assert totals == sorted(totals)
    prefix = 'elmo_requests_total{route="/v1/embeddings",status="'
    counted = {int(name[len(prefix) : -2]): value for name, value in samples.items() if name.startswith(prefix)}
    assert counted == dict(results[0].statuses)
    assert sum(counted.values()) == 512
    assert set(counted) >= {200, 400}
    assert samples['elmo_request_seconds_count{route="/v1/embeddings"}'] == 512
    assert samples["elmo_texts_total"] == counted[200]
