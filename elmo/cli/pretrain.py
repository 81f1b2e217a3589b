"""`elmo pretrain`: trains a biLM on text files; the same command, or --out alone, continues an interrupted run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.cli.options import (
    TEXT_FILES,
    Assignments,
    ConfigFile,
    Heldout,
    Languages,
    OptionalDevice,
    OptionalEncoding,
    Precision,
    ReadingTokenizer,
    Rows,
    RunFolder,
    Seed,
    StopAfter,
    Temperature,
    Workers,
    check_share,
    drop_unset,
    heldout_settings,
    parse_languages,
    print_status,
    report_folders,
    run_length,
)
from elmo.errors import ConfigError
from elmo.settings import OFF, parse_assignment, read_toml

EXAMPLE = "elmo pretrain 'corpus/*.txt' --out run/ --preset small --tokenizer default"


def run(
    files: Annotated[list[str] | None, typer.Argument(help=f"Text: {TEXT_FILES}; - is stdin.")] = None,
    language: Languages = None,
    temperature: Temperature = None,
    out: RunFolder = Path("run"),
    config: ConfigFile = None,
    preset: Annotated[str | None, typer.Option(help="Size: tiny, small, medium or original. Default: small.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Training settings: modern, or paper (those of the reference code).")
    ] = None,
    tokenizer: ReadingTokenizer = None,
    encoding: OptionalEncoding = None,
    heldout: Heldout = None,
    vocab: Annotated[
        str | None, typer.Option(help="Vocabulary file. Default: the most frequent words of the text.")
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Use word embeddings as input instead of characters.")] = False,
    max_chars: Annotated[
        int | None,
        typer.Option(
            help="Characters (bytes) per word that the model reads, including two boundary marks; the rest is cut. "
            "Default: 50."
        ),
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Number of passes over the text. Default: 10.")] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Number of updates; replaces --epochs.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Stop after this number of training tokens.")] = None,
    stop_after: StopAfter = None,
    rows: Rows = None,
    lr: Annotated[float | None, typer.Option(help="Maximum learning rate.")] = None,
    seed: Seed = None,
    precision: Precision = None,
    device: OptionalDevice = None,
    workers: Workers = None,
    set_: Assignments = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan with estimated memory and time, and exit.")
    ] = False,
    strict_resume: Annotated[
        bool,
        typer.Option("--strict-resume", help="Fail on a damaged checkpoint instead of using an older one."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Train a bidirectional language model on your text.

    Without files and without --config, the run in --out continues with its recorded settings and text.
    """
    from elmo.pretrain.config import make_config
    from elmo.pretrain.continued import continued_config
    from elmo.pretrain.estimate import estimate
    from elmo.pretrain.job import pretrain
    from elmo.records import format_record

    flags: dict[str, Any] = {"recipe": recipe, "preset": preset}
    flags["data"] = {
        "files": files or None,
        "languages": parse_languages(language),
        "temperature": temperature,
        "vocab_path": vocab,
        "reading": {"tokenize": OFF if tokenizer == "none" else tokenizer, "encoding": encoding},
        **heldout_settings(heldout, by_language=language is not None),
    }
    flags["train"] = {"max_tokens": max_tokens, "seed": seed, "rows": rows, "precision": precision, "device": device}
    flags["train"] |= run_length(epochs, max_steps, stop_after)
    flags["optim"] = {"lr": lr}
    if words and max_chars is not None:
        raise ConfigError("--max-chars cannot be given with --words, which reads no characters.", "Leave one out.")
    flags["model"] = {"chars": {"max_chars": max_chars}}
    changes = [drop_unset(**flags), *map(parse_assignment, set_ or ())]
    names_text = any(layer.get("data", {}).get(key) for layer in changes for key in ("files", "languages"))
    continued = config is None and not names_text
    if continued:
        if words:
            raise ConfigError("--words cannot be given for a run that is continued.", "Leave it out.")
        settings = continued_config(out, *changes)
    else:
        settings = make_config(read_toml(config) if config else {}, *changes, words=words)
    check_share(heldout, settings.data)
    if not settings.data.training_files:
        raise ConfigError("No text files were given.", f"Example: {EXAMPLE}")
    if dry_run:
        if as_json:
            raise ConfigError("--dry-run prints its plan as text and not as --json.", "Leave one of them out.")
        if not continued:
            report_folders((*settings.data.training_files, *settings.data.all_heldout_files))
        print(estimate(settings, out, continued=continued))
        return
    result = pretrain(
        settings,
        out,
        continued=continued,
        num_workers=workers,
        strict_resume=strict_resume,
        say=print_status,
        show_progress=True,
    )
    if as_json and is_first_process():
        print(format_record({"step": result.train.step, "stopped": result.train.reason, "report": result.report}))
    report_stop("pretrain", result.train.reason, result.train.signal, out)


def is_first_process() -> bool:
    """Whether this process may print: under torchrun only one of them does."""
    return os.environ.get("RANK", "0") == "0"


def report_stop(verb: str, reason: str, signal: int | None, out: Path) -> None:
    """Prints how to continue a run that was stopped early; after a signal, exits with the exit code of that signal."""
    if reason in ("signal", "time is up") and is_first_process():
        print_status(
            f"stopped ({reason}); the state of the run is saved in {out}. `elmo {verb} --out {out}` continues it."
        )
    if signal is not None:
        raise typer.Exit(128 + signal)
