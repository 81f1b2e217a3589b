"""The section on part-of-speech tagging by layer (Table 6), with named entities as a second task."""

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
    weights_text,
)
from elmo.report.sources import Sources, vectors_name

PAPER = {"CoVe": (93.3, 92.8), "biLM": (97.3, 96.8)}  # Peters et al. 2018, Table 6, accuracy on WSJ, by layer
PAPER_OTHERS = "Collobert et al. 2011 97.3, Ma and Hovy 2016 97.6, Ling et al. 2015 97.8"


def tags_section(probes: Sequence[RecordFile], sources: Sources) -> Section:
    """Table 6, the same for named entities, then every view of each model."""
    tagging, entities = select_probes(probes, "pos"), select_probes(probes, "ner")
    parts: list[Part] = ["A linear classifier on each word's vector. The paper finds that the lower layer is better."]
    if not tagging:
        command = "elmo probe pos pos/en_ewt --model default --out runs/pos.json"
        parts.append(Missing(what="parts of speech", command=command))
    else:
        parts.append(chart_by_layer("tags-by-layer", tagging, PAPER, _score, "accuracy in percent, by layer"))
    rows = paper_rows(PAPER, "-") + [_row(probe, sources) for probe in tagging]
    notes = [
        "The paper's scores are on WSJ, ours on the treebank that the record names. Other lines of the paper's table: "
        f"{PAPER_OTHERS}.",
        *mix_note(tagging, "weights learned with the classifier"),
        *limit_notes(tagging),
    ]
    head = (*HEAD, "No vectors: most frequent tag")
    caption = "Parts of speech, accuracy on test: the paper's and ours"
    parts.append(Table(caption=caption, head=head, rows=rows, notes=notes))
    if entities:
        rows = [_row(probe, sources) for probe in entities]
        caption = "Named entities, span F1 on test"
        parts.append(Table(caption=caption, head=head, rows=rows, notes=limit_notes(entities)))
    parts += [_details(probe, sources.add_probe(probe)) for probe in [*tagging, *entities]]
    return Section(key="tags", title="Parts of speech by layer (Table 6)", parts=parts)


def _score(view: Mapping[str, Any]) -> float:
    return float(view["test"])


def _row(probe: RecordFile, sources: Sources) -> list[Cell | str]:
    most_frequent_tag = f"{probe.values['scores']['most_frequent_tag']['test']:.1f}"
    return [*layer_row(probe, _score, sources), Cell(text=most_frequent_tag, source=sources.add_probe(probe))]


def _details(probe: RecordFile, key: str) -> Table:
    scores, settings = probe.values["scores"], probe.values.get("settings", {})
    task = "named entities" if probe.values["probe"] == "ner" else "parts of speech"
    best = max(view["test"] for view in scores["views"].values())
    rows: list[list[Cell | str]] = []
    for name, view in scores["views"].items():
        weights = view.get("layer_weights")
        cells = score_cells(view, ("dev", "test"), key, strong=view["test"] == best, digits=2)
        rows.append([view_name(name), *cells, "-" if weights is None else weights_text(weights)])
    rows.append(
        [
            "most frequent tag, no vectors",
            *score_cells(scores["most_frequent_tag"], ("dev", "test"), key, digits=2),
            "-",
        ]
    )
    column = f" ({settings['column']})" if settings.get("column") in ("xpos", "upos") else ""
    caption = f"{vectors_name(probe.values['vectors'])}: {task}{column}, {scores['metric']}, every view"
    return Table(caption=caption, head=("Layer", "Dev", "Test", "Mix weights"), rows=rows, collapsed=True)
