"""Sections from probes and measured geometry: Tables 5 and 6, word in context, how contextual the layers are."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from elmo.analysis.report.collect import Found
from elmo.analysis.report.page import Cell, Missing, Part, Section, Sources, Table

WSD_PAPER = (  # Peters et al. 2018, Table 5: all-words F1
    ("WordNet first sense", 65.9), ("Raganato et al. 2017a", 69.9), ("Iacobacci et al. 2016", 70.1),
    ("CoVe, layer 1", 59.4), ("CoVe, layer 2", 64.7), ("biLM, layer 1", 67.4), ("biLM, layer 2", 69.0),
)  # fmt: skip
POS_PAPER = (  # Table 6: accuracy on WSJ
    ("Collobert et al. 2011", 97.3), ("Ma and Hovy 2016", 97.6), ("Ling et al. 2015", 97.8),
    ("CoVe, layer 1", 93.3), ("CoVe, layer 2", 92.8), ("biLM, layer 1", 97.3), ("biLM, layer 2", 96.8),
)  # fmt: skip
_OF_A_FIT = {"epochs": 12, "seed": 0}  # what `elmo probe` does unless told otherwise


def of_kind(probes: Sequence[Found], *kinds: str) -> list[Found]:
    """Records of these probes."""
    return [found for found in probes if found.values["probe"] in kinds]


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
    """The command that asks for the record again, DATA standing for the files the record names."""
    vectors, settings = record["vectors"], record.get("settings", {})
    static = "file_sha256" in vectors
    words = ["elmo", "probe", str(record["probe"]), "DATA", "--vectors" if static else "--model", str(vectors["name"])]
    if settings.get("column") == "upos":
        words += ["--column", "upos"]
    for name, usual in _OF_A_FIT.items():
        if settings.get(name, usual) != usual:
            words += [f"--{name}", str(settings[name])]
    if settings.get("limit"):
        words += ["--limit", str(settings["limit"])]
    return shlex.join(words)


def _limits(found: Sequence[Found]) -> list[str]:
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
        "where SemCor lacks its lemma. The paper finds the upper layer better.",
        Table(caption="The paper's Table 5: F1 on all words", head=("Vectors", "F1"), rows=_paper_rows(WSD_PAPER)),
    ]
    if not found:
        parts.append(Missing(what="word senses", command="elmo probe wsd wsd/ --model default --out runs/wsd.json"))
    for one in found:
        scores, key = one.values["scores"], probe_key(one, sources)
        columns = [name for name in scores["wordnet_first_sense"] if name != "ALL_but_dev"]
        best = max(forms["plain"]["ALL"] for forms in scores["views"].values())
        rows: list[list[Cell | str]] = []
        for view, forms in scores["views"].items():
            rows.append([_view(view), *_figures(forms["plain"], columns, key, strong=forms["plain"]["ALL"] == best)])
        for view, forms in scores["views"].items():
            if "tuned" in forms:
                rows.append([f"{_view(view)}, tuned", *_figures(forms["tuned"], columns, key)])
        rows.append(["WordNet first sense", *_figures(scores["wordnet_first_sense"], columns, key)])
        rows.append(["SemCor most frequent", *_figures(scores["semcor_most_frequent"], columns, key)])
        notes = ["Tuned: form and prior chosen on SemEval 2007, whose column is then no test figure."] if any(
            "tuned" in forms for forms in scores["views"].values()
        ) else []  # fmt: skip
        title = f"{name_of(one.values['vectors'])}: F1 in percent, all words and by set and part of speech"
        parts.append(Table(caption=title, head=("Layer", *columns), rows=rows, notes=[*notes, *_limits([one])]))
    return Section(key="senses", title="Word senses by layer (Table 5)", parts=parts)


def pos_section(probes: Sequence[Found], sources: Sources) -> Section:
    """Table 6, and the same for named entities."""
    found = [*of_kind(probes, "pos"), *of_kind(probes, "ner")]
    parts: list[Part] = [
        "A linear classifier on each word's vector alone. The paper finds the lower layer better.",
        Table(
            caption="The paper's Table 6: accuracy on WSJ", head=("Vectors", "Accuracy"), rows=_paper_rows(POS_PAPER)
        ),
    ]
    if not any(one.values["probe"] == "pos" for one in found):
        command = "elmo probe pos pos/en_ewt --model default --out runs/pos.json"
        parts.append(Missing(what="parts of speech", command=command))
    for one in found:
        scores, key = one.values["scores"], probe_key(one, sources)
        what = "named entities" if one.values["probe"] == "ner" else "parts of speech"
        column = one.values.get("settings", {}).get("column", "")
        best = max(row["test"] for row in scores["views"].values())
        rows: list[list[Cell | str]] = []
        for view, row in scores["views"].items():
            weights = row.get("layer_weights")
            rows.append(
                [_view(view), *_figures(row, ("dev", "test"), key, strong=row["test"] == best, digits=2),
                 "-" if weights is None else " ".join(f"{weight:.2f}" for weight in weights)]
            )  # fmt: skip
        rows.append(["usual tag, no vectors", *_figures(scores["usual_tag"], ("dev", "test"), key, digits=2), "-"])
        kind = f" ({column})" if column in ("xpos", "upos") else ""
        caption = f"{name_of(one.values['vectors'])}: {what}{kind}, {scores['metric']} in percent"
        head = ("Layer", "Dev", "Test", "Mix weights")
        parts.append(Table(caption=caption, head=head, rows=rows, notes=_limits([one])))
    return Section(key="tags", title="Parts of speech by layer (Table 6)", parts=parts)


def contexts_section(probes: Sequence[Found], geometries: Sequence[Found], sources: Sources) -> Section:
    """Word in context, and anisotropy and self-similarity by layer."""
    parts: list[Part] = []
    pairs = of_kind(probes, "wic")
    if not pairs:
        command = "elmo probe wic wic/ --model default --out runs/wic.json"
        parts.append(Missing(what="word in context (do two sentences use a word in the same sense?)", command=command))
    for one in pairs:
        scores, key = one.values["scores"], probe_key(one, sources)
        split = "test" if "test" in scores["always_same"] else "dev"
        rows: list[list[Cell | str]] = [
            [_view(view), *(_figures(forms[form], (split,), key)[0] for form in ("plain", "centred"))]
            for view, forms in scores["views"].items()
        ]
        rows.append(["always the same", *_figures(scores["always_same"], (split,), key), "-"])
        caption = f"{name_of(one.values['vectors'])}: word in context, accuracy on {split} in percent"
        parts.append(Table(caption=caption, head=("Layer", "Plain", "Centred"), rows=rows, notes=_limits([one])))
    if not geometries:
        command = "elmo geometry text.txt --model default --out runs/geometry.json"
        parts.append(Missing(what="anisotropy and self-similarity by layer", command=command))
    for one in geometries:
        values = one.values
        facts = {name: value for name, value in values.items() if name != "geometry"}
        model = name_of(values.get("vectors", {}))
        command = str(values.get("command", "elmo geometry TEXT"))
        key = sources.add(f"Geometry of {model}", paths=[one.path], command=command, facts=facts)
        names = ("anisotropy", "self_similarity", "sentence_similarity", "norm")
        rows = [[_view(str(layer["layer"])), *_figures(layer, names, key, digits=3)] for layer in values["geometry"]]
        head = (
            "Layer",
            "Different words (anisotropy)",
            "Same word (self-similarity)",
            "Word and its sentence",
            "Length",
        )
        caption = f"{model}: mean cosines between occurrences, and the vectors' mean length"
        parts.append(Table(caption=caption, head=head, rows=rows))
    return Section(key="contexts", title="How contextual the layers are", parts=parts)


def _view(name: str) -> str:
    if name == "0":
        return "tokens (layer 0)"
    return f"layer {name}" if name.isdigit() else f"layers {name}" if name[:1].isdigit() else name


def _paper_rows(rows: Sequence[tuple[str, float]]) -> list[list[Cell | str]]:
    return [[name, str(figure)] for name, figure in rows]


def _figures(
    row: Mapping[str, Any], columns: Sequence[str], key: str, *, strong: bool = False, digits: int = 1
) -> list[Cell | str]:
    return [Cell(text=f"{row[name]:.{digits}f}", source=key, strong=strong) if name in row else "-" for name in columns]
