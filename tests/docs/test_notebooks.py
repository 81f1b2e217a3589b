"""The notebooks are those of their scripts, and their output is in them; tests/integrations executes them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
SCRIPTS = sorted(FOLDER.glob("*.py"))
HOW = "run `python docs/make_notebooks.py`"


def cells_of(script: str) -> list[tuple[str, str]]:
    spec = importlib.util.spec_from_file_location("make_notebooks", FOLDER.parent / "make_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.cells_of(script)


def test_there_are_four_notebooks_each_with_its_script():
    assert len(SCRIPTS) == 4
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == [path.stem for path in SCRIPTS]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_has_the_cells_of_its_script_and_their_output(script):
    notebook = json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert cells == cells_of(script.read_text(encoding="utf-8")), HOW
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    assert len(outputs) >= 3, HOW
    assert [output for output in outputs if output["output_type"] == "error"] == []
    assert script.with_suffix(".ipynb").stat().st_size < 100_000


def test_cells_are_text_in_comments_and_code():
    script = "# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 1\n\n\n# %%\n# a comment\nx\n"
    assert cells_of(script) == [("markdown", "# Title\n\nText."), ("code", "x = 1"), ("code", "# a comment\nx")]
