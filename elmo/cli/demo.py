"""`elmo demo`: what ELMo is for, in seconds: a word in context, its neighbours, substitutes, scores, a picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmo.cli.command_line import command_line

if TYPE_CHECKING:
    import numpy as np

    from elmo.analysis.contexts import Use
    from elmo.embed.embedder import Embedder

EXAMPLE = "elmo demo"

SHOWN = "bank"  # the word that is looked at closely
SCRAMBLED = "river the of bank far the towards slowly drifted boat The ."  # the words of ORDERED
ORDERED = "The boat drifted slowly towards the far bank of the river ."
PICTURE = Path("elmo-demo.svg")


def run(
    model: Annotated[str, typer.Option(help="Name, folder or file of the model.")] = "default",
    out: Annotated[Path | None, typer.Option(help=f"Where the picture goes; without, {PICTURE}.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="All of it as JSON; the picture only with --out.")] = False,
) -> None:
    """Show what contextual vectors tell apart, and what the language model behind them expects."""
    import elmo
    from elmo.analysis.contexts import all_uses, layers_of, vectors_of
    from elmo.records import format_record, make_record

    embedder = elmo.load(model, device=device)
    uses = all_uses()
    layers = layers_of(embedder, uses)
    vectors = vectors_of(uses, layers)  # (L+1, N, D)
    facts: dict[str, Any] = {"model": embedder.name, "trained": embedder.trained}
    facts["senses"] = _senses(uses, vectors)
    facts["neighbours"] = _neighbours(uses, layers, vectors)
    facts["language_model"] = _language_model(embedder, uses)
    facts["plane"] = _plane(uses, vectors)
    path = out or (None if as_json else PICTURE)
    if path is not None:
        _draw(path, uses, vectors)
        facts["picture"] = str(path)
    if as_json:
        command = command_line("demo", model=model, json=True)
        print(format_record(make_record("demo", facts, command=command)))
        return
    print(f"{embedder}\n")
    if not embedder.trained:
        print(
            "This model is untrained: its vectors show the machinery, not the language. Give --model a trained one.\n"
        )
    _print_senses(facts["senses"], [use for use in uses if use.word == SHOWN])
    _print_neighbours(facts["neighbours"])
    _print_language_model(facts["language_model"])
    _print_map(uses, vectors, path)


def _senses(uses: list[Use], vectors: np.ndarray) -> dict[str, list[dict[str, float]]]:
    """Word -> for each layer, how far apart its senses are."""
    from dataclasses import asdict

    from elmo.analysis.separation import separation

    found = {}
    for word in dict.fromkeys(use.word for use in uses):
        rows = [row for row, use in enumerate(uses) if use.word == word]
        senses = [uses[row].sense for row in rows]
        found[word] = [asdict(separation(layer[rows], senses)) for layer in vectors]
    return {word: [{k: round(v, 4) for k, v in layer.items()} for layer in layers] for word, layers in found.items()}


def _neighbours(uses: list[Use], layers: list[np.ndarray], vectors: np.ndarray, k: int = 4) -> list[dict[str, Any]]:
    """For one use of each sense: the nearest words among all the sentences, layer by layer."""
    import numpy as np

    from elmo.embed.pool import normalize

    places = [(row, place) for row, use in enumerate(uses) for place in range(len(use.tokens))]
    found = []
    asked = {use.sense: row for row, use in reversed(list(enumerate(uses))) if use.word == SHOWN}
    for query in sorted(asked.values()):
        by_layer = []
        for layer in range(len(vectors)):
            words = normalize(np.concatenate([sentence[layer] for sentence in layers]))  # (all tokens, D)
            scores = words @ normalize(vectors[layer, query])
            best: list[dict[str, Any]] = []
            for at in np.argsort(-scores, kind="stable"):
                row, place = places[at]
                # without context a word's own uses are all alike: there, only other words say anything
                is_same = uses[row].tokens[place] == SHOWN if layer == 0 else (row == query)
                if not is_same and len(best) < k:
                    best.append({"score": round(float(scores[at]), 3), "sentence": row, "position": place})
                    best[-1]["shown"] = _around(uses[row].tokens, place)
            by_layer.append(best)
        found.append({"query": _around(uses[query].tokens, uses[query].position, 99), "layers": by_layer})
    return found


def _language_model(embedder: Embedder, uses: list[Use], k: int = 8) -> dict[str, Any] | None:
    """Substitutes in two contexts and the scores of an ordered and a scrambled sentence; None without a softmax."""
    from elmo.embed.lm import LanguageModel

    if embedder.model.head is None:
        return None
    lm = LanguageModel(embedder)
    places = []
    for sense in dict.fromkeys(use.sense for use in uses if use.word == SHOWN):
        use = next(use for use in uses if (use.word, use.sense) == (SHOWN, sense))
        words = lm.substitutes(list(use.tokens), use.position, k=k)[0]
        places.append({"sentence": _around(use.tokens, use.position, 99), "words": [s.word for s in words]})
    scored = []
    for scores in lm.scores([ORDERED.split(), SCRAMBLED.split()]):
        loss = -(scores.forward.sum() + scores.backward.sum()) / (2 * len(scores.forward))
        scored.append({"sentence": " ".join(scores.tokens), "log_prob": scores.log_prob, "perplexity": math.exp(loss)})
    return {"substitutes": places, "scores": scored}


def _plane(uses: list[Use], vectors: np.ndarray) -> dict[str, dict[str, Any]]:
    """Word -> its uses' senses, and for each layer their places on two principal components."""
    from elmo.charts.word_map import plane

    found = {}
    for word in dict.fromkeys(use.word for use in uses):
        rows = [row for row, use in enumerate(uses) if use.word == word]
        points = [[[round(float(x), 3) for x in point] for point in plane(layer[rows])] for layer in vectors]
        found[word] = {"senses": [uses[row].sense for row in rows], "points": points}
    return found


def _draw(path: Path, uses: list[Use], vectors: np.ndarray) -> None:
    from elmo.charts.word_map import as_svg
    from elmo.files import atomic_file

    words = {}
    for word in dict.fromkeys(use.word for use in uses):
        rows = [row for row, use in enumerate(uses) if use.word == word]
        words[word] = (vectors[:, rows], [uses[row].sense for row in rows])
    with atomic_file(path) as partial:
        picture = as_svg(words, "Eight uses of each word, by layer: two principal components")
        partial.write_text(picture, encoding="utf-8", newline="\n")


def _print_senses(senses: dict[str, list[dict[str, float]]], shown: list[Use]) -> None:
    print(f"1  One word, different contexts: {SHOWN!r}\n")
    for number, use in enumerate(shown, start=1):
        print(f"   {number}  {use.sense:6}  {' '.join(use.tokens)}")
    num_layers = len(senses[SHOWN])
    print("\n   Mean cosine of two uses of a word, in the same sense / in different senses\n")
    print(f"   {'':8}" + "".join(f"{f'layer {layer}':>16}" for layer in range(num_layers)))
    for word, layers in senses.items():
        print(f"   {word:8}" + "".join(f"{row['within']:9.2f} /{row['between']:5.2f}" for row in layers))
    shares = [sum(layers[n]["nearest"] for layers in senses.values()) / len(senses) for n in range(num_layers)]
    print(f"   {'nearest':8}" + "".join(f"{share:16.0%}" for share in shares))
    print("\n   nearest: how often the nearest other use of the word has its sense (layer 0, no context: chance)")


def _print_neighbours(neighbours: list[dict[str, Any]]) -> None:
    print("\n2  Nearest words in context, among all the sentences of this demo (layer 0: among other words)")
    for found in neighbours:
        print(f"\n   {found['query']}")
        for layer, best in enumerate(found["layers"]):
            for number, one in enumerate(best):
                print(f"   {f'layer {layer}' if number == 0 else '':8} {one['score']:5.2f}  {one['shown']}")


def _print_language_model(facts: dict[str, Any] | None) -> None:
    print("\n3  What the language model expects in the word's place")
    if facts is None:
        print("\n   This model has no softmax: it cannot predict words or score sentences.")
        return
    for place in facts["substitutes"]:
        print(f"\n   {place['sentence']}\n     {', '.join(place['words'])}")
    print("\n4  A sentence, and its words scrambled\n")
    for row in facts["scores"]:
        print(f"   log-probability {row['log_prob']:8.1f}   perplexity {row['perplexity']:10,.1f}   {row['sentence']}")


def _print_map(uses: list[Use], vectors: np.ndarray, path: Path | None) -> None:
    from elmo.charts.word_map import as_text, plane

    rows = [row for row, use in enumerate(uses) if use.word == SHOWN]
    labels = [f"{uses[row].sense}{number}" for number, row in enumerate(rows, start=1)]
    print(f"\n5  The eight uses of {SHOWN!r} in the top layer (two principal components)\n")
    for line in as_text(plane(vectors[-1, rows]), labels):
        print(f"   {line}")
    print(f"\n   All words, all layers: {path}")


def _around(tokens: tuple[str, ...], position: int, width: int = 4) -> str:
    from elmo.cli.similar import marked

    return marked(tokens, position, width)
