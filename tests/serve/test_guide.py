"""The commands of README.md and docs/guides/serving.md get their answers from a real server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
GUIDE, README = ROOT / "docs" / "guides" / "serving.md", ROOT / "README.md"


def blocks(page: Path, kind: str, port: int) -> list[str]:
    """The blocks of one kind on a page, for the test's model and port."""
    found = re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    return [block.replace("localhost:8000", f"localhost:{port}").replace('"default"', '"tiny"') for block in found]


def curl_answers(page: Path, port: int, folder: Path) -> list[Any]:
    """The answers of the curl commands of a page; None: written to a file."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not on this machine")
    answers = []
    for command in (c for block in blocks(page, "sh", port) for c in re.split(r"\n(?=curl)", block.strip())):
        done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout) if done.stdout else None)
    return answers


def openai_output(page: Path, port: int) -> list[str]:
    """What the program of a page with the OpenAI client prints."""
    pytest.importorskip("openai", reason="the OpenAI client is not installed: pip install openai")
    (program,) = blocks(page, "py", port)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_curl_of_the_readme_gets_vectors(tiny_server, tmp_path):
    (answer,) = curl_answers(README, tiny_server.port, tmp_path)
    assert [len(row["embedding"]) for row in answer["data"]] == [128]


def test_curl_commands_of_the_guide_get_answers(tiny_server, tmp_path):
    answers = curl_answers(GUIDE, tiny_server.port, tmp_path)
    assert len(answers) == 6
    assert all(answer is None or "error" not in answer for answer in answers)
    assert len(answers[0]["data"]) == 2
    assert [len(item["tokens"]) for item in answers[1]["items"]] == [6, 2]
    assert np.load(tmp_path / "vectors.npy").shape == (1, 6, 128)
    assert (answers[5]["token"], len(answers[5]["neighbors"])) == ("bank", 3)


def test_openai_client_of_the_guide_prints_its_numbers(tiny_server):
    assert openai_output(GUIDE, tiny_server.port) == ["2", "128", "13"]
