"""The section on how contextual the layers are: Word in Context, human similarity judgements, geometry."""

from __future__ import annotations

from collections.abc import Sequence

from elmo.charts.line import Line, line_chart
from elmo.report.collect import RecordFile, Records
from elmo.report.page import Cell, Missing, Part, Picture, Section, Table
from elmo.report.probe_tables import limit_notes, score_cells, select_probes, view_name
from elmo.report.sources import Sources, vectors_name


def contexts_section(records: Records, sources: Sources) -> Section:
    """Word in Context, correlation with human judgements, and anisotropy and self-similarity by layer."""
    parts = [*_word_in_context(records.probes, sources), *_judgements(records.probes, sources)]
    if not records.geometries:
        command = "elmo geometry text.txt --model default --out runs/geometry.json"
        parts.append(Missing(what="anisotropy and self-similarity by layer", command=command))
    for number, record in enumerate(records.geometries, start=1):
        parts += _geometry(record, sources, f"geometry-{number}")
    return Section(key="contexts", title="How contextual the layers are", parts=parts)


def _word_in_context(probes: Sequence[RecordFile], sources: Sources) -> list[Part]:
    probes = select_probes(probes, "wic")
    if not probes:
        command = "elmo probe wic wic/ --model default --out runs/wic.json"
        what = "word in context (do two sentences use a word in the same sense?)"
        return [Missing(what=what, command=command)]
    layer_rows: list[list[Cell | str]] = []
    mean_rows: list[list[Cell | str]] = []
    for probe in probes:
        scores, key = probe.values["scores"], sources.add_probe(probe)
        best = max(forms[form]["dev"] for forms in scores["views"].values() for form in ("plain", "centred"))
        for view, forms in scores["views"].items():
            cells = [score_cells(forms[form], ("dev",), key, strong=forms[form]["dev"] == best)[0]
                     for form in ("plain", "centred")]  # fmt: skip
            rows = layer_rows if view.isdigit() else mean_rows
            rows.append([f"{vectors_name(probe.values['vectors'])}, {view_name(view)}", *cells])
    layer_rows.append(["always the same, no vectors", *score_cells(scores["always_same"], ("dev",), key), "-"])
    text = (
        "Word in Context: do two sentences use a word in the same sense? The answer is a threshold on the cosine, "
        "fitted on the training pairs. Static vectors are equal in both sentences unless the word's forms differ."
    )
    head = ("Vectors, layer", "Plain", "Centred")
    caption = "Word in context, accuracy on dev in percent"  # the answers of test are withheld
    parts: list[Part] = [text, Table(caption=caption, head=head, rows=layer_rows, notes=limit_notes(probes))]
    if mean_rows:
        parts.append(Table(caption="Word in context: means of layers", head=head, rows=mean_rows, collapsed=True))
    return parts


def _judgements(probes: Sequence[RecordFile], sources: Sources) -> list[Part]:
    probes = select_probes(probes, "similarity")
    if not probes:
        command = "elmo probe similarity ratings.txt --model default --out runs/similarity.json"
        what = "correlation with human judgements; the data of these records has no such set (SCWS, CoSimLex)"
        return [Missing(what=what, command=command)]
    rows: list[list[Cell | str]] = []
    for probe in probes:
        key = sources.add_probe(probe)
        for view, forms in probe.values["scores"]["views"].items():
            cells = [cell for form in ("plain", "centred")
                     for cell in score_cells(forms[form], ("spearman", "pearson"), key, digits=3)]  # fmt: skip
            rows.append([f"{vectors_name(probe.values['vectors'])}, {view_name(view)}", *cells])
    head = ("Vectors, layer", "Spearman", "Pearson", "Spearman, centred", "Pearson, centred")
    caption = "Similarity in context: correlation with human judgements"
    return [Table(caption=caption, head=head, rows=rows, notes=limit_notes(probes))]


def _geometry(record: RecordFile, sources: Sources, name: str) -> list[Part]:
    values = record.values
    facts = {key: value for key, value in values.items() if key != "geometry"}
    model = vectors_name(values.get("vectors", {}))
    command = str(values.get("command") or "elmo geometry TEXT")
    key = sources.add(f"Geometry of {model}", paths=[record.path], command=command, facts=facts)
    layers = values["geometry"]
    lines = [
        Line(label=label, points=[(layer["layer"], round(layer[measure], 4), None) for layer in layers])
        for label, measure in (("same word", "self_similarity"), ("different words", "anisotropy"))
    ]
    title = f"{model}: mean cosine between occurrences by layer"
    ticks = [float(layer["layer"]) for layer in layers]
    svg = line_chart(name, lines, title=title, x_label="layer", y_label="mean cosine", x_ticks=ticks)
    columns = ("anisotropy", "self_similarity", "sentence_similarity", "norm")
    rows: list[list[Cell | str]] = [
        [view_name(str(layer["layer"])), *score_cells(layer, columns, key, digits=3)] for layer in layers
    ]
    table = Table(
        caption=f"{model}: mean cosines between occurrences, and the vectors' mean length",
        head=(
            "Layer",
            "Different words (anisotropy)",
            "Same word (self-similarity)",
            "Word and its sentence",
            "Length",
        ),
        rows=rows,
        notes=["A lower same-word cosine means a more contextual layer, a lower anisotropy a more even one."],
    )
    caption = f"{title}; layer 0 has no context, so that all uses of a word are one vector"
    return [Picture(name=name, svg=svg, caption=caption), table]
