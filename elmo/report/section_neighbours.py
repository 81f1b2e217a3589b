"""The section on nearest neighbours in context (Table 4): in a corpus, and among the sentences of the demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from elmo.charts.word_map import word_map
from elmo.report.collect import RecordFile, Records
from elmo.report.page import Cell, Missing, Part, Picture, Section, Table
from elmo.report.sources import Sources, shorten_path, vectors_name

GLOVE_PLAY = "playing, game, games, played, players, plays, player, Play, football, multiplayer"  # the paper's Table 4
_NUM_SHOWN = 6  # neighbours of a query on the page; the record has all


def neighbours_section(records: Records, sources: Sources) -> Section:
    """Table 4 from the records of `elmo similar` and `elmo demo`."""
    parts: list[Part] = [
        "The paper: GloVe has one list of neighbours for all senses of 'play'. The biLM's neighbours of 'play' in a "
        "sentence about a game are about games, those in a sentence about the theatre are about the theatre."
    ]
    if not records.neighbours:
        command = 'elmo similar "He hopes to play for the team ." play corpus.txt --index index/ '
        command += '--beside "He wrote a play in three acts ." --json > runs/play.json'
        parts.append(Missing(what="neighbours in a corpus", command=command))
    for record in records.neighbours:
        parts += _corpus_neighbours(record, sources)
    if not records.demos:
        parts.append(Missing(what="senses of six words, drawn", command="elmo demo --json > runs/demo.json"))
    for number, record in enumerate(records.demos, start=1):
        name = "words-in-context" if number == 1 else f"words-in-context-{number}"
        parts += _demo(record, sources, name)
    return Section(key="neighbours", title="Neighbours in context (Table 4)", parts=parts)


def _corpus_neighbours(record: RecordFile, sources: Sources) -> list[Part]:
    values = record.values
    model, corpus, queries = vectors_name(values["vectors"]), values["corpus"], values["queries"]
    word = queries[0]["tokens"][queries[0]["position"]]
    facts = {name: values[name] for name in ("vectors", "corpus", "settings", "cosines", "versions") if name in values}
    title = f"Neighbours of '{word}' in {corpus['file']}"
    key = sources.add(title, paths=[record.path], command=str(values["command"]), facts=facts)
    rows: list[list[Cell | str]] = [["GloVe, paper", GLOVE_PLAY]] if word == "play" else []
    for static in values["without_context"]:
        name = static["vectors"]["name"]
        words = ", ".join(neighbour["word"] for neighbour in static["words"])
        rows.append([name if "file_sha256" in static["vectors"] else f"{model}: {name}", Cell(text=words, source=key)])
    caption = f"Nearest to '{word}' without context: one list for all its senses"
    parts: list[Part] = [Table(caption=caption, head=("Vectors", "Nearest words"), rows=rows)]
    for query in queries:
        rows = [
            [Cell(text=f"{one['score']:.2f}", source=key), mark_word(one["tokens"], one["position"])]
            for one in query["neighbours"][:_NUM_SHOWN]
        ]
        caption = f"Nearest in context, {model}: {mark_word(query['tokens'], query['position'], 99)}"
        parts.append(Table(caption=caption, head=("Cosine", "Sentence of the corpus"), rows=rows))
    size = f"{corpus['sentences']:,} sentences, {corpus['words']:,} words" if corpus.get("words") else "its text"
    cosines = ", ".join(f"{cosine:.2f}" for cosine in next(iter(values.get("cosines", [])), [])[1:])
    apart = f" Cosine of '{word}' between the query sentences: {cosines}." if cosines else ""
    parts.append(f"Corpus: {corpus['file']} ({size}), not split by sense or topic.{apart}")
    return parts


def mark_word(tokens: Sequence[str], position: int, width: int = 10, *, ellipsis: str = "…") -> str:
    """The word at a position in brackets, with up to `width` words on both sides."""
    start, end = max(0, position - width), position + width + 1
    words = [f"[{token}]" if index == position else token for index, token in enumerate(tokens)][start:end]
    return " ".join([*([ellipsis] if start else []), *words, *([ellipsis] if end < len(tokens) else [])])


def _demo(record: RecordFile, sources: Sources, picture_name: str) -> list[Part]:
    values = record.values
    model = demo_model(values)
    facts = {"model": shorten_path(str(values.get("model", ""))), "trained": values.get("trained")}
    command = str(values.get("command") or "elmo demo --json")
    key = sources.add(f"Demo on {model}", paths=[record.path], command=command, facts=facts)
    plane = values.get("plane") or {}
    parts: list[Part] = [_map(plane, model, picture_name)] if can_be_drawn(plane) else []
    parts += [_senses_table(values["senses"], model, key), _neighbours_table(values["neighbours"], model, key)]
    substitutes = (values.get("language_model") or {}).get("substitutes", [])
    if substitutes:
        rows: list[list[Cell | str]] = [
            [Cell(text=one.get("sentence", ""), source=key), ", ".join(one.get("words", ()))] for one in substitutes
        ]
        caption = f"{model}: what the language model predicts in place of the word"
        parts.append(Table(caption=caption, head=("Sentence", "Words"), rows=rows))
    return parts


def demo_model(values: Mapping[str, Any]) -> str:
    """The name of the model that a record of `elmo demo` is about."""
    return shorten_path(str(values.get("model", ""))) + ("" if values.get("trained", True) else " (untrained)")


def _senses_table(senses: Mapping[str, Sequence[Mapping[str, float]]], model: str, key: str) -> Table:
    rows: list[list[Cell | str]] = [
        [
            word,
            *(
                Cell(text=f"{one['within']:.2f} / {one['between']:.2f}; {100 * one['nearest']:.0f}%", source=key)
                for one in layers
            ),
        ]
        for word, layers in senses.items()
    ]
    num_layers = len(next(iter(senses.values())))
    return Table(
        caption=f"{model}: mean cosine of two uses of a word in the same / in different senses; nearest",
        head=("Word", *(f"Layer {layer}" for layer in range(num_layers))),
        rows=rows,
        notes=["Nearest: how often the nearest other use of the word has its sense (layer 0, no context: chance)."],
    )


def _neighbours_table(queries: Sequence[Mapping[str, Any]], model: str, key: str) -> Table:
    rows: list[list[Cell | str]] = []
    for query in queries:
        for layer, nearest in enumerate(query["layers"]):
            cosines = Cell(text=", ".join(f"{one['score']:.2f}" for one in nearest[:2]), source=key)
            words = " · ".join(one["shown"] for one in nearest[:2])
            rows.append([f"{query['query']} Layer {layer}", cosines, words])
    return Table(
        caption=f"{model}: nearest words among the demo's own sentences, by layer",
        head=("Word in its sentence, layer", "Cosines", "Nearest"),
        rows=rows,
        notes=["Layer 0 does not see the context; only other words are shown there."],
        collapsed=True,
    )


def can_be_drawn(plane: Mapping[str, Any]) -> bool:
    """Whether every word has two senses, a point for each use in each layer, and as many layers as the others."""
    complete = all(
        len(set(one["senses"])) == 2
        and all(len(layer) == len(one["senses"]) and all(len(point) == 2 for point in layer) for layer in one["points"])
        for one in plane.values()
    )
    numbers = {len(one["points"]) for one in plane.values()}
    return complete and len(numbers) == 1 and min(numbers) > 0


def uses_of_words(plane: Mapping[str, Any]) -> dict[str, tuple[np.ndarray, Sequence[str]]]:
    """word -> its points (L+1, N, 2) and the N senses, as `elmo.charts.word_map` takes them."""
    return {word: (np.array(one["points"]), one["senses"]) for word, one in plane.items()}


def _map(plane: Mapping[str, Any], model: str, name: str) -> Picture:
    svg = word_map(name, uses_of_words(plane), title="Eight uses of each word, by layer: two principal components")
    caption = f"{model}: uses of six words in two senses each (circle, square); the projection does not know the senses"
    return Picture(name=name, svg=svg, caption=caption, wide=True)
