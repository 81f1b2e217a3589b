"""`elmo perplexity`: how well a model predicts text, both directions, each file and all together."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.cli.command_line import command_line
from elmo.records import format_record, make_record

EXAMPLE = "elmo perplexity my-model/ news.txt novels.txt --tokenize default"


def run(
    model: Annotated[str, typer.Argument(help="Name, folder or file of a model with its softmax.")],
    files: Annotated[list[str], typer.Argument(help="Text files or globs, compressed by suffix; - for stdin.")],
    tokenize: Annotated[
        str | None, typer.Option(help="Tokenizer for raw text; without, one tokenised sentence a line.")
    ] = None,
    carried: Annotated[
        bool, typer.Option(help="Also with state carried over sentences, as the reference measures.")
    ] = True,
    scores: Annotated[
        Path | None, typer.Option(help="Write every word's log-probabilities to this file (JSON lines).")
    ] = None,
    errors: Annotated[str, typer.Option(help="Text that is not UTF-8: strict or replace.")] = "strict",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    workers: Annotated[int | None, typer.Option(help="Processes that prepare the text; without, all cores.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Measure perplexity with the full softmax; the definition is printed with the numbers."""
    import elmo
    from elmo.embed.lm import LanguageModel
    from elmo.pretrain.data.corpus import Reading, read_sentences
    from elmo.pretrain.file_perplexity import measure

    reading = Reading(tokenize=tokenize, errors=errors)
    lm = LanguageModel(elmo.load(model, device=device))
    found = measure(lm.embedder.model, lm.vocab.words, files, reading, carried=carried, num_workers=workers)
    if scores is not None:
        _write_scores(lm, read_sentences(files, reading), scores)
    if as_json:
        command = command_line("perplexity", model, *files, tokenize=tokenize, no_carried=not carried, json=True)
        print(format_record(make_record("perplexity", {"files": files, **found}, command=command)))
        return
    rows = {**found.get("by_source", {}), "all" if "by_source" in found else "text": found}
    print(f"{'':24} {'words':>10} {'unknown':>8}  {'state':8} {'forward':>9} {'backward':>9} {'mean':>9}")
    for name, row in rows.items():
        for kind in ("reset", "carried"):
            if kind in row:
                p = row[kind]
                lead = f"{name[:24]:24} {row['words']:>10,} {row['unknown']:>8.2%}" if kind == "reset" else " " * 44
                print(f"{lead}  {kind:8} {p['forward']:9.2f} {p['backward']:9.2f} {p['mean']:9.2f}")
    print(found["definition"], file=sys.stderr)


def _write_scores(lm: Any, sentences: Any, path: Path) -> None:
    from elmo.files import atomic_file

    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        for found in lm.stream(sentences):
            row = {"tokens": found.tokens, "forward": found.forward.tolist(), "backward": found.backward.tolist()}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
