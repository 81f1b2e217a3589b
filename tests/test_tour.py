"""docs/tour.md names every file of the package, in the words of the file's own docstring."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_tables_of_the_tour_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "make_tour.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
