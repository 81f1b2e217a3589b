"""The commands of docs/guides/serving.md get their answers from a real server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")


def blocks(kind: str, port: int) -> list[str]:
    """The guide's blocks of one kind, for the test's model and port."""
    found = re.findall(rf"^```{kind}\n(.*?)^```", GUIDE, re.M | re.S)
    return [block.replace("localhost:8000", f"localhost:{port}").replace('"default"', '"tiny"') for block in found]


def test_curl_commands_get_answers(tiny_server, tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("curl is not on this machine")
    commands = [c for block in blocks("sh", tiny_server.port) for c in re.split(r"\n(?=curl)", block.strip())]
    answers = []
    for command in commands:
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout) if done.stdout else None)
    assert len(commands) == 5
    assert all(answer is None or "error" not in answer for answer in answers)
    assert len(answers[0]["data"]) == 2
    assert [len(item["tokens"]) for item in answers[1]["items"]] == [6, 2]
    assert np.load(tmp_path / "vectors.npy").shape == (1, 6, 128)


def test_openai_client_of_the_guide_prints_its_numbers(tiny_server):
    pytest.importorskip("openai", reason="the OpenAI client is not installed: pip install openai")
    (program,) = blocks("py", tiny_server.port)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["2", "128", "13"], done.stderr
