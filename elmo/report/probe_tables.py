"""Pieces that the sections about probes share: selecting records, names of layers, rows and charts by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elmo.charts.layers import Dots, layer_chart
from elmo.report.collect import RecordFile
from elmo.report.page import Cell, Picture
from elmo.report.sources import Sources, vectors_name

HEAD = ("Vectors", "Tokens (layer 0)", "Layer 1", "Top layer", "Learned mix", "Concatenated")
ScoreOf = Callable[[Mapping[str, Any]], float]  # the score of one view of the layers


def select_probes(probes: Sequence[RecordFile], *names: str) -> list[RecordFile]:
    """The records of the named probes; biLMs come first, because the page is about them."""
    selected = [probe for probe in probes if probe.values["probe"] in names]
    return sorted(selected, key=lambda probe: "trained" not in probe.values["vectors"])


def limit_notes(probes: Sequence[RecordFile]) -> list[str]:
    """One note for each record that was measured on a part of its files."""
    return [
        f"{vectors_name(probe.values['vectors'])}: only the first {probe.values['settings']['limit']} sentences of "
        "each file."
        for probe in probes
        if probe.values.get("settings", {}).get("limit")
    ]


def mix_note(probes: Sequence[RecordFile], origin: str) -> list[str]:
    """A note with the learned mix weights of all records that have them; `origin` says how they were learned."""
    texts = []
    for probe in probes:
        view = probe.values["scores"]["views"].get("mix", {})
        weights = view.get("layer_weights") or view.get("plain", {}).get("layer_weights")
        if weights:
            texts.append(f"{vectors_name(probe.values['vectors'])} {weights_text(weights)}")
    return [f"Learned mix ({origin}): {'; '.join(texts)}."] if texts else []


def weights_text(weights: Sequence[float]) -> str:
    return " ".join(f"{weight:.2f}" for weight in weights)


def view_name(view: str) -> str:
    """The name of a view of the layers, such as "0", "1-2", "mix" or "concat", on the page."""
    if view == "0":
        return "tokens (layer 0)"
    if view == "concat":
        return "concatenated"
    return f"layer {view}" if view.isdigit() else f"layers {view}" if view[:1].isdigit() else view


def score_cells(
    scores: Mapping[str, Any], columns: Sequence[str], key: str, *, strong: bool = False, digits: int = 1
) -> list[Cell | str]:
    """One linked score for each column, "-" where there is none."""
    return [
        Cell(text=f"{scores[column]:.{digits}f}", source=key, strong=strong) if column in scores else "-"
        for column in columns
    ]


def layer_row(probe: RecordFile, score_of: ScoreOf, sources: Sources) -> list[Cell | str]:
    """The name of the vectors and one score for each other column of HEAD."""
    views, key = probe.values["scores"]["views"], sources.add_probe(probe)
    layers = sorted(int(view) for view in views if view.isdigit())
    columns = ("0", "1", str(layers[-1]) if layers and layers[-1] > 1 else "", "mix", "concat")
    scores = {view: score_of(views[view]) for view in columns if view in views}
    best = max(scores.values(), default=0.0)
    cells: list[Cell | str] = [vectors_name(probe.values["vectors"])]
    for view in columns:
        strong = scores.get(view) == best and len(scores) > 1
        cells.append(Cell(text=f"{scores[view]:.1f}", source=key, strong=strong) if view in scores else "-")
    return cells


def paper_rows(paper: Mapping[str, tuple[float, float]], without_vectors: str) -> list[list[Cell | str]]:
    """Rows with the paper's scores of the first and top layer; `without_vectors` is the biLM's last column."""
    return [[f"{name}, paper", "-", str(first), str(top), "-", "-", without_vectors if name == "biLM" else "-"]
            for name, (first, top) in paper.items()]  # fmt: skip


def chart_by_layer(
    name: str, probes: Sequence[RecordFile], paper: Mapping[str, tuple[float, float]], score_of: ScoreOf, x_label: str
) -> Picture:
    """The scores of all layers as dots, the paper's above ours; a learned mix is shown for models with few layers."""
    rows = [
        Dots(label=f"{model}, paper", figures={"1": first, "2": top}, ours=False)
        for model, (first, top) in paper.items()
    ]
    for probe in probes:
        views = probe.values["scores"]["views"]
        shown = [view for view in views if view.isdigit()]
        if len(shown) < 5 and "mix" in views:
            shown.append("mix")
        scores = {view: score_of(views[view]) for view in shown}
        rows.append(Dots(label=vectors_name(probe.values["vectors"]), figures=scores))
    caption = f"{x_label[0].upper()}{x_label[1:]}: the paper's square, ours round; layer 0 has no context"
    return Picture(name=name, svg=layer_chart(name, rows, title=caption, x_label=x_label), caption=caption)
