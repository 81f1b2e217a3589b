"""Sections from probes: word senses (Table 5), parts of speech (Table 6) and named entities, by layer."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elmo.charts.layers import Dots, layer_chart
from elmo.report.collect import Found
from elmo.report.page import Cell, Missing, Part, Picture, Section, Sources, Table

# Peters et al. 2018, Table 5 (all-words F1) and Table 6 (accuracy on WSJ): by layer, and the other lines
WSD_PAPER = {"CoVe": (59.4, 64.7), "biLM": (67.4, 69.0)}
WSD_OTHERS = "WordNet first sense 65.9, Raganato et al. 2017a 69.9, Iacobacci et al. 2016 70.1"
POS_PAPER = {"CoVe": (93.3, 92.8), "biLM": (97.3, 96.8)}
POS_OTHERS = "Collobert et al. 2011 97.3, Ma and Hovy 2016 97.6, Ling et al. 2015 97.8"
_HEAD = ("Vectors", "Tokens (layer 0)", "Layer 1", "Top layer", "Learned mix", "Side by side")
_OF_A_FIT = {"epochs": 12, "seed": 0}  # what `elmo probe` does unless told otherwise
_NO_LIMIT: Mapping[str, Any] = {}


def of_kind(probes: Sequence[Found], *kinds: str) -> list[Found]:
    """Records of these probes; those of biLMs first, for they are what the page is about."""
    found = [found for found in probes if found.values["probe"] in kinds]
    return sorted(found, key=lambda one: "trained" not in one.values["vectors"])


def name_of(vectors: Mapping[str, Any]) -> str:
    """Whose vectors a probe read."""
    name = str(vectors.get("name") or "vectors").rstrip("/").replace("\\", "/").split("/")[-1]
    return f"{name} (untrained)" if vectors.get("trained") is False else name


def probe_key(found: Found, sources: Sources) -> str:
    """The record's place among the page's sources."""
    record = found.values
    title = f"Probe {record['probe']} on {name_of(record['vectors'])}"
    facts = {
        name: record[name] for name in ("vectors", "data", "settings", "counts", "made", "versions") if name in record
    }
    return sources.add(title, paths=[found.path], command=probe_command(record), facts=facts)


def probe_command(record: Mapping[str, Any]) -> str:
    """The command that asks for the record again; where it was not kept, DATA is a folder with the files it names."""
    if "command" in record:
        return str(record["command"])
    vectors, settings, kind = record["vectors"], record.get("settings", {}), str(record["probe"])
    if "file_sha256" in vectors and vectors.get("layers", 1) > 1:  # vectors of another program
        call = f'from elmo.probes.run import run_probe; run_probe("{kind}", VECTORS, [DATA])'
        return shlex.join(["python", "-c", call])
    named = record.get("data", {}).values() if kind in ("pos", "ner", "similarity") else ()
    files = [str(about["file"]) for about in named if "file" in about]
    source = "--vectors" if "file_sha256" in vectors else "--model"
    words = ["elmo", "probe", kind, *(files or ["DATA"]), source, str(vectors["name"])]
    if settings.get("column") == "upos":
        words += ["--column", "upos"]
    for name, usual in _OF_A_FIT.items():
        if settings.get(name, usual) != usual:
            words += [f"--{name}", str(settings[name])]
    if settings.get("limit"):
        words += ["--limit", str(settings["limit"])]
    return shlex.join(words)


def limits(found: Sequence[Found]) -> list[str]:
    """What a reader must know of records that read only part of their files."""
    return [
        f"{name_of(f.values['vectors'])}: the first {f.values['settings']['limit']} sentences of each file alone."
        for f in found
        if f.values.get("settings", {}).get("limit")
    ]


def wsd_section(probes: Sequence[Found], sources: Sources) -> Section:
    """Table 5."""
    found = of_kind(probes, "wsd")
    parts: list[Part] = [
        "Every sense's vector is the average of its uses in SemCor; a word gets the nearest, or WordNet's first sense "
        "where SemCor lacks its lemma. The paper finds the upper layer better."
    ]
    if not found:
        parts.append(Missing(what="word senses", command="elmo probe wsd wsd/ --model default --out runs/wsd.json"))
    else:
        parts.append(_chart("senses-by-layer", found, WSD_PAPER, _sense_figure, "F1 on all words, by layer"))
    head = (*_HEAD, "No vectors: first sense")
    rows = _paper_rows(WSD_PAPER, "65.9")
    for one in found:
        first = Cell(text=f"{one.values['scores']['wordnet_first_sense']['ALL']:.1f}", source=probe_key(one, sources))
        rows.append([*_by_layer(one, _sense_figure, sources), first])
    notes = [f"Also in the paper's table: {WSD_OTHERS}.", *_mix_notes(found, "weights chosen on SemEval 2007")]
    parts.append(
        Table(caption="F1 on all words: the paper's and ours", head=head, rows=rows, notes=[*notes, *limits(found)])
    )
    parts += [_sense_details(one, probe_key(one, sources)) for one in found]
    return Section(key="senses", title="Word senses by layer (Table 5)", parts=parts)


def _sense_figure(view: Mapping[str, Any]) -> float:
    return float(view["plain"]["ALL"])


def _sense_details(one: Found, key: str) -> Table:
    scores = one.values["scores"]
    columns = [name for name in scores["wordnet_first_sense"] if name != "ALL_but_dev"]
    best = max(forms["plain"]["ALL"] for forms in scores["views"].values())
    rows: list[list[Cell | str]] = []
    for view, forms in scores["views"].items():
        strong = forms["plain"]["ALL"] == best
        rows.append([view_name(view), *figure_cells(forms["plain"], columns, key, strong=strong)])
    for view, forms in scores["views"].items():
        if "tuned" in forms:
            rows.append([f"{view_name(view)}, tuned", *figure_cells(forms["tuned"], columns, key)])
    rows.append(["WordNet first sense", *figure_cells(scores["wordnet_first_sense"], columns, key)])
    rows.append(["SemCor most frequent", *figure_cells(scores["semcor_most_frequent"], columns, key)])
    has_tuned = any("tuned" in forms for forms in scores["views"].values())
    notes = ["Tuned: form and prior chosen on SemEval 2007, whose column is then no test figure."] if has_tuned else []
    title = f"{name_of(one.values['vectors'])}: F1 by set and part of speech, every view"
    return Table(caption=title, head=("Layer", *columns), rows=rows, notes=notes, folded=True)


def pos_section(probes: Sequence[Found], sources: Sources) -> Section:
    """Table 6, and the same for named entities."""
    found = of_kind(probes, "pos")
    parts: list[Part] = ["A linear classifier on each word's vector alone. The paper finds the lower layer better."]
    if not found:
        command = "elmo probe pos pos/en_ewt --model default --out runs/pos.json"
        parts.append(Missing(what="parts of speech", command=command))
    else:
        parts.append(_chart("tags-by-layer", found, POS_PAPER, _tag_figure, "accuracy in percent, by layer"))
    rows = _paper_rows(POS_PAPER, "-") + [_tag_row(one, sources) for one in found]
    notes = [f"The paper's are on WSJ, ours on the treebank the record names. There also: {POS_OTHERS}."]
    head = (*_HEAD, "No vectors: usual tag")
    caption = "Parts of speech, accuracy on test: the paper's and ours"
    notes += [*_mix_notes(found, "weights learned with the classifier"), *limits(found)]
    parts.append(Table(caption=caption, head=head, rows=rows, notes=notes))
    names = of_kind(probes, "ner")
    if names:
        rows = [_tag_row(one, sources) for one in names]
        parts.append(Table(caption="Named entities, span F1 on test", head=head, rows=rows, notes=limits(names)))
    parts += [_tag_details(one, probe_key(one, sources)) for one in [*found, *names]]
    return Section(key="tags", title="Parts of speech by layer (Table 6)", parts=parts)


def _tag_figure(view: Mapping[str, Any]) -> float:
    return float(view["test"])


def _tag_row(one: Found, sources: Sources) -> list[Cell | str]:
    usual = Cell(text=f"{one.values['scores']['usual_tag']['test']:.1f}", source=probe_key(one, sources))
    return [*_by_layer(one, _tag_figure, sources), usual]


def _tag_details(one: Found, key: str) -> Table:
    scores, settings = one.values["scores"], one.values.get("settings", _NO_LIMIT)
    what = "named entities" if one.values["probe"] == "ner" else "parts of speech"
    best = max(row["test"] for row in scores["views"].values())
    rows: list[list[Cell | str]] = []
    for view, row in scores["views"].items():
        weights = row.get("layer_weights")
        rows.append(
            [view_name(view), *figure_cells(row, ("dev", "test"), key, strong=row["test"] == best, digits=2),
             "-" if weights is None else " ".join(f"{weight:.2f}" for weight in weights)]
        )  # fmt: skip
    rows.append(["usual tag, no vectors", *figure_cells(scores["usual_tag"], ("dev", "test"), key, digits=2), "-"])
    kind = f" ({settings['column']})" if settings.get("column") in ("xpos", "upos") else ""
    caption = f"{name_of(one.values['vectors'])}: {what}{kind}, {scores['metric']}, every view"
    return Table(caption=caption, head=("Layer", "Dev", "Test", "Mix weights"), rows=rows, folded=True)


def _chart(
    name: str,
    found: Sequence[Found],
    paper: Mapping[str, tuple[float, float]],
    figure: Callable[[Mapping[str, Any]], float],
    x_label: str,
) -> Picture:
    rows = [Dots(label=f"{whose}, paper", figures=dict(zip("12", pair, strict=True)), ours=False)
            for whose, pair in paper.items()]  # fmt: skip
    for one in found:
        views = one.values["scores"]["views"]
        layers = [view for view in views if view.isdigit()]
        shown = {
            view: figure(views[view]) for view in (*layers, *(["mix"] if len(layers) < 5 and "mix" in views else []))
        }
        rows.append(Dots(label=name_of(one.values["vectors"]), figures=shown))
    caption = f"{x_label[0].upper()}{x_label[1:]}: the paper's square, ours round; 0 sees no context"
    return Picture(name=name, svg=layer_chart(name, rows, title=caption, x_label=x_label), caption=caption)


def _by_layer(one: Found, figure: Callable[[Mapping[str, Any]], float], sources: Sources) -> list[Cell | str]:
    """The name of the vectors and a figure for each column of _HEAD."""
    views, key = one.values["scores"]["views"], probe_key(one, sources)
    numbers = sorted(int(view) for view in views if view.isdigit())
    wanted = ("0", "1", str(numbers[-1]) if numbers and numbers[-1] > 1 else "", "mix", "concat")
    shown = [view for view in wanted if view in views]
    best = max((figure(views[view]) for view in shown), default=0.0)
    cells: list[Cell | str] = [name_of(one.values["vectors"])]
    for view in wanted:
        value = figure(views[view]) if view in views else None
        strong = value == best and len(shown) > 1
        cells.append("-" if value is None else Cell(text=f"{value:.1f}", source=key, strong=strong))
    return cells


def _paper_rows(paper: Mapping[str, tuple[float, float]], last: str) -> list[list[Cell | str]]:
    return [[f"{name}, paper", "-", str(low), str(high), "-", "-", last if name == "biLM" else "-"]
            for name, (low, high) in paper.items()]  # fmt: skip


def _mix_notes(found: Sequence[Found], how: str) -> list[str]:
    said = []
    for one in found:
        view = one.values["scores"]["views"].get("mix", {})
        weights = view.get("layer_weights") or view.get("plain", {}).get("layer_weights")
        if weights:
            said.append(f"{name_of(one.values['vectors'])} {' '.join(f'{weight:.2f}' for weight in weights)}")
    return [f"Learned mix ({how}): {'; '.join(said)}."] if said else []


def view_name(name: str) -> str:
    """A view of the layers as the page calls it."""
    if name == "0":
        return "tokens (layer 0)"
    if name == "concat":
        return "side by side"
    return f"layer {name}" if name.isdigit() else f"layers {name}" if name[:1].isdigit() else name


def figure_cells(
    row: Mapping[str, Any], columns: Sequence[str], key: str, *, strong: bool = False, digits: int = 1
) -> list[Cell | str]:
    """A linked figure for each column, "-" where the row has none."""
    return [Cell(text=f"{row[name]:.{digits}f}", source=key, strong=strong) if name in row else "-" for name in columns]
