"""Replaces the part of a page between two marks, for the scripts that write tables into the documentation."""

from __future__ import annotations

import sys
from pathlib import Path


def write_part(page: Path, begin: str, end: str, part: str) -> None:
    """Writes the page with a new part; with --check on the command line, exits with 1 if the page would change."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    updated = f"{before}{begin}\n\n{part}\n{end}{after}"
    if "--check" in sys.argv:
        sys.exit(0 if updated == text else f"{page} is out of date: run `python docs/{Path(sys.argv[0]).name}`.")
    page.write_text(updated, encoding="utf-8")
