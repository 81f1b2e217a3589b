"""Standard error that is closed or full: messages are lost, but neither the result nor the exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")


def elmo(redirection: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "elmo", *words]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, env=variables, check=False)


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(
    ("words", "code"),
    [(["models"], 0), ([], 2), (["no-such-verb"], 2), (["models", "--no-such-flag"], 2), (["info", "/no/model"], 1)],
)
def test_a_command_works_without_standard_error(redirection: str, words: list[str], code: int) -> None:
    done = elmo(redirection, *words)
    assert done.returncode == code
    assert done.stdout == elmo("2>/dev/null", *words).stdout


@pytest.mark.parametrize(
    "redirection", ["2>&-", *(pytest.param(text, marks=pytest.mark.slow) for text in ("2>/dev/full", "<&- 2>&-"))]
)
def test_output_is_written_without_standard_error(tmp_path: Path, redirection: str) -> None:
    source = tmp_path / "in.txt"
    source.write_text("One sentence here .\nanother one .\n")  # a warning: no line has a capital letter
    files = []
    for number, place in enumerate((redirection, "2>/dev/null")):
        done = elmo(place, "embed", str(source), str(tmp_path / f"{number}.npz"), "--model", "tiny-random")
        assert done.returncode == 0
        files.append((tmp_path / f"{number}.npz").read_bytes())
    assert files[0] == files[1]
