"""Sections about words in context: neighbours (Table 4), word in context, people's judgements, geometry by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from elmo.charts.line import Line, line_chart
from elmo.charts.word_map import as_svg
from elmo.report.collect import Evidence, Found
from elmo.report.page import Cell, Missing, Part, Picture, Section, Sources, Table, short_path
from elmo.report.probe_tables import figure_cells, limits, name_of, of_kind, probe_key, view_name

GLOVE_PLAY = "playing, game, games, played, players, plays, player, Play, football, multiplayer"
_SHOWN = 6  # neighbours of a query on the page; the record has all


def neighbours_section(evidence: Evidence, sources: Sources) -> Section:
    """Table 4."""
    parts: list[Part] = [
        "The paper: GloVe's neighbours of 'play' are one list for all its senses. The biLM's neighbours of 'play' in a "
        "sentence about a game are about games, in one about the theatre about the theatre."
    ]
    if not evidence.neighbours:
        command = 'elmo similar "He hopes to play for the team ." play corpus.txt --index index/ '
        command += '--beside "He wrote a play in three acts ." --json > runs/play.json'
        parts.append(Missing(what="neighbours in a corpus", command=command))
    for found in evidence.neighbours:
        parts += _similar(found, sources)
    if not evidence.demos:
        parts.append(Missing(what="senses of six words, drawn", command="elmo demo --json > runs/demo.json"))
    for found in evidence.demos:
        parts += _demo(found, sources)
    return Section(key="neighbours", title="Neighbours in context (Table 4)", parts=parts)


def _similar(found: Found, sources: Sources) -> list[Part]:
    values = found.values
    model, corpus, queries = name_of(values["vectors"]), values["corpus"], values["queries"]
    word = queries[0]["tokens"][queries[0]["position"]]
    facts = {n: values[n] for n in ("vectors", "corpus", "settings", "cosines", "versions") if n in values}
    title = f"Neighbours of '{word}' in {corpus['file']}"
    key = sources.add(title, paths=[found.path], command=str(values["command"]), facts=facts)
    rows: list[list[Cell | str]] = [["GloVe, paper", GLOVE_PLAY]] if word == "play" else []
    for one in values["without_context"]:
        words = ", ".join(near["word"] for near in one["words"])
        whose = one["vectors"]["name"] if "file_sha256" in one["vectors"] else f"{model}: {one['vectors']['name']}"
        rows.append([whose, Cell(text=words, source=key)])
    caption = f"Nearest to '{word}' without context: one list for all its senses"
    parts: list[Part] = [Table(caption=caption, head=("Vectors", "Nearest words"), rows=rows)]
    for query in queries:
        lines: list[list[Cell | str]] = [
            [Cell(text=f"{one['score']:.2f}", source=key), around(one["tokens"], one["position"])]
            for one in query["neighbours"][:_SHOWN]
        ]
        caption = f"Nearest in context, {model}: {around(query['tokens'], query['position'], 99)}"
        parts.append(Table(caption=caption, head=("Cosine", "Sentence of the corpus"), rows=lines))
    sizes = f"{corpus['sentences']:,} sentences, {corpus['words']:,} words" if corpus.get("words") else "its text"
    others = ", ".join(f"{cosine:.2f}" for cosine in next(iter(values.get("cosines", [])), [])[1:])
    apart = f" Cosine of '{word}' in the sentences asked for: {others}." if others else ""
    parts.append(f"Corpus: {corpus['file']} ({sizes}), not split by sense or topic.{apart}")
    return parts


def around(tokens: Sequence[str], position: int, width: int = 10) -> str:
    """The words around a position, the one meant in brackets."""
    start, end = max(0, position - width), position + width + 1
    words = [f"[{token}]" if place == position else token for place, token in enumerate(tokens)][start:end]
    return " ".join([*(["…"] if start else []), *words, *(["…"] if end < len(tokens) else [])])


def _demo(found: Found, sources: Sources) -> list[Part]:
    values = found.values
    model = short_path(str(values.get("model", "")))
    trained = "" if values.get("trained", True) else " (untrained)"
    facts = {"model": model, "trained": values.get("trained")}
    key = sources.add(f"Demo on {model}{trained}", paths=[found.path], command="elmo demo --json", facts=facts)
    parts: list[Part] = [_map(plane, f"{model}{trained}")] if _can_be_drawn(plane := values.get("plane") or {}) else []
    num_layers = len(next(iter(values["senses"].values())))
    head = ("Word", *(f"Layer {n}" for n in range(num_layers)))
    lines: list[list[Cell | str]] = [
        [word, *(Cell(text=_separation(layer), source=key) for layer in layers)]
        for word, layers in values["senses"].items()
    ]
    caption = f"{model}{trained}: mean cosine of two uses of a word in the same / in different senses; nearest"
    note = "Nearest: how often the nearest other use of the word has its sense (layer 0, no context: chance)."
    parts.append(Table(caption=caption, head=head, rows=lines, notes=[note]))
    rows: list[list[Cell | str]] = []
    for query in values["neighbours"]:
        for layer, best in enumerate(query["layers"]):
            cosines = Cell(text=", ".join(f"{one['score']:.2f}" for one in best[:2]), source=key)
            rows.append([f"{query['query']} Layer {layer}", cosines, " · ".join(one["shown"] for one in best[:2])])
    parts.append(
        Table(
            caption=f"{model}{trained}: nearest words among the demo's own sentences, by layer",
            head=("Word in its sentence, layer", "Cosines", "Nearest"),
            rows=rows,
            notes=["Layer 0 does not see the context; there only other words are shown."],
            folded=True,
        )
    )
    expected = (values.get("language_model") or {}).get("substitutes", [])
    if expected:
        rows = [
            [Cell(text=place.get("sentence", ""), source=key), ", ".join(place.get("words", ()))] for place in expected
        ]
        caption = f"{model}{trained}: what the language model expects in the word's place"
        parts.append(Table(caption=caption, head=("Sentence", "Words"), rows=rows))
    return parts


def _can_be_drawn(plane: Mapping[str, Any]) -> bool:
    """Whether every word has two senses and, in as many layers as the others, a point for each use."""
    whole = all(
        len(set(one["senses"])) == 2
        and all(len(layer) == len(one["senses"]) and all(len(point) == 2 for point in layer) for layer in one["points"])
        for one in plane.values()
    )
    return whole and len({len(one["points"]) for one in plane.values()}) == 1


def _map(plane: Mapping[str, Any], model: str) -> Picture:
    words = {word: (np.array(one["points"]), one["senses"]) for word, one in plane.items()}
    title = "Eight uses of each word, by layer: two principal components"
    senses = "; ".join(f"{word}: {' and '.join(dict.fromkeys(one['senses']))}" for word, one in plane.items())
    alt = f"Points of two colours for two senses. Without context (layer 0) they fall on one point; {senses}."
    caption = f"{model}: uses of six words in two senses each (circle, square), drawn without knowing them"
    return Picture(name="words-in-context", svg=as_svg(words, title), caption=caption, alone=True, alt=alt)


def _separation(layer: Mapping[str, float]) -> str:
    return f"{layer['within']:.2f} / {layer['between']:.2f}; {100 * layer['nearest']:.0f}%"


def contexts_section(evidence: Evidence, sources: Sources) -> Section:
    """Word in context, people's judgements, and anisotropy and self-similarity by layer."""
    parts: list[Part] = _word_in_context(evidence.probes, sources)
    parts += _judgements(evidence.probes, sources)
    if not evidence.geometries:
        command = "elmo geometry text.txt --model default --out runs/geometry.json"
        parts.append(Missing(what="anisotropy and self-similarity by layer", command=command))
    for number, one in enumerate(evidence.geometries, start=1):
        parts += _geometry(one, sources, f"geometry-{number}")
    return Section(key="contexts", title="How contextual the layers are", parts=parts)


def _word_in_context(probes: Sequence[Found], sources: Sources) -> list[Part]:
    pairs = of_kind(probes, "wic")
    if not pairs:
        command = "elmo probe wic wic/ --model default --out runs/wic.json"
        what = "word in context (do two sentences use a word in the same sense?)"
        return [Missing(what=what, command=command)]
    rows: list[list[Cell | str]] = []
    means: list[list[Cell | str]] = []
    for one in pairs:
        scores, key = one.values["scores"], probe_key(one, sources)
        best = max(forms[form]["dev"] for forms in scores["views"].values() for form in ("plain", "centred"))
        for view, forms in scores["views"].items():
            cells = [figure_cells(forms[form], ("dev",), key, strong=forms[form]["dev"] == best)[0]
                     for form in ("plain", "centred")]  # fmt: skip
            lines = rows if view.isdigit() else means
            lines.append([f"{name_of(one.values['vectors'])}, {view_name(view)}", *cells])
    rows.append(["always the same, no vectors", *figure_cells(scores["always_same"], ("dev",), key), "-"])
    text = (
        "Word in Context: do two sentences use a word in the same sense? A threshold on the cosine, fitted on the "
        "training pairs. Static vectors see one vector twice and cannot tell unless the forms differ."
    )
    head = ("Vectors, layer", "Plain", "Centred")
    caption = "Word in context, accuracy on dev in percent"  # the answers of test are withheld
    parts: list[Part] = [text, Table(caption=caption, head=head, rows=rows, notes=limits(pairs))]
    if means:
        parts.append(Table(caption="Word in context: means of layers", head=head, rows=means, folded=True))
    return parts


def _judgements(probes: Sequence[Found], sources: Sources) -> list[Part]:
    found = of_kind(probes, "similarity")
    if not found:
        command = "elmo probe similarity ratings.txt --model default --out runs/similarity.json"
        what = "correlation with people's judgements; no such set (SCWS, CoSimLex) is among the data of these records"
        return [Missing(what=what, command=command)]
    rows: list[list[Cell | str]] = []
    for one in found:
        key = probe_key(one, sources)
        for view, forms in one.values["scores"]["views"].items():
            cells = [cell for form in ("plain", "centred")
                     for cell in figure_cells(forms[form], ("spearman", "pearson"), key, digits=3)]  # fmt: skip
            rows.append([f"{name_of(one.values['vectors'])}, {view_name(view)}", *cells])
    head = ("Vectors, layer", "Spearman", "Pearson", "Spearman, centred", "Pearson, centred")
    return [Table(caption="Likeness in context: correlation with people", head=head, rows=rows, notes=limits(found))]


def _geometry(one: Found, sources: Sources, name: str) -> list[Part]:
    values = one.values
    facts = {key: value for key, value in values.items() if key != "geometry"}
    model = name_of(values.get("vectors", {}))
    command = str(values.get("command", "elmo geometry TEXT"))
    key = sources.add(f"Geometry of {model}", paths=[one.path], command=command, facts=facts)
    layers = values["geometry"]
    lines = [
        Line(label=label, points=[(layer["layer"], round(layer[measure], 4), None) for layer in layers])
        for label, measure in (("same word", "self_similarity"), ("different words", "anisotropy"))
    ]
    title = f"{model}: mean cosine between occurrences by layer"
    ticks = [float(layer["layer"]) for layer in layers]
    svg = line_chart(name, lines, title=title, x_label="layer", y_label="mean cosine", x_ticks=ticks)
    names = ("anisotropy", "self_similarity", "sentence_similarity", "norm")
    rows: list[list[Cell | str]] = [
        [view_name(str(layer["layer"])), *figure_cells(layer, names, key, digits=3)] for layer in layers
    ]
    head = ("Layer", "Different words (anisotropy)", "Same word (self-similarity)", "Word and its sentence", "Length")
    caption = f"{model}: mean cosines between occurrences, and the vectors' mean length"
    note = "A layer is more contextual the lower its same-word cosine is, and more even the lower its anisotropy."
    text = f"{title}; layer 0 sees no context, so all uses of a word are one vector"
    return [
        Picture(name=name, svg=svg, caption=text),
        Table(caption=caption, head=head, rows=rows, notes=[note]),
    ]
