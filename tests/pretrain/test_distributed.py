"""Training in several processes: the same numbers as one process, and an error in all if one is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_run import ENVIRONMENT, call, command, records, write_text

DRIVER = Path(__file__).parent / "train_ranks.py"
FAST = [
    "equal", "muon", "spike", "sparse", "nan", "fewer", "lost", "restart", "patient", "clocks", "overlap", "shares",
    "finetune",
]  # fmt: skip


def drive(folder: Path, *tests: str) -> str:
    """Runs tests of train_ranks.py in a separate process; returns its output."""
    arguments = [sys.executable, str(DRIVER), str(folder), *tests]
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of all fast tests in train_ranks.py, run in one process because importing torch is slow."""
    return drive(tmp_path_factory.mktemp("ranks"), *FAST)


@pytest.mark.parametrize("test", FAST)
def test_processes(test: str, output: str) -> None:
    assert f"passed {test}\n" in output, output


@pytest.mark.slow
def test_stalled_process_ends_the_others(tmp_path: Path) -> None:
    assert "passed stalled\n" in drive(tmp_path, "stalled")


@pytest.mark.slow
def test_only_rank_0_prints_under_torchrun(tmp_path: Path) -> None:
    text, out = write_text(tmp_path / "text.txt"), tmp_path / "run"
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = call(*launch, *command(text, out, "--json")[1:])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["step"] == 40
    assert done.stderr.count("held-out perplexity of the exported model") == 1
    assert [r["step"] for r in records(out) if "forward" in r] == list(range(1, 41))
