"""Sections about the biLM itself: neighbours in context (Table 4), senses, perplexities and the course of training."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from elmo.analysis.line_chart import Line, line_chart
from elmo.analysis.report.collect import Evidence, Found
from elmo.analysis.report.page import Cell, Missing, Part, Picture, Section, Sources, Table, short_path

GLOVE_PLAY = "playing, game, games, played, players, plays, player, Play, football, multiplayer"
PAPER_PERPLEXITY = 39.7


def neighbours_section(evidence: Evidence, sources: Sources) -> Section:
    """Table 4."""
    parts: list[Part] = [
        f"The paper: GloVe's neighbours of 'play' are {GLOVE_PLAY}: one list for all its senses. The biLM's neighbours "
        "of 'play' in a sentence about a game are about games, in one about the theatre about the theatre."
    ]
    if not evidence.demos and not evidence.neighbours:
        command = "elmo demo --json > runs/demo.json\n"
        command += 'elmo similar "He hopes to play for the team ." play corpus.txt --json > runs/play.json'
        parts.append(Missing(what="neighbours in context", command=command))
    for found in evidence.demos:
        parts += _demo(found, sources)
    for found in evidence.neighbours:
        parts.append(_similar(found, sources))
    return Section(key="neighbours", title="Neighbours in context (Table 4)", parts=parts)


def _demo(found: Found, sources: Sources) -> list[Part]:
    values = found.values
    model = short_path(str(values.get("model", "")))
    trained = "" if values.get("trained", True) else " (untrained)"
    facts = {"model": model, "trained": values.get("trained")}
    command = "elmo demo --json"
    key = sources.add(f"Demo on {model}{trained}", paths=[found.path], command=command, facts=facts)
    rows: list[list[Cell | str]] = []
    for query in values["neighbours"]:
        for layer, best in enumerate(query["layers"]):
            cosines = Cell(text=", ".join(f"{one['score']:.2f}" for one in best[:2]), source=key)
            rows.append([f"{query['query']} Layer {layer}", cosines, " · ".join(one["shown"] for one in best[:2])])
    parts: list[Part] = [
        Table(
            caption=f"{model}{trained}: nearest words in context (cosine), the word meant in brackets",
            head=("Word in its sentence, layer", "Cosines", "Nearest among the demo's sentences"),
            rows=rows,
            notes=["Layer 0 does not see the context; there only other words are shown."],
        )
    ]
    num_layers = len(next(iter(values["senses"].values())))
    head = ["Word"] + [
        f"layer {n}: {what}" for n in range(num_layers) for what in ("same sense", "different", "nearest")
    ]
    lines: list[list[Cell | str]] = [
        [word, *(cell for layer in layers for cell in _separation(layer, key))]
        for word, layers in values["senses"].items()
    ]
    caption = f"{model}{trained}: mean cosine of two uses of a word in the same and in different senses"
    note = "Nearest: how often the nearest other use of the word has its sense (no context: chance)."
    parts.append(Table(caption=caption, head=head, rows=lines, notes=[note]))
    expected = (values.get("language_model") or {}).get("substitutes", [])
    if expected:
        rows = [
            [Cell(text=place.get("sentence", ""), source=key), ", ".join(place.get("words", ()))] for place in expected
        ]
        caption = f"{model}{trained}: what the language model expects in the word's place"
        parts.append(Table(caption=caption, head=("Sentence", "Words"), rows=rows))
    return parts


def _separation(layer: Mapping[str, float], key: str) -> list[Cell]:
    figures = (f"{layer['within']:.2f}", f"{layer['between']:.2f}", f"{100 * layer['nearest']:.0f}%")
    return [Cell(text=figure, source=key) for figure in figures]


def _similar(found: Found, sources: Sources) -> Table:
    values = found.values
    asked = str(values.get("sentence") or values.get("query") or found.path)
    command = "elmo similar SENTENCE WORD CORPUS --json"
    facts = {name: value for name, value in values.items() if name != "neighbours"}
    key = sources.add(f"Neighbours: {asked}", paths=[found.path], command=command, facts=facts)
    rows: list[list[Cell | str]] = []
    for one in values["neighbours"][:10]:
        rows.append([Cell(text=f"{one['score']:.3f}", source=key), _around(one["tokens"], one["position"])])
    return Table(caption=f"Nearest to: {asked}", head=("Cosine", "Sentence"), rows=rows)


def _around(tokens: Sequence[str], position: int, width: int = 10) -> str:
    """The words around a position, the one meant in brackets."""
    start, end = max(0, position - width), position + width + 1
    words = [f"[{token}]" if place == position else token for place, token in enumerate(tokens)][start:end]
    return " ".join([*(["…"] if start else []), *words, *(["…"] if end < len(tokens) else [])])


def language_model_section(evidence: Evidence, sources: Sources) -> Section:
    """Perplexities on held-out text and how training went."""
    parts: list[Part] = [
        f"The paper's biLM reaches {PAPER_PERPLEXITY} (mean of both directions) on the 1B Word benchmark it was "
        "trained on, after ten epochs. Perplexities of different texts and vocabularies cannot be compared."
    ]
    if not evidence.trainings:
        parts.append(Missing(what="training", command="elmo pretrain text.txt --out runs/my-model"))
    for found in evidence.trainings:
        name = name_of_run(found.path)
        facts = {n: found.values[n] for n in ("step", "stopped", "best", "definition") if n in found.values}
        key = sources.add(
            f"Training {name}", paths=[found.path], command="elmo pretrain --config config.toml", facts=facts
        )
        course = evidence.courses.get(found.path, [])
        if len(course) > 1:
            parts.append(_course(name, course))
        parts.append(_perplexities(name, found.values["perplexity"], key))
    for found in evidence.finetunings:
        name = name_of_run(found.path)
        facts = {"coverage": found.values["coverage"]}
        key = sources.add(f"Fine-tuning {name}", paths=[found.path], command="elmo finetune MODEL TEXT", facts=facts)
        parts.append(_finetuned(name, found.values, key))
    return Section(key="language-model", title="The language model", parts=parts)


def name_of_run(path: str) -> str:
    """The folder of a training, and what its file begins with where several lie in one folder."""
    *folders, file = path.split("/")
    start = re.sub(r"\.?(report|finetune)\.json$", "", file)
    return " ".join(part for part in (folders[-1] if folders else "", start) if part) or file


def _course(name: str, course: Sequence[Mapping[str, float]]) -> Picture:
    lines = [Line(label="state reset", points=[(p["step"], p["reset"], None) for p in course])]
    carried = [(p["step"], p["carried"], None) for p in course if p.get("carried") is not None]
    if carried:
        lines.append(Line(label="state carried", points=carried))
    key = "course-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    title = f"{name}: perplexity on held-out text by step"
    svg = line_chart(key, lines, title=title, x_label="updates", y_label="perplexity", log_y=True)
    return Picture(name=key, svg=svg, caption=f"{title}; reset: each sentence from a fresh state; logarithmic")


def _perplexities(name: str, values: Mapping[str, Any], key: str) -> Table:
    rows: list[list[Cell | str]] = [
        [f"all text, state {state}", *_directions(values[state], key, strong=True)]
        for state in ("reset", "carried")
        if values.get(state)
    ]
    for source, figures in (values.get("by_source") or {}).items():
        rows.append([source.split("/")[-1].split(".")[0], *_directions(figures, key)])
    head = ("Held-out text", "Forward", "Backward", "Mean", "Predictions")
    return Table(caption=f"{name}: perplexity of held-out text", head=head, rows=rows)


def _directions(figures: Mapping[str, Any], key: str, *, strong: bool = False) -> list[Cell]:
    cells = [Cell(text=f"{figures[side]:.1f}", source=key) for side in ("forward", "backward")]
    mean = Cell(text=f"{figures['mean']:.1f}", source=key, strong=strong)
    return [*cells, mean, Cell(text=f"{figures['predictions']:,}")]


def _finetuned(name: str, values: Mapping[str, Any], key: str) -> Table:
    rows: list[list[Cell | str]] = []
    before, after = values["before"], values["after"]
    for source, figures in (before.get("by_source") or {"all": before}).items():
        then = (after.get("by_source") or {"all": after}).get(source)
        means = [((found or {}).get("reset") or {}).get("mean") for found in (figures, then)]
        cells = [Cell(text="-" if mean is None else f"{mean:.1f}", source=key) for mean in means]
        rows.append([source.split("/")[-1].split(".")[0], *cells])
    return Table(
        caption=f"{name}: perplexity before and after fine-tuning", head=("Held-out text", "Before", "After"), rows=rows
    )
