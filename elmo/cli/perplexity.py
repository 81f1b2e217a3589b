"""`elmo perplexity`: measures perplexity in both directions, per file and over all files."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.cli.command_line import command_line
from elmo.cli.options import (
    TEXT_FILES,
    Device,
    Encoding,
    InvalidBytes,
    ReadingTokenizer,
    Workers,
    check_invalid_bytes,
    reading_tokenizer_of,
    report_folders,
    stated_encoding,
)
from elmo.records import format_record, make_record

EXAMPLE = "elmo perplexity my-model/ news.txt novels.txt --tokenizer default"


def run(
    model: Annotated[str, typer.Argument(help="Name, folder or file of a model that has a softmax.")],
    files: Annotated[list[str], typer.Argument(help=f"Text: {TEXT_FILES}; - is stdin.")],
    tokenizer: ReadingTokenizer = None,
    carried: Annotated[
        bool,
        typer.Option(
            help="Also measure with LSTM state carried from sentence to sentence, as the reference code does."
        ),
    ] = True,
    scores: Annotated[
        Path | None, typer.Option(help="Write the log-probabilities of every word to this file (JSON lines).")
    ] = None,
    encoding: Encoding = "utf-8",
    errors: InvalidBytes = "strict",
    device: Device = "auto",
    workers: Workers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure perplexity with the full softmax and print the definition with the numbers."""
    how = check_invalid_bytes(errors)
    from elmo.embed.lm import LanguageModel
    from elmo.embed.load import make_embedder, model_parts
    from elmo.pretrain.data.corpus import Reading, read_sentences
    from elmo.pretrain.file_perplexity import file_perplexity
    from elmo.text.inputs import decomposed_warning, log_warnings

    parts = model_parts(model, lazy_head=True)
    tokenizer_name = reading_tokenizer_of(parts.tokenizer, tokenizer)
    reading = Reading(tokenize=tokenizer_name, errors=how, encoding=encoding)
    report_folders(files)
    lm = LanguageModel(make_embedder(parts, name=model, device=device))
    report = file_perplexity(
        lm.embedder.model, lm.vocab.words, files, reading, carried=carried, num_workers=workers, show_progress=True
    )
    if "-" not in files:  # stdin can be read once
        log_warnings(decomposed_warning(list(islice(read_sentences(files, reading, warn=False), 200))))
    if scores is not None:
        _write_scores(lm, read_sentences(files, reading, warn=False), scores)
    if as_json:
        command = command_line(
            "perplexity", model, *files, tokenizer=tokenizer, encoding=stated_encoding(encoding),
            errors=None if how == "strict" else how, no_carried=not carried, json=True,
        )  # fmt: skip
        print(format_record(make_record("perplexity", {"files": files, **report}, command=command)))
        return
    rows = {**report.get("by_source", {}), "all" if "by_source" in report else "text": report}
    print(f"{'':24} {'words':>10} {'unknown':>8}  {'state':8} {'forward':>9} {'backward':>9} {'mean':>9}")
    for source, row in rows.items():
        for kind in ("reset", "carried"):
            if kind in row:
                perplexity = row[kind]
                prefix = f"{source[:24]:24} {row['words']:>10,} {row['unknown']:>8.2%}" if kind == "reset" else " " * 44
                means = [perplexity[name] for name in ("forward", "backward", "mean")]
                numbers = " ".join("        -" if mean is None else f"{mean:9.2f}" for mean in means)
                print(f"{prefix}  {kind:8} {numbers}")
    print(report["definition"], file=sys.stderr)


def _write_scores(lm: Any, sentences: Any, path: Path) -> None:
    from elmo.files import atomic_file

    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        for scored in lm.stream(sentences):
            backward = None if scored.backward is None else scored.backward.tolist()
            row = {"tokens": scored.tokens, "unknown": scored.unknown}
            row |= {"forward": scored.forward.tolist(), "backward": backward}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
