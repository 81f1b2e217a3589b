"""Writes the table of layers in docs/guides/layers.md from the records that docs/report shows.

python docs/make_layer_table.py            rewrite the table
python docs/make_layer_table.py --check    exit 1 if it is out of date
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from generated_part import write_part

from elmo.report.collect import RecordFile, Records, collect
from elmo.report.sources import vectors_name
from elmo.report.text_table import markdown_table

ROOT = Path(__file__).resolve().parent.parent
GUIDE, REPORT_GUIDE = ROOT / "docs" / "guides" / "layers.md", ROOT / "docs" / "guides" / "report.md"
BEGIN, END = "<!-- table: made by docs/make_layer_table.py -->", "<!-- end of table -->"
PROBES: dict[
    str, tuple[str, Callable[[Mapping[str, Any]], float]]
] = {  # probe -> what the row is called, and the score of a view
    "pos": ("part of speech, linear classifier (accuracy)", lambda view: view["test"]),
    "ner": ("named entities, linear classifier (F1)", lambda view: view["test"]),
    "wsd": ("word senses, nearest average of a sense (F1)", lambda view: view["plain"]["ALL"]),
    "wic": ("same sense or not, cosine of centred vectors (accuracy)", lambda view: view["centred"]["dev"]),
}


def main() -> None:
    write_part(GUIDE, BEGIN, END, f"{table(collect_records())}\n")


def collect_records() -> Records:
    """The records in the places that the command of docs/report names."""
    (command,) = re.findall(r"^elmo report (.*?) -o docs/report", REPORT_GUIDE.read_text(encoding="utf-8"), re.M)
    return collect([ROOT / place for place in shlex.split(command)])


def table(records: Records) -> str:
    """One row per probe of the shipped model, and one with the mean length of the vectors of each layer."""
    probes = {one.values["probe"]: one.values["scores"]["views"] for one in shipped(records.probes)}
    (geometry,) = shipped(records.geometries)
    lengths = {str(layer["layer"]): layer["norm"] for layer in geometry.values["geometry"]}
    layers = list(lengths)
    averages = [f"{layers[1]}-{layers[-1]}", f"0-{layers[-1]}"]
    views = [*layers, *averages, "mix", "concat"]
    head = ["", *(f"layer {layer}" for layer in layers), *(f"mean of {name}" for name in averages), "learned mix"]
    rows = [[*head, "concatenated"]]
    for name, (title, score_of) in PROBES.items():
        scores = {view: float(score_of(probes[name][view])) for view in views if view in probes[name]}
        rows.append([title, *(cell(scores, view) for view in views)])
    rows.append(["mean length of a vector", *(f"{lengths[view]:.1f}" if view in lengths else "" for view in views)])
    return markdown_table(rows, num_left=1)


def shipped(records: list[RecordFile]) -> Iterator[RecordFile]:
    """The records of the shipped model."""
    return (record for record in records if vectors_name(record.values["vectors"]) == "english")


def cell(scores: Mapping[str, Any], view: str) -> str:
    """A score with one digit; the best one of its row is bold."""
    if view not in scores:
        return ""
    return f"**{scores[view]:.1f}**" if scores[view] == max(scores.values()) else f"{scores[view]:.1f}"


if __name__ == "__main__":
    main()
