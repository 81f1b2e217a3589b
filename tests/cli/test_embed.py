"""`elmo embed` and `elmo merge` in real processes: signals, pipes, full disks, shards."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from in_process_cli import run_in_process
from scale import scaled

ROOT = Path(__file__).resolve().parent.parent.parent
FIXTURE = ROOT / "elmo" / "golden" / "allennlp"
MODEL = ["--model", str(FIXTURE / "options.json"), "--weights", str(FIXTURE / "lm_weights.hdf5"), "--device", "cpu"]
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"}
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals and devices")


def start(*words, **options) -> subprocess.Popen:
    options.setdefault("stdout", subprocess.PIPE)
    options["env"] = {**ENV, **options.pop("env", {})}
    return subprocess.Popen([sys.executable, "-m", "elmo", *map(str, words)], stderr=subprocess.PIPE, **options)


def finish(process: subprocess.Popen, stdin: bytes | None = None) -> tuple[int, str, str]:
    out, err = process.communicate(stdin)
    return process.returncode, (out or b"").decode(), err.decode()


def elmo(*words, **options) -> tuple[int, str, str]:
    return finish(start(*words, **options))


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with in.txt, which has about fifty blocks, and one.npz, the output of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("embed")
    chance = random.Random(7)
    words = ["The", "cat", "sat", "on", "a", "mat", ",", "and", "did", "not", ".", "Zürich", "(", "2018", ")", "東京"]
    lines = [" ".join(chance.choices(words, k=chance.choice([0, 1, 5, 20, 40]))) for _ in range(6000)]
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    code, out, err = elmo("embed", folder / "in.txt", folder / "one.npz", *MODEL, *SETTINGS, "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert (facts["lines"], facts["tokens"]) == (6000, sum(len(line.split()) for line in lines))
    assert facts["tokens_per_second"] > 0
    assert "MB are free" in err
    assert not (folder / "one.npz.parts").exists()
    return folder


SETTINGS = ["--tokenizer", "whitespace", "--layers", "top", "--block-tokens", "2048"]


# `python -c STOPPED SIGNAL COUNT WORDS` is `elmo WORDS`, which gets the signal when it has written COUNT blocks
STOPPED = """
import os, sys
number, count, replace = int(sys.argv.pop(1)), int(sys.argv.pop(1)), os.replace
def counting_replace(source, target):
    global count
    replace(source, target)
    count -= os.path.basename(target).startswith("block-")
    if count == 0:
        count = -1
        os.kill(os.getpid(), number)
os.replace = counting_replace
from elmo.cli.main import main
main()
"""


@posix
def test_resumed_runs_give_the_same_bytes(work):
    out = work / "stopped.npz"
    command = ["embed", work / "in.txt", out, *MODEL, *SETTINGS, "--resume"]
    num_blocks = 0
    for stop, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        words = [sys.executable, "-c", STOPPED, int(stop), 3, *command]
        process = subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV)
        code, _, err = finish(process)
        assert code == expected, err
        num_blocks += 3
        assert len(list(work.glob("stopped.npz.parts/block-*"))) == num_blocks  # it stops before the next block
        assert not out.exists()
        if stop != signal.SIGKILL:
            assert "continue with --resume" in err
            assert "Traceback" not in err
    code, _, err = elmo(*command)
    assert code == 0, err
    assert out.read_bytes() == (work / "one.npz").read_bytes()
    assert [path.name for path in work.iterdir() if "stopped" in path.name] == ["stopped.npz"]


@pytest.mark.parametrize("name", ["o.hdf5", "o.npz", "o.safetensors", "o.jsonl", "o.jsonl.gz"])
def test_resuming_a_finished_output_does_nothing_and_says_so(tmp_path, capsys, name):
    (tmp_path / "in.txt").write_text("A cat sat .\n", encoding="utf-8")
    command = ["embed", tmp_path / "in.txt", tmp_path / name, *MODEL]
    assert run_in_process(capsys, *map(str, command)).returncode == 0
    before = (tmp_path / name).read_bytes()
    done = run_in_process(capsys, *map(str, command), "--resume", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["finished_before"] is True
    done = run_in_process(capsys, *map(str, command), "--resume")
    assert done.returncode == 0
    assert f"{name} is finished" in done.stderr
    assert (tmp_path / name).read_bytes() == before


@pytest.mark.slow("kills")
@pytest.mark.timeout(3600)
@posix
def test_killed_many_times_gives_the_same_bytes(work, record_property):
    out, chance, num_killed = work / "killed.npz", random.Random(3), 0
    command = ["embed", work / "in.txt", out, *MODEL, *SETTINGS, "--resume"]
    for _ in range(scaled(20)):
        process = start(*command)
        time.sleep(chance.uniform(0.5, 5))  # the test needs kills at random times
        process.kill()
        num_killed += finish(process)[0] == -signal.SIGKILL
        if out.exists() and not (work / "killed.npz.parts").exists():
            assert out.read_bytes() == (work / "one.npz").read_bytes()
            out.unlink()
    code, _, err = elmo(*command)
    assert code == 0, err
    assert out.read_bytes() == (work / "one.npz").read_bytes()
    record_property("kills", num_killed)


def test_shards_in_parallel_then_merge_give_the_same_bytes(work, capsys):
    out = work / "sharded.npz"
    command = ["embed", work / "in.txt", out, *MODEL, *SETTINGS, "--shard"]
    assert run_in_process(capsys, *map(str, command), "9/8").returncode == 2
    done = run_in_process(capsys, "merge", str(out))
    assert (done.returncode, "no part files" in done.stderr) == (1, True)
    for process in [start(*command, "1/2"), start(*command, "2/2")]:
        code, _, err = finish(process)
        assert code == 0, err
    done = run_in_process(capsys, "merge", str(out), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lines"] == 6000
    assert out.read_bytes() == (work / "one.npz").read_bytes()
    assert not list(work.glob("sharded.npz.parts"))


def test_usage_errors_come_before_the_model_is_loaded(tmp_path, capsys):
    source = tmp_path / "in.txt"
    source.write_text("A line .\n")
    (tmp_path / "there.npz").write_text("precious")
    (tmp_path / "folder").mkdir()
    errors = {
        ("there.npz",): (1, "exists"),
        ("in.txt", "--overwrite", "--format", "npz"): (1, "is the input itself"),
        ("nowhere/o.npz",): (1, "there is no folder"),
        ("o.unknown",): (2, "--format"),
        ("o.npz", "--shard", "1of2"): (2, "expected i/n"),
        ("o.npz", "--top", "--layers", "all"): (2, "set the same option"),
        ("o.npz", "--dtype", "int8"): (2, "float16"),
        ("folder", "--paragraphs"): (2, "a folder has one row per line"),
        ("o.npz", "--errors", "ignore"): (2, "expected strict or replace"),
    }
    for (name, *flags), (expected, text) in errors.items():
        done = run_in_process(capsys, "embed", str(source), str(tmp_path / name), *flags, "--model", "missing/")
        assert (done.returncode, text in done.stderr, "missing" in done.stderr) == (expected, True, False), done.stderr
    assert source.read_text() == "A line .\n"
    assert (tmp_path / "there.npz").read_text() == "precious"


@posix
def test_stdin_to_stdout_ends_quietly_when_the_reader_closes_the_pipe(tmp_path):
    (tmp_path / "in.txt").write_bytes(b"The cat sat .\n\nA dog , too .\n" * 2000)
    with open(tmp_path / "in.txt", "rb") as source:
        process = start("embed", "-", "-", *MODEL, "--layers", "average", "--block-tokens", "64", stdin=source)
        rows = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.stdout.close()
        err = process.stderr.read().decode()
        assert process.wait() == 0
    assert all(line.startswith("embedding: ") for line in err.splitlines())  # progress, every five seconds
    assert [" ".join(row["tokens"]) for row in rows] == ["The cat sat .", "", "A dog , too ."]
    assert [row["line"] for row in rows] == [0, 1, 2]
    assert np.array(rows[0]["vectors"]).shape == (4, 32)


@posix
def test_full_or_closed_streams_are_clear_errors(tmp_path):
    (tmp_path / "in.txt").write_text("The cat sat .\n" * 2000)
    with open("/dev/full", "wb") as full:
        code, _, err = elmo("embed", tmp_path / "in.txt", "-", *MODEL, stdout=full)
    assert code == 1
    assert "standard output cannot be written" in err
    command = f"exec {sys.executable} -m elmo embed"
    for words in (f"- {tmp_path}/o.npz <&-", f"{tmp_path}/in.txt - >&-"):
        done = subprocess.run(["sh", "-c", f"{command} {words}"], env=ENV, capture_output=True, text=True)
        assert done.returncode == 1, done.stderr
        assert "is closed" in done.stderr


@posix
def test_file_size_limit_is_a_clear_error_and_leaves_no_file(work, tmp_path):
    import resource

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))

    command = [
        "embed",
        work / "in.txt",
        tmp_path / "o.hdf5",
        *MODEL,
        *SETTINGS,
    ]  # the HDF5 library handles write errors worst of all formats
    code, _, err = elmo(*command, preexec_fn=limit)
    assert code == 1
    assert "needs about" in err
    assert "3 MB are free" in err
    assert not list(tmp_path.iterdir())
    code, _, err = elmo(*command, "--force", preexec_fn=limit)
    assert code == 1, err
    assert "the disk is full or a size limit is reached" in err
    assert "continue with --resume" in err
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["o.hdf5.parts"]


def test_plain_terminal_and_allennlp_flags(tmp_path):
    (tmp_path / "in.txt").write_text("Zürich ist schön .\nTokyo 東京\n", encoding="utf-8")
    env = {"LC_ALL": "C", "COLUMNS": "1", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUTF8": "0"}
    pair = ["--options-file", FIXTURE / "options.json", "--weight-file", FIXTURE / "lm_weights.hdf5"]
    out = tmp_path / "o.hdf5"
    words = ["embed", tmp_path / "in.txt", out, *pair, "--average", "--cuda-device", "-1", "--batch-size", "64"]
    code, _, err = elmo(*words, "--state", "carry", env=env)
    assert code == 0, err
    assert "\x1b" not in err
    import h5py

    with h5py.File(out) as file:
        assert file["0"].shape == (4, 32)
        assert json.loads(file["sentence_to_index"][0]) == {"Zürich ist schön .": "0", "Tokyo 東京": "1"}


@pytest.mark.slow
@posix
def test_a_million_lines_need_constant_memory(tmp_path):
    import resource

    peaks = []
    for count in (20_000, 1_000_000):
        source = tmp_path / f"{count}.txt"
        source.write_text("".join(f"w{i % 5000}\n" for i in range(count)))
        command = [sys.executable, "-m", "elmo", "embed", source, tmp_path / f"{count}.npz", *MODEL, "--layers", "top"]
        process = subprocess.Popen(
            command, env=ENV, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
        )
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0
        peaks.append(usage.ru_maxrss)
        assert len(np.load(tmp_path / f"{count}.npz")["vectors"]) == count
    assert peaks[1] < 1.25 * peaks[0], peaks


@pytest.mark.parametrize("out", ["out.npz", "out/"])
@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["--dtype", "int8"], "dtype is 'int8', a number type of the computation", "--compute-dtype int8 computes in"),
        (["--dtype", "float8"], "dtype is 'float8'; expected float32, float16.", ""),
        (["--compute-dtype", "float8"], "--compute-dtype is 'float8'; expected one of float32,", ""),
    ],
)
def test_a_wrong_number_type_is_named_by_its_option(out, arguments, message, hint, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("The bank .\n")
    done = run_in_process(capsys, "embed", f"{tmp_path}/in.txt", f"{tmp_path}/{out}", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert hint in done.stderr
