"""`elmo geometry`: how contextual each layer of a model is, on a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.command_line import command_line

EXAMPLE = "elmo geometry text.txt --model my-model/ --out geometry.json"


def run(
    text: Annotated[Path, typer.Argument(help="Text, one sentence a line; compressed by suffix, - for stdin.")],
    model: Annotated[str, typer.Option(help="Name, folder or file of the model.")] = "default",
    tokenizer: Annotated[str, typer.Option(help="default, whitespace, spacy:LANG, moses:LANG.")] = "default",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many sentences.")] = None,
    min_count: Annotated[int, typer.Option(min=2, help="Occurrences a word needs.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Write the record to this file (JSON).")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the record instead of a table.")] = False,
) -> None:
    """Measure anisotropy, self-similarity and likeness within sentences, layer by layer (Ethayarajh 2019)."""
    from dataclasses import asdict
    from itertools import islice

    import elmo
    from elmo.analysis.geometry import layer_geometry
    from elmo.embed.dump.target import check_place
    from elmo.embed.model_checksum import model_checksum
    from elmo.files import sha256_file
    from elmo.records import format_record, make_record, write_record
    from elmo.text.lines import read_lines

    if out is not None:
        check_place(out)  # before minutes of work
    embedder = elmo.load(model, tokenizer=tokenizer, device=device)
    sentences = [[token.text for token in embedder.tokenize(line)] for line in islice(read_lines(text), limit)]
    layers = layer_geometry(embedder, sentences, min_count=min_count, show=True)
    values = {
        "vectors": {
            "name": embedder.name,
            "sha256": model_checksum(embedder),
            "trained": embedder.trained,
            "layers": embedder.num_layers,
        },
        "data": {"file": text.name, "sha256": None if str(text) == "-" else sha256_file(text)},
        "counts": {"sentences": len(sentences), "words": sum(map(len, sentences))},
        "geometry": [asdict(layer) for layer in layers],
    }
    command = command_line("geometry", text.name, model=model, tokenizer=tokenizer, min_count=min_count, limit=limit)
    record = make_record("geometry", values, command=command)
    if out is not None:
        write_record(out, record)
    if as_json:
        print(format_record(record))
        return
    print(f"{'layer':>5}  {'different words':>15}  {'same word':>9}  {'in its sentence':>15}  {'length':>8}")
    for one in layers:
        cosines = f"{one.anisotropy:15.3f}  {one.self_similarity:9.3f}  {one.sentence_similarity:15.3f}"
        print(f"{one.layer:>5}  {cosines}  {one.norm:8.2f}")
