"""`elmo geometry`: how contextual each layer of a model is, on a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.command_line import command_line
from elmo.cli.options import Device, Encoding, ModelName, Tokenizer, stated_encoding

EXAMPLE = "elmo geometry text.txt --model my-model/ --out geometry.json"


def run(
    text: Annotated[Path, typer.Argument(help="Text with one sentence per line (.gz .bz2 .xz .zst too); - is stdin.")],
    model: ModelName = "default",
    tokenizer: Tokenizer = None,
    encoding: Encoding = "utf-8",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Number of sentences to read from the start; all by default.")
    ] = None,
    min_count: Annotated[
        int, typer.Option(min=2, help="Minimum number of occurrences of a word; rarer words are ignored.")
    ] = 5,
    out: Annotated[Path | None, typer.Option(help="Write the record to this file (JSON).")] = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the record instead of a table.")] = False,
) -> None:
    """Measure anisotropy, self-similarity and similarity within sentences, by layer (Ethayarajh 2019)."""
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
        check_place(out)  # before the text is embedded, which takes minutes
    embedder = elmo.load(model, tokenizer=tokenizer, device=device)
    lines = read_lines(text, encoding=encoding)
    sentences = [[token.text for token in embedder.tokenize(line)] for line in islice(lines, limit)]
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
    command = command_line(
        "geometry", text.name, model=model, tokenizer=tokenizer, encoding=stated_encoding(encoding),
        min_count=min_count, limit=limit,
    )  # fmt: skip
    record = make_record("geometry", values, command=command)
    if out is not None:
        write_record(out, record)
    if as_json:
        print(format_record(record))
        return
    print(f"{'layer':>5}  {'different words':>15}  {'same word':>9}  {'in its sentence':>15}  {'length':>8}")
    for layer in layers:
        cosines = f"{layer.anisotropy:15.3f}  {layer.self_similarity:9.3f}  {layer.sentence_similarity:15.3f}"
        print(f"{layer.layer:>5}  {cosines}  {layer.norm:8.2f}")
