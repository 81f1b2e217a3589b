"""`elmo report`: every table and figure of the paper from saved records, on one page."""

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
    runs: Annotated[list[Path], typer.Argument(help="Files with records, or folders; subfolders are searched too.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for index.html, README.md and the pictures.")],
    notes: Annotated[
        Path | None,
        typer.Option(help="TOML file with texts by key: of a finding, why it differs here; of a section, a remark."),
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "ELMo: the paper's figures and ours",
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Write a page with every table and figure of the paper next to ours, each score linked to its record."""
    from dataclasses import asdict

    from elmo.report.build import make_page, write_page
    from elmo.report.collect import collect

    records = collect(runs)
    for line in records.unread:
        print(f"left out: {line}", file=sys.stderr)
    if not len(records):
        places = ", ".join(map(str, runs))
        raise DataError(
            f"No records in {places}.", "Run `elmo task train`, `elmo probe --out` or `elmo pretrain` first."
        )
    texts = read_toml(notes) if notes is not None else {}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ConfigError(f"{notes}: a note is not a text.", 'Expected lines such as places = "why".')
    page, findings = make_page(records, notes=texts, title=title)
    files = write_page(page, out)
    if as_json:
        print(json.dumps({"files": [str(file) for file in files], "findings": [asdict(one) for one in findings]}))
        return
    agreeing, missing = (sum(one.holds == holds for one in findings) for holds in (1, None))
    print(f"{files[-1]}: {len(records)} records, {len(page.sources)} sources")
    print(f"{agreeing} of {len(findings)} findings agree with the paper, {missing} have no records")
    for holds, verdict in ((-1, "differ from the paper"), (0, "no significant difference")):
        keys = [one.key for one in findings if one.holds == holds]
        if keys:
            print(f"{verdict}: {', '.join(keys)} (explain with --notes)")
