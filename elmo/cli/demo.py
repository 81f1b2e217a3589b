"""`elmo demo`: what contextual vectors are good for: senses, neighbours, substitutes, sentence scores, a chart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmo.cli.command_line import command_line
from elmo.cli.options import Device
from elmo.cli.similar import mark_word

if TYPE_CHECKING:
    import numpy as np

    from elmo.analysis.contexts import Contexts, Use
    from elmo.embed.embedder import Embedder

EXAMPLE = "elmo demo"

PICTURE = Path("elmo-demo.svg")


def run(
    model: Annotated[
        str | None,
        typer.Option(help="Name, folder or file of the model. Default: the shipped model of the language."),
    ] = None,
    language: Annotated[str, typer.Option(help="Language of the words and sentences: de, en, fr.")] = "en",
    out: Annotated[Path | None, typer.Option(help=f"SVG file for the picture; {PICTURE} by default.")] = None,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all results as JSON; the picture is drawn only with --out.")
    ] = False,
) -> None:
    """Show how contextual vectors separate word senses, and what the language model predicts."""
    import elmo
    from elmo.analysis.contexts import read_contexts, sentence_layers, word_vectors
    from elmo.records import format_record, make_record
    from elmo.weights.languages import language_code

    language = language_code(language) or language
    contexts = read_contexts(language)
    model = model or ("default" if language == "en" else "many")
    embedder = elmo.load(model, device=device)
    uses = contexts.uses()
    layers = sentence_layers(embedder, uses)
    vectors = word_vectors(uses, layers)  # (L+1, N, D)
    results: dict[str, Any] = {
        "model": embedder.name,
        "language": language,
        "trained": embedder.trained,
        "senses": _senses(uses, vectors),
        "neighbours": _neighbours(contexts.shown, uses, layers, vectors),
        "language_model": _language_model(embedder, contexts, uses),
        "plane": _plane(uses, vectors),
    }
    path = out or (None if as_json else PICTURE)
    if path is not None:
        _draw(path, uses, vectors)
        results["picture"] = str(path)
    if as_json:
        command = command_line("demo", model=model, language=None if language == "en" else language, json=True)
        print(format_record(make_record("demo", results, command=command)))
        return
    print(f"{embedder}\n")
    if not embedder.trained:
        print(
            "This model is untrained: its vectors have no meaning. Use --model with a trained model for real results.\n"
        )
    _print_senses(results["senses"], [use for use in uses if use.word == contexts.shown])
    _print_neighbours(results["neighbours"])
    _print_language_model(results["language_model"])
    _print_map(contexts.shown, uses, vectors, path)


def _rows_by_word(uses: list[Use]) -> dict[str, list[int]]:
    """Word -> the numbers of its uses."""
    rows: dict[str, list[int]] = {}
    for row, use in enumerate(uses):
        rows.setdefault(use.word, []).append(row)
    return rows


def _senses(uses: list[Use], vectors: np.ndarray) -> dict[str, list[dict[str, float]]]:
    """Word -> for each layer, how well it separates the word's senses."""
    from dataclasses import asdict

    from elmo.analysis.contexts import separation

    senses = {}
    for word, rows in _rows_by_word(uses).items():
        layers = [asdict(separation(layer[rows], [uses[row].sense for row in rows])) for layer in vectors]
        senses[word] = [{name: round(value, 4) for name, value in layer.items()} for layer in layers]
    return senses


def _neighbours(
    word: str, uses: list[Use], layers: list[np.ndarray], vectors: np.ndarray, k: int = 4
) -> list[dict[str, Any]]:
    """For the first use of each sense of the word: the k nearest words of all sentences, by layer."""
    import numpy as np

    from elmo.embed.pool import normalize

    places = [(row, position) for row, use in enumerate(uses) for position in range(len(use.tokens))]
    first_uses = {use.sense: row for row, use in reversed(list(enumerate(uses))) if use.word == word}
    results = []
    for query in sorted(first_uses.values()):
        by_layer = []
        for layer in range(len(vectors)):
            words = normalize(np.concatenate([sentence[layer] for sentence in layers]))  # (N, D)
            scores = words @ normalize(vectors[layer, query])  # (N,)
            nearest: list[dict[str, Any]] = []
            for word_row in np.argsort(-scores, kind="stable"):
                row, position = places[word_row]
                # without context all uses of a word are equal, so layer 0 shows only other words
                is_same = uses[row].tokens[position] == word if layer == 0 else (row == query)
                if not is_same and len(nearest) < k:
                    score = round(float(scores[word_row]), 3)
                    shown = mark_word(uses[row].tokens, position, 4)
                    nearest.append({"score": score, "sentence": row, "position": position, "shown": shown})
            by_layer.append(nearest)
        results.append({"query": mark_word(uses[query].tokens, uses[query].position, 99), "layers": by_layer})
    return results


def _language_model(embedder: Embedder, contexts: Contexts, uses: list[Use], k: int = 8) -> dict[str, Any] | None:
    """Substitutes of a word in two contexts, and scores of a sentence in order and scrambled; None without softmax."""
    from elmo.embed.lm import LanguageModel

    if embedder.model.head is None:
        return None
    lm = LanguageModel(embedder)
    substitutes = []
    for sense in contexts.words[contexts.shown]:
        use = next(use for use in uses if (use.word, use.sense) == (contexts.shown, sense))
        words = lm.substitutes(list(use.tokens), use.position, k=k)[0]
        substitutes.append({"sentence": mark_word(use.tokens, use.position, 99), "words": [s.word for s in words]})
    scored = []
    *tokens, stop = contexts.sentence
    for scores in lm.scores([[*tokens, stop], [*tokens[::-1], stop]]):
        sentence = " ".join(scores.tokens)
        scored.append({"sentence": sentence, "log_prob": scores.log_prob, "perplexity": scores.perplexity})
    return {"substitutes": substitutes, "scores": scored}


def _plane(uses: list[Use], vectors: np.ndarray) -> dict[str, dict[str, Any]]:
    """Word -> the senses of its uses, and for each layer their coordinates on two principal components."""
    from elmo.charts.word_map import project_to_plane

    planes = {}
    for word, rows in _rows_by_word(uses).items():
        layers = [project_to_plane(layer[rows]) for layer in vectors]
        points = [[[round(float(x), 3) for x in point] for point in layer] for layer in layers]
        planes[word] = {"senses": [uses[row].sense for row in rows], "points": points}
    return planes


def _draw(path: Path, uses: list[Use], vectors: np.ndarray) -> None:
    from elmo.charts.word_map import word_map
    from elmo.files import atomic_file

    words = {word: (vectors[:, rows], [uses[row].sense for row in rows]) for word, rows in _rows_by_word(uses).items()}
    picture = word_map("elmo-demo", words, title="Eight uses of each word, by layer: two principal components")
    with atomic_file(path) as partial:
        partial.write_text(picture, encoding="utf-8", newline="\n")


def _print_senses(senses: dict[str, list[dict[str, float]]], shown: list[Use]) -> None:
    print(f"1  One word, different contexts: {shown[0].word!r}\n")
    for number, use in enumerate(shown, start=1):
        print(f"   {number}  {use.sense:6}  {' '.join(use.tokens)}")
    num_layers = len(senses[shown[0].word])
    print("\n   Mean cosine of two uses of a word, in the same sense / in different senses\n")
    print(f"   {'':8}" + "".join(f"{f'layer {layer}':>16}" for layer in range(num_layers)))
    for word, layers in senses.items():
        print(f"   {word:8}" + "".join(f"{row['within']:9.2f} /{row['between']:5.2f}" for row in layers))
    shares = [sum(layers[n]["nearest"] for layers in senses.values()) / len(senses) for n in range(num_layers)]
    print(f"   {'nearest':8}" + "".join(f"{share:16.0%}" for share in shares))
    print("\n   nearest: how often the nearest other use of the word has its sense (layer 0, no context: chance)")


def _print_neighbours(neighbours: list[dict[str, Any]]) -> None:
    print("\n2  Nearest words in context, among all the sentences of this demo (layer 0: among other words)")
    for query in neighbours:
        print(f"\n   {query['query']}")
        for layer, nearest in enumerate(query["layers"]):
            for number, one in enumerate(nearest):
                print(f"   {f'layer {layer}' if number == 0 else '':8} {one['score']:5.2f}  {one['shown']}")


def _print_language_model(results: dict[str, Any] | None) -> None:
    print("\n3  What the language model predicts in place of the word")
    if results is None:
        print("\n   This model has no softmax: it cannot predict words or score sentences.")
        return
    for one in results["substitutes"]:
        print(f"\n   {one['sentence']}\n     {', '.join(one['words'])}")
    print("\n4  A sentence, and its words scrambled\n")
    for row in results["scores"]:
        print(f"   log-probability {row['log_prob']:8.1f}   perplexity {row['perplexity']:10,.1f}   {row['sentence']}")


def _print_map(word: str, uses: list[Use], vectors: np.ndarray, path: Path | None) -> None:
    from elmo.charts.word_map import as_text, project_to_plane

    rows = [row for row, use in enumerate(uses) if use.word == word]
    labels = [f"{uses[row].sense}{number}" for number, row in enumerate(rows, start=1)]
    print(f"\n5  The eight uses of {word!r} in the top layer (two principal components)\n")
    for line in as_text(project_to_plane(vectors[-1, rows]), labels):
        print(f"   {line}")
    print(f"\n   All words, all layers: {path}")
