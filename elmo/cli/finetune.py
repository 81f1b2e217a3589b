"""`elmo finetune`: a trained model taken further on the text of a domain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.cli.pretrain import finish, given, say, seconds, split
from elmo.errors import ConfigError
from elmo.settings import parse_assignment

EXAMPLE = "elmo finetune my-model/ medical/*.txt --out medical-run/ --heldout medical-test.txt --also news-test.txt"


def run(
    model: Annotated[str, typer.Argument(help="Name, folder or file of the model to start from.")],
    files: Annotated[list[str], typer.Argument(help="Text of the domain: files or globs, compressed by suffix.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; run again to continue.")] = Path("finetuned"),
    tokenize: Annotated[
        str | None, typer.Option(help="Tokenizer for raw text; without, one tokenised sentence a line.")
    ] = None,
    heldout: Annotated[
        str | None, typer.Option(help="Files of the domain (with commas) or a share, to measure on.")
    ] = None,
    also: Annotated[list[str] | None, typer.Option(help="Held-out text of the old domain, measured as well.")] = None,
    new_words: Annotated[int, typer.Option(min=0, help="At most so many new words in the softmax.")] = 50_000,
    min_count: Annotated[int, typer.Option(min=1, help="A new word occurs at least so often.")] = 5,
    epochs: Annotated[float, typer.Option(help="Passes over the text.")] = 1.0,
    max_steps: Annotated[int | None, typer.Option(help="Updates, instead of epochs.")] = None,
    stop_after: Annotated[str | None, typer.Option(help="Stop and save after a time: 90s, 30m, 2h.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows of running text a step.")] = None,
    lr: Annotated[float, typer.Option(help="Highest learning rate.")] = 5e-4,
    seed: Annotated[int | None, typer.Option(help="Of everything left to chance.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that prepare the text; without, all cores.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any other setting: section.key=value.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on standard output.")] = False,
) -> None:
    """Fine-tune a model on domain text; new words get softmax rows, the report shows before and after."""
    from elmo.pretrain.config import make_config
    from elmo.pretrain.finetune import finetune
    from elmo.records import format_record
    from elmo.weights.lookup import find_model

    if not files:
        raise ConfigError("No text was given.", f"Name files: {EXAMPLE}")
    flags: dict[str, Any] = {"data": {"files": files, "reading": {"tokenize": tokenize}, **split(heldout)}}
    flags["train"] = {"epochs": epochs, "max_steps": max_steps, "rows": rows, "seed": seed, "device": device}
    flags["train"]["stop_after"] = None if stop_after is None else seconds(stop_after)
    flags["optim"] = {"lr": lr}
    config = make_config(given(**flags), *map(parse_assignment, set_ or ()))
    result, report = finetune(
        find_model(model),
        config,
        out,
        max_new_words=new_words,
        min_count=min_count,
        also=tuple(also or ()),
        num_workers=workers,
        say=say,
    )
    if as_json:
        print(format_record({**report, "step": result.train.step, "stopped": result.train.reason}))
    else:
        _print_change(report)
    finish(result.train.reason, result.train.signal, out)


def _print_change(report: dict[str, Any]) -> None:
    before, after = report.get("before") or {}, report.get("after") or {}
    sources = after.get("by_source") or ({"text": after} if after else {})
    for name, row in sources.items():
        old = (before.get("by_source") or {"text": before}).get(name, {})
        start = f"{old['reset']['mean']:,.2f}" if "reset" in old else "no softmax"
        print(f"{name:28} perplexity (reset) {start} -> {row['reset']['mean']:,.2f}")
