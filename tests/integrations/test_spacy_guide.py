"""The Python code of docs/guides/spacy.md runs, block after block."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import elmo.integrations.spacy  # noqa: F401  # registers what an installed package registers by entry points

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "spacy.md"


def test_the_code_of_the_guide_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pandas")
    pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 4
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, GUIDE.name, "exec"), names)
    assert -1 <= float(capsys.readouterr().out.split()[0]) < 0.95
    assert names["table"].shape == (3, 1 + names["embedder"].dim)
