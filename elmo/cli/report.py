"""`elmo report`: every table and picture of the paper from saved records, on one page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.errors import ConfigError, DataError
from elmo.settings import read_toml

EXAMPLE = "elmo report runs/ -o report/"


def run(
    runs: Annotated[list[Path], typer.Argument(help="Folders and files with records, however deep.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for index.html, README.md and pictures.")],
    notes: Annotated[
        Path | None, typer.Option(help="TOML: by a finding's key, why it is otherwise here; by a section's, a remark.")
    ] = None,
    title: Annotated[str, typer.Option(help="Of the page.")] = "ELMo: the paper's figures and ours",
    as_json: Annotated[bool, typer.Option("--json", help="The findings as JSON on standard output.")] = False,
) -> None:
    """Write a page with every table and picture of the paper beside ours, each figure linked to its record."""
    from dataclasses import asdict

    from elmo.report.collect import collect
    from elmo.report.table1 import make_table
    from elmo.report.table1_chart import as_svg
    from elmo.report.table1_text import as_values
    from elmo.report.write import make_page, write_page

    evidence = collect(runs)
    if not len(evidence):
        places = ", ".join(map(str, runs))
        raise DataError(
            f"No records in {places}.", "Run `elmo task train`, `elmo probe --out` or `elmo pretrain` first."
        )
    for line in evidence.unread:
        print(f"left out: {line}", file=sys.stderr)
    explained = read_toml(notes) if notes is not None else {}
    if not all(isinstance(note, str) for note in explained.values()):
        raise ConfigError(f"{notes}: a note is not a text.", 'Expected lines such as places = "why".')
    rows = make_table(evidence.tasks)
    picture = as_svg(rows) if rows else ""
    page, found = make_page(evidence, table=as_values(rows), table_picture=picture, notes=explained, title=title)
    files = write_page(page, out)
    if as_json:
        print(json.dumps({"files": [str(file) for file in files], "findings": [asdict(one) for one in found]}))
        return
    missing = sum(one.holds is None for one in found)
    print(f"{files[-1]}: {len(evidence)} records, {len(page.sources)} sources")
    print(f"{sum(one.holds == 1 for one in found)} of {len(found)} findings as in the paper, {missing} without records")
    for holds, words in ((-1, "otherwise than in the paper"), (0, "not told apart from chance")):
        keys = [one.key for one in found if one.holds == holds]
        if keys:
            print(f"{words}: {', '.join(keys)} (explain with --notes)")
