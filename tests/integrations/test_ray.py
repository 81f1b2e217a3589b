"""`elmo embed --ray` on a cluster of two nodes on this machine: actors and the driver are killed, the bytes stay."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402  # after the check that Ray is installed

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "elmo" / "golden" / "allennlp"
NUM_LINES, SHARD_LINES = 6000, 100


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    cluster = until_started(lambda: Cluster(initialize_head=True, head_node_args={"num_cpus": 0}))
    for _ in range(2):
        until_started(lambda: cluster.add_node(num_cpus=1))
    yield cluster
    cluster.shutdown()


def until_started(start):
    """Ray gives up if a node needs more than 30 seconds to start, which happens on a busy machine."""
    for _ in range(9):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return start()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Text, JSON lines, Parquet and compressed text with a quarter of the lines each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("corpus")
    lines = [f"word{i} of the bank number {i % 7} {'and so on ' * (i % 30)}." for i in range(NUM_LINES)]
    quarters = [lines[i : i + NUM_LINES // 4] for i in range(0, NUM_LINES, NUM_LINES // 4)]
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in quarters[0]), encoding="utf-8")
    objects = [json.dumps({"id": i, "text": line}) for i, line in enumerate(quarters[1])]
    (folder / "b.jsonl").write_text("\n".join(objects), encoding="utf-8")
    pq.write_table(pa.table({"text": quarters[2]}), folder / "c.parquet", row_group_size=777)
    with gzip.open(folder / "d.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(quarters[3]))
    return folder


@pytest.fixture(scope="module")
def expected(corpus, tmp_path_factory):
    """The folder that one process writes."""
    out = tmp_path_factory.mktemp("one") / "out"
    done = subprocess.run(command(corpus, out), capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return contents(out)


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def command(corpus: Path, out: Path, *more: str) -> list[str]:
    model = ["--model", str(MODEL / "options.json"), "--weights", str(MODEL / "lm_weights.hdf5"), "--device", "cpu"]
    words = [sys.executable, "-m", "elmo", "embed", f"{corpus}/*", f"{out}/", *model, "--layers", "all", "--json"]
    return [*words, "--shard-lines", str(SHARD_LINES), *more]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def wait_for_shards(out: Path, count: int, process: subprocess.Popen[str]) -> None:
    while len(list(out.glob("part-*"))) < count:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def actors() -> list[psutil.Process]:
    """The processes of actors that embed, of the nodes that this process started: others may run Ray as well."""
    below = psutil.Process().children(recursive=True)
    return [process for process in below if "MapWorker" in " ".join(command_of(process))]


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has ended
        return []


def test_killed_workers_and_a_killed_driver_lose_nothing_and_write_nothing_twice(cluster, corpus, expected, tmp_path):
    out = tmp_path / "out"
    words = command(corpus, out, "--ray", "--ray-address", cluster.address, "--actors", "2")
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()}
    with subprocess.Popen(words, **options) as driver:
        killed = set()
        for num_shards in (4, 10):  # twice, because a restarted actor must survive as well
            wait_for_shards(out, num_shards, driver)
            victim = actors()[0]
            victim.send_signal(signal.SIGKILL)
            killed.add(victim)
        assert len(killed) == 2
        wait_for_shards(out, 20, driver)  # the work goes on
        assert not killed & set(actors())
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
    assert not (out / "_manifest.json").exists()
    finished = len(list(out.glob("part-*")))
    assert finished < len(expected) - 1
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["shards_kept"] >= finished
    assert summary["lines"] == NUM_LINES
    assert contents(out) == expected


def test_without_an_address_the_cluster_is_this_machine(corpus, expected, tmp_path):
    words = command(corpus, tmp_path / "out", "--ray", "--actors", "2")
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "out") == expected


def test_an_error_of_a_worker_is_the_error_of_the_command(cluster, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "one"}\n{"text": null}\n')
    words = command(tmp_path, tmp_path / "out", "--ray", "--ray-address", cluster.address)
    words[4] = str(tmp_path / "in.jsonl")
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 1
    assert "in.jsonl:2: the text is null." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cluster_that_is_not_there_is_an_error(tmp_path):
    (tmp_path / "in.txt").write_text("one\n")
    words = command(tmp_path, tmp_path / "out", "--ray", "--ray-address", "127.0.0.1:1")
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 1, done.stderr
    assert "No Ray cluster at 127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
