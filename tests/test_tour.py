"""Every file of the package has its line in docs/tour.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
DESCRIBED_BY_THEIR_HEADS = ("elmo/kernels/", "elmo/embed/dump/")


@pytest.mark.parametrize("path", sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "elmo").rglob("*.py")))
def test_a_file_is_named_in_the_tour(path: str) -> None:
    name = Path(path).stem
    if (name == "__init__" and path != "elmo/__init__.py") or path.startswith(DESCRIBED_BY_THEIR_HEADS):
        return
    room = next(block for block in TOUR.split("\n\n") if block.startswith(f"**{Path(path).parent.as_posix()}/**"))
    assert re.search(rf"`{re.escape(name)}`", room), f"{path} has no line in docs/tour.md"
