"""The section on word sense disambiguation by layer (Table 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elmo.report.collect import RecordFile
from elmo.report.page import Cell, Missing, Part, Section, Table
from elmo.report.probe_tables import (
    HEAD,
    chart_by_layer,
    layer_row,
    limit_notes,
    mix_note,
    paper_rows,
    score_cells,
    select_probes,
    view_name,
)
from elmo.report.sources import Sources, vectors_name

PAPER = {"CoVe": (59.4, 64.7), "biLM": (67.4, 69.0)}  # Peters et al. 2018, Table 5, F1 on all words, by layer
PAPER_FIRST_SENSE = "65.9"
PAPER_OTHERS = "WordNet first sense 65.9, Raganato et al. 2017a 69.9, Iacobacci et al. 2016 70.1"


def senses_section(probes: Sequence[RecordFile], sources: Sources) -> Section:
    """Table 5: F1 by layer, then every view of each model by evaluation set."""
    probes = select_probes(probes, "wsd")
    parts: list[Part] = [
        "Every sense's vector is the average of its uses in SemCor; a word gets the nearest sense, or WordNet's first "
        "sense if SemCor lacks its lemma. The paper finds that the upper layer is better."
    ]
    if not probes:
        parts.append(Missing(what="word senses", command="elmo probe wsd wsd/ --model default --out runs/wsd.json"))
    else:
        parts.append(chart_by_layer("senses-by-layer", probes, PAPER, _score, "F1 on all words, by layer"))
    rows = paper_rows(PAPER, PAPER_FIRST_SENSE)
    for probe in probes:
        first_sense = f"{probe.values['scores']['wordnet_first_sense']['ALL']:.1f}"
        cell = Cell(text=first_sense, source=sources.add_probe(probe))
        rows.append([*layer_row(probe, _score, sources), cell])
    notes = [
        f"Other lines of the paper's table: {PAPER_OTHERS}.",
        *mix_note(probes, "weights chosen on SemEval 2007"),
        *limit_notes(probes),
    ]
    head = (*HEAD, "No vectors: first sense")
    parts.append(Table(caption="F1 on all words: the paper's and ours", head=head, rows=rows, notes=notes))
    parts += [_details(probe, sources.add_probe(probe)) for probe in probes]
    return Section(key="senses", title="Word senses by layer (Table 5)", parts=parts)


def _score(view: Mapping[str, Any]) -> float:
    return float(view["plain"]["ALL"])


def _details(probe: RecordFile, key: str) -> Table:
    scores = probe.values["scores"]
    columns = [name for name in scores["wordnet_first_sense"] if name != "ALL_but_dev"]
    best = max(forms["plain"]["ALL"] for forms in scores["views"].values())
    rows: list[list[Cell | str]] = []
    for view, forms in scores["views"].items():
        strong = forms["plain"]["ALL"] == best
        rows.append([view_name(view), *score_cells(forms["plain"], columns, key, strong=strong)])
    for view, forms in scores["views"].items():
        if "tuned" in forms:
            rows.append([f"{view_name(view)}, tuned", *score_cells(forms["tuned"], columns, key)])
    rows.append(["WordNet first sense", *score_cells(scores["wordnet_first_sense"], columns, key)])
    rows.append(["SemCor most frequent", *score_cells(scores["semcor_most_frequent"], columns, key)])
    has_tuned = any("tuned" in forms for forms in scores["views"].values())
    notes = (
        ["Tuned: form and prior are chosen on SemEval 2007, so its column is not a test score."] if has_tuned else []
    )
    title = f"{vectors_name(probe.values['vectors'])}: F1 by set and part of speech, every view"
    return Table(caption=title, head=("Layer", *columns), rows=rows, notes=notes, collapsed=True)
