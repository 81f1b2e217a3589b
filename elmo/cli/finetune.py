"""`elmo finetune`: continues the training of a model on text of another domain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.cli.options import (
    Assignments,
    Device,
    ReadingTokenizer,
    Rows,
    Seed,
    StopAfter,
    Workers,
    drop_unset,
    heldout_settings,
    parse_duration,
    print_status,
    reading_tokenizer_of,
)
from elmo.cli.pretrain import report_stop
from elmo.errors import ConfigError
from elmo.settings import parse_assignment

EXAMPLE = "elmo finetune my-model/ medical/*.txt --out medical-run/ --heldout medical-test.txt --also news-test.txt"


def run(
    model: Annotated[str, typer.Argument(help="Name, folder or file of the model to start from.")],
    files: Annotated[list[str], typer.Argument(help="Text of the new domain: files or globs (.gz .bz2 .xz .zst too).")],
    out: Annotated[Path, typer.Option(help="Folder of the run; the same command resumes it.")] = Path("finetuned"),
    tokenizer: ReadingTokenizer = None,
    heldout: Annotated[
        str | None,
        typer.Option(help="Held-out text of the new domain: files separated by commas, or a share of the sentences."),
    ] = None,
    also: Annotated[
        list[str] | None, typer.Option(help="Held-out text of the old domain, measured before and after as well.")
    ] = None,
    new_words: Annotated[
        int, typer.Option(min=0, help="Maximum number of new words that get a row in the softmax.")
    ] = 50_000,
    min_count: Annotated[int, typer.Option(min=1, help="Minimum count of a new word in the text.")] = 5,
    epochs: Annotated[float, typer.Option(help="Number of passes over the text.")] = 1.0,
    max_steps: Annotated[int | None, typer.Option(help="Number of updates; replaces --epochs.")] = None,
    stop_after: StopAfter = None,
    rows: Rows = None,
    lr: Annotated[float, typer.Option(help="Maximum learning rate.")] = 5e-4,
    seed: Seed = None,
    device: Device = None,
    workers: Workers = None,
    set_: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON on stdout.")] = False,
) -> None:
    """Continue the training of a model on text of another domain and report perplexity before and after.

    Frequent words that the softmax does not contain get new rows in it.
    """
    from elmo.pretrain.config import make_config
    from elmo.pretrain.finetune import finetune
    from elmo.records import format_record
    from elmo.weights.lookup import find_model

    if not files:
        raise ConfigError("No text files were given.", f"Example: {EXAMPLE}")
    parts = find_model(model)
    reading = {"tokenize": reading_tokenizer_of(parts.tokenizer, tokenizer)}
    flags: dict[str, Any] = {"data": {"files": files, "reading": reading, **heldout_settings(heldout)}}
    flags["train"] = {"epochs": epochs, "max_steps": max_steps, "rows": rows, "seed": seed, "device": device}
    flags["train"]["stop_after"] = None if stop_after is None else parse_duration(stop_after)
    flags["optim"] = {"lr": lr}
    config = make_config(drop_unset(**flags), *map(parse_assignment, set_ or ()))
    result, report = finetune(
        parts,
        config,
        out,
        max_new_words=new_words,
        min_count=min_count,
        also=tuple(also or ()),
        num_workers=workers,
        say=print_status,
    )
    if as_json:
        print(format_record({**report, "step": result.train.step, "stopped": result.train.reason}))
    else:
        _print_change(report)
    report_stop(result.train.reason, result.train.signal, out)


def _print_change(report: dict[str, Any]) -> None:
    before, after = report.get("before") or {}, report.get("after") or {}
    sources = after.get("by_source") or ({"text": after} if after else {})
    for name, row in sources.items():
        row_before = (before.get("by_source") or {"text": before}).get(name, {})
        start = f"{row_before['reset']['mean']:,.2f}" if "reset" in row_before else "no softmax"
        print(f"{name:28} perplexity (reset) {start} -> {row['reset']['mean']:,.2f}")
