"""The server for minutes, and beside other work: memory and descriptors do not grow, throughput does not collapse."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from scale import scaled
from test_process import port_of, started_server

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from http_load import LoadResult, embedding_bodies, run, run_clients

MODEL = "tiny-random"
NOISE = 8 << 20  # bytes that the allocator may keep


def load(port: int, bodies: list[bytes], **options: Any) -> LoadResult:
    return run(run_clients(port, "/v1/embeddings", bodies, clients=16, **options))


@pytest.mark.slow("soak")
def test_memory_and_descriptors_of_a_server_do_not_grow(record_property: Any) -> None:
    bodies = embedding_bodies([[f"text {n % 97} " + "word " * (n % 60)] for n in range(1000)], MODEL)
    bodies = [b'{"input": ["broken"], "model": 1}' if n % 10 == 9 else body for n, body in enumerate(bodies)]
    samples = []
    with started_server("--threads", "1") as (_, facts):
        processes = [psutil.Process(pid) for pid in (facts["pid"], *facts["worker_pids"])]
        for _ in range(5):  # minutes
            part = load(port_of(facts), bodies, stop_at=time.monotonic() + scaled(60, at_least=2))
            assert set(part.statuses) == {200, 422}
            assert part.num_lost == 0
            memory = sum(process.memory_info().rss for process in processes)
            samples.append((memory, sum(process.num_fds() for process in processes)))
    growth = samples[-1][0] - samples[0][0]
    record_property("growth", f"{growth / 2**20:.1f} MB")
    assert growth < 0.05 * samples[0][0] + NOISE, samples
    assert samples[-1][1] <= samples[0][1] + 2, samples


@pytest.mark.slow
def test_a_busy_loop_beside_the_server_takes_its_share_of_the_processor_and_no_more(record_property: Any) -> None:
    total = 16 * scaled(200, at_least=20)
    bodies = embedding_bodies([["The cat sat on the mat and looked at the dog ."]] * total, MODEL)
    with started_server() as (_, facts):  # as many threads as there are cores
        load(port_of(facts), bodies[:320])
        idle = load(port_of(facts), bodies)
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as loop:
            try:
                busy = load(port_of(facts), bodies)
            finally:
                loop.kill()
    assert idle.statuses[200] == busy.statuses[200] == total
    share = idle.seconds / busy.seconds
    record_property("share", f"{share:.2f}")
    assert share >= 0.3
    assert busy.percentile(99) < 1000


@pytest.mark.slow
def test_two_workers_are_not_slower_than_one(record_property: Any) -> None:
    # many texts per request, so that the time is that of the workers and not of HTTP
    texts = [f"The cat number {n} sat on the mat and looked at the dog ." for n in range(32)]
    bodies = embedding_bodies([texts] * (16 * scaled(20, at_least=2)), MODEL)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with (
        started_server("--threads", "1", "--workers", "1") as (_, one),
        started_server("--threads", "1", "--workers", "2") as (_, two),
    ):
        for _ in range(4):  # in turn, because other work on the machine comes and goes
            for workers, facts in ((1, one), (2, two)):
                seconds[workers].append(load(port_of(facts), bodies).seconds)
    ratio = min(seconds[1]) / min(seconds[2])
    record_property("ratio", f"{ratio:.2f}")
    assert ratio >= 0.8, seconds
