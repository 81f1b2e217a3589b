"""The notebooks of the documentation run from beginning to end; the extra `notebooks` has what they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed: the extra notebooks")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: the extra notebooks")
pytest.importorskip("sklearn", reason="scikit-learn is not installed: the extra notebooks")

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = {  # notebook -> what its output shows with every good English model
    "words_in_context": "river    is nearest to",
    "classify": "macro avg",
    "tagger": "accuracy",
    "own_bilm": "words of its training text",
}


def text_of(notebook: dict) -> str:
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return "\n".join("".join(one.get("text", one.get("data", {}).get("text/plain", ""))) for one in outputs)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_notebook_runs_and_shows_what_it_is_about(name, tmp_path):
    command = [sys.executable, ROOT / "docs" / "make_notebooks.py", name, "--out", tmp_path]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert EXPECTED[name] in text_of(made)
    stored = json.loads((ROOT / "docs" / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert [cell["source"] for cell in made["cells"]] == [cell["source"] for cell in stored["cells"]]
    counts = [[len(cell.get("outputs", [])) for cell in one["cells"]] for one in (made, stored)]
    assert counts[0] == counts[1]


def test_an_unknown_notebook_is_named_in_one_line(tmp_path):
    command = [sys.executable, ROOT / "docs" / "make_notebooks.py", "classifier", "--out", tmp_path]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert "there is no notebook 'classifier'; expected one of classify," in done.stderr
