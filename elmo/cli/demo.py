"""`elmo demo`: one word, six sentences, and which of them use it alike."""

from __future__ import annotations

import json
from typing import Annotated

import typer

EXAMPLE = "elmo demo"

WORD = "bank"
SENTENCES = (
    "The bank raised its interest rates again last week .",
    "She deposited the money in a bank near the station .",
    "A bank in London lent them half of the sum .",
    "They sat on the bank of the river and watched the boats .",
    "The boat drifted towards the far bank of the stream .",
    "Reeds grew along the muddy bank below the bridge .",
)


def run(
    model: Annotated[str, typer.Option(help="Name, folder or file of the model.")] = "default",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="The table as JSON.")] = False,
) -> None:
    """Show how one word's vector follows its context."""
    import elmo
    from elmo.analysis.similarity import occurrence_similarity

    embedder = elmo.load(model, device=device)
    sentences = [sentence.split() for sentence in SENTENCES]
    tables = [occurrence_similarity(embedder, sentences, WORD, layer) for layer in range(embedder.num_layers)]
    if as_json:
        rows = {"word": WORD, "sentences": SENTENCES, "cosines": [table.round(4).tolist() for table in tables]}
        print(json.dumps({"model": embedder.name, "trained": embedder.trained, **rows}))
        return
    print(f"{embedder}\n")
    if not embedder.trained:
        print(
            "This model is untrained: its vectors show the machinery, not the language. Give --model a trained one.\n"
        )
    for number, sentence in enumerate(SENTENCES, start=1):
        print(f"  {number}  {sentence}")
    for layer, table in enumerate(tables):
        print(f"\nCosine between the six vectors of {WORD!r}, layer {layer}" + (" (no context)" if layer == 0 else ""))
        print("      " + "".join(f"{n:7d}" for n in range(1, 7)))
        for number, row in enumerate(table, start=1):
            print(f"  {number}   " + "".join(f"{value:7.2f}" for value in row))
