"""`elmo pretrain`: text to a model of one's own, in one command that can be cut off and run again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.errors import ConfigError
from elmo.settings import parse_assignment, read_toml

EXAMPLE = "elmo pretrain 'corpus/*.txt' --out run/ --preset small --tokenize default"


def run(
    files: Annotated[
        list[str] | None, typer.Argument(help="Text files or globs, compressed by suffix; - for stdin.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run; run again to continue.")] = Path("run"),
    config: Annotated[Path | None, typer.Option(help="A TOML file with settings; flags override it.")] = None,
    preset: Annotated[str | None, typer.Option(help="tiny, small, medium or original.")] = None,
    recipe: Annotated[str | None, typer.Option(help="modern, or paper (as the reference trained).")] = None,
    tokenize: Annotated[
        str | None, typer.Option(help="Tokenizer for raw text; without, one tokenised sentence a line.")
    ] = None,
    heldout: Annotated[str | None, typer.Option(help="Share of the sentences, or files, to validate on.")] = None,
    vocab: Annotated[str | None, typer.Option(help="A vocabulary file; without, it is counted.")] = None,
    words: Annotated[bool, typer.Option("--words", help="Read whole words instead of characters.")] = False,
    max_steps: Annotated[int | None, typer.Option(help="Updates; without, ten epochs.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Stop after so many tokens.")] = None,
    stop_after: Annotated[str | None, typer.Option(help="Stop and save after a time: 90s, 30m, 2h.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows of running text a step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything left to chance.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that prepare the text; without, all cores.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any other setting: section.key=value.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and what it takes.")] = False,
    strict_resume: Annotated[bool, typer.Option("--strict-resume", help="Stop at a damaged checkpoint.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON on standard output.")] = False,
) -> None:
    """Train a bidirectional language model on your text."""
    from elmo.pretrain.config import make_config
    from elmo.pretrain.estimate import estimate
    from elmo.pretrain.job import pretrain
    from elmo.records import format_record

    flags: dict[str, Any] = {"recipe": recipe, "preset": preset}
    flags["data"] = {"files": files or None, "vocab_path": vocab, "reading": given(tokenize=tokenize), **split(heldout)}
    flags["train"] = {"max_steps": max_steps, "max_tokens": max_tokens, "seed": seed, "rows": rows, "device": device}
    flags["train"]["stop_after"] = None if stop_after is None else seconds(stop_after)
    flags["optim"] = {"lr": lr}
    layers = [read_toml(config) if config else {}, given(**flags), *map(parse_assignment, set_ or ())]
    settings = make_config(*layers, words=words)
    if not settings.data.files:
        raise ConfigError("No text was given.", f"Name files: {EXAMPLE}")
    if dry_run:
        print(estimate(settings, out))
        return
    result = pretrain(settings, out, num_workers=workers, strict_resume=strict_resume, say=say)
    if as_json and os.environ.get("RANK", "0") == "0":  # under torchrun, once
        print(format_record({"step": result.train.step, "stopped": result.train.reason, "report": result.report}))
    finish(result.train.reason, result.train.signal, out)


def finish(reason: str, signal: int | None, out: Path) -> None:
    """Says how to go on where the run is not at its end; a signal gives its exit code."""
    if reason in ("signal", "time is up"):
        say(f"stopped ({reason}); everything is saved in {out}. The same command continues.")
    if signal is not None:
        raise typer.Exit(128 + signal)


def seconds(text: str) -> float:
    """90s, 30m, 2h or plain seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    try:
        value = float(number) * unit
    except ValueError:
        value = -1
    if not value > 0:
        raise ConfigError(f"{text!r} is no time.", "Write 90s, 30m or 2h.")
    return value


def split(heldout: str | None) -> dict[str, Any]:
    """A share of the text, or files."""
    if heldout is None:
        return {}
    try:
        return {"heldout": float(heldout)}
    except ValueError:
        return {"heldout_files": heldout.split(",")}


def given(**values: Any) -> dict[str, Any]:
    """Only what was given, in nested tables too."""
    found = {}
    for key, value in values.items():
        value = given(**value) if isinstance(value, dict) else value
        if value is not None and value != {}:
            found[key] = value
    return found


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
