"""`elmo pretrain`: trains a biLM on text files; the same command resumes an interrupted run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.errors import ConfigError

EXAMPLE = "elmo pretrain 'corpus/*.txt' --out run/ --preset small --tokenize default"


def run(
    files: Annotated[
        list[str] | None, typer.Argument(help="Text files or globs (.gz .bz2 .xz .zst too); - is stdin.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run; the same command resumes it.")] = Path("run"),
    config: Annotated[Path | None, typer.Option(help="TOML file with settings; flags override it.")] = None,
    preset: Annotated[str | None, typer.Option(help="Model size: tiny, small, medium or original.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Training settings: modern, or paper (those of the reference code).")
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(help="Tokenizer for raw text. Default: the text has one tokenised sentence per line."),
    ] = None,
    heldout: Annotated[
        str | None,
        typer.Option(help="Validation text: a share of the sentences between 0 and 1, or files separated by commas."),
    ] = None,
    vocab: Annotated[
        str | None, typer.Option(help="Vocabulary file. Default: the most frequent words of the text.")
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Use word embeddings as input instead of characters.")] = False,
    max_steps: Annotated[int | None, typer.Option(help="Number of updates. Default: ten epochs.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Stop after this number of training tokens.")] = None,
    stop_after: Annotated[
        str | None, typer.Option(help="Stop after this time and save a checkpoint: 90s, 30m, 2h.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Number of rows of continuous text per update.")] = None,
    lr: Annotated[float | None, typer.Option(help="Maximum learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.")] = None,
    device: Annotated[str | None, typer.Option(help="Device: auto, cpu, cuda.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of processes that prepare the text. Default: one per core.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting as section.key=value; may be repeated.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan with estimated memory and time, and exit.")
    ] = False,
    strict_resume: Annotated[
        bool,
        typer.Option("--strict-resume", help="Fail on a damaged checkpoint instead of using an older one."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Train a bidirectional language model on your text."""
    from elmo.pretrain.config import make_config, read_toml
    from elmo.pretrain.estimate import estimate
    from elmo.pretrain.job import pretrain

    flags: dict[str, Any] = {"recipe": recipe, "preset": preset}
    flags["data"] = {
        "files": files or None,
        "vocab_path": vocab,
        "reading": {"tokenize": tokenize},
        **heldout_settings(heldout),
    }
    flags["train"] = {"max_steps": max_steps, "max_tokens": max_tokens, "seed": seed, "rows": rows, "device": device}
    flags["train"]["stop_after"] = None if stop_after is None else parse_duration(stop_after)
    flags["optim"] = {"lr": lr}
    layers = [read_toml(config) if config else {}, drop_unset(**flags), *map(parse_assignment, set_ or ())]
    settings = make_config(*layers, words=words)
    if not settings.data.files:
        raise ConfigError("No text files were given.", f"Example: {EXAMPLE}")
    if dry_run:
        print(estimate(settings, out))
        return
    result = pretrain(settings, out, num_workers=workers, strict_resume=strict_resume, say=print_status)
    if as_json and os.environ.get("RANK", "0") == "0":  # under torchrun only one process prints
        print(json.dumps({"step": result.train.step, "stopped": result.train.reason, "report": result.report}))
    report_stop(result.train.reason, result.train.signal, out)


def report_stop(reason: str, signal: int | None, out: Path) -> None:
    """Prints how to resume a run that was stopped early; after a signal, exits with the exit code of that signal."""
    if reason in ("signal", "time is up"):
        print_status(f"stopped ({reason}); the state of the run is saved in {out}. The same command resumes it.")
    if signal is not None:
        raise typer.Exit(128 + signal)


def parse_duration(text: str) -> float:
    """Seconds of a duration such as 90s, 30m, 2h or 1d; a number without a unit is in seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    try:
        value = float(number) * unit
    except ValueError:
        value = -1
    if not value > 0:
        raise ConfigError(f"{text!r} is not a duration.", "Write for example 90s, 30m or 2h.")
    return value


def heldout_settings(heldout: str | None) -> dict[str, Any]:
    """Data settings of --heldout: a share of the text if it is a number, otherwise files separated by commas."""
    if heldout is None:
        return {}
    try:
        return {"heldout": float(heldout)}
    except ValueError:
        return {"heldout_files": heldout.split(",")}


def parse_assignment(text: str) -> dict[str, Any]:
    """The nested settings of section.key=value; a value that is not valid TOML is taken as a string."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {text!r}: expected section.key=value.", "For example: --set train.steps=40")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    return dict(parsed)


def drop_unset(**values: Any) -> dict[str, Any]:
    """The settings without None values and empty tables, at every level."""
    settings = {}
    for key, value in values.items():
        value = drop_unset(**value) if isinstance(value, dict) else value
        if value is not None and value != {}:
            settings[key] = value
    return settings


def print_status(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
