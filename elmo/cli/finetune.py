"""`elmo finetune`: continues the training of a model on text of another domain."""

from __future__ import annotations

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
    reading_tokenizer_of,
    run_length,
)
from elmo.cli.pretrain import is_first_process, report_stop
from elmo.errors import ConfigError
from elmo.settings import OFF, merge, parse_assignment, read_toml

EXAMPLE = "elmo finetune my-model/ medical/*.txt --out medical-run/ --heldout medical-test.txt --also news-test.txt"


def run(
    model: Annotated[str | None, typer.Argument(help="Name, folder or file of the model to start from.")] = None,
    files: Annotated[list[str] | None, typer.Argument(help=f"Text of the new domain: {TEXT_FILES}.")] = None,
    language: Languages = None,
    temperature: Temperature = None,
    out: RunFolder = Path("finetuned"),
    config: ConfigFile = None,
    tokenizer: ReadingTokenizer = None,
    encoding: OptionalEncoding = None,
    heldout: Heldout = None,
    also: Annotated[
        list[str] | None, typer.Option(help="Held-out text of the old domain, measured before and after as well.")
    ] = None,
    new_words: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Maximum number of new words that get a row in the softmax. Default: 50,000. A model without a "
            "softmax gets one of data.max_vocab words.",
        ),
    ] = None,
    min_count: Annotated[
        int | None, typer.Option(min=1, help="Minimum count of a new word in the text. Default: 5.")
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Number of passes over the text. Default: 1.")] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Number of updates; replaces --epochs.")] = None,
    stop_after: StopAfter = None,
    rows: Rows = None,
    lr: Annotated[float | None, typer.Option(help="Maximum learning rate. Default: 0.0005.")] = None,
    seed: Seed = None,
    precision: Precision = None,
    device: OptionalDevice = None,
    workers: Workers = None,
    set_: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON on stdout.")] = False,
) -> None:
    """Continue the training of a model on text of another domain and report perplexity before and after.

    Frequent words that the softmax does not contain get new rows in it. Without model and files, the run in --out
    continues with its recorded settings and text.
    """
    from elmo.pretrain.config import make_config
    from elmo.pretrain.continued import continued_config, read_initial
    from elmo.pretrain.finetune import finetune
    from elmo.pretrain.finetune_settings import DEFAULTS, check_finetuning_settings
    from elmo.records import format_record
    from elmo.weights.lookup import find_model

    flags: dict[str, Any] = {"data": heldout_settings(heldout, by_language=language is not None), "optim": {"lr": lr}}
    flags["train"] = {"rows": rows, "seed": seed, "precision": precision, "device": device}
    flags["train"] |= run_length(epochs, max_steps, stop_after)
    options: dict[str, Any] = {"max_new_words": new_words, "min_count": min_count, "also": also}
    flags["data"] |= {"languages": parse_languages(language), "temperature": temperature}
    continued, assignments = model is None, [parse_assignment(text) for text in set_ or ()]
    is_first = is_first_process()
    if model is None and config is not None:
        raise ConfigError("--config was given without a model.", f"Example: elmo finetune english --config {config}")
    if model is None:
        flags["data"]["reading"] = {"tokenize": OFF if tokenizer == "none" else tokenizer, "encoding": encoding}
        settings = continued_config(out, drop_unset(**flags), *assignments, finetuning=True)
        options = _recorded_options(read_initial(out), options, out)
        parts = find_model(options.pop("model"))
    else:
        from_file = read_toml(config) if config else {}
        flags["data"] |= {"files": files or None, "reading": {"encoding": encoding}}
        given = merge(from_file, drop_unset(**flags))
        if not make_config(given).data.training_files:
            raise ConfigError(f"No text files were given: {model} was read as the model.", f"Example: {EXAMPLE}")
        parts = find_model(model)
        check_finetuning_settings(parts.config.head, from_file, *assignments)
        if tokenizer is None and (in_file := given["data"].get("reading", {}).get("tokenize")) is not None:
            tokenizer = "none" if in_file == OFF else in_file
        reading = {"tokenize": reading_tokenizer_of(parts.tokenizer, tokenizer, announce=is_first) or OFF}
        settings = make_config(DEFAULTS, given, {"data": {"reading": reading}}, *assignments)
        options = {"max_new_words": 50_000, "min_count": 5, **drop_unset(**options)}
    check_share(heldout, settings.data)
    options["also"] = tuple(options.get("also", ()))
    result, report = finetune(
        parts,
        settings,
        out,
        **options,
        continued=continued,
        num_workers=workers,
        say=print_status,
        show_progress=True,
    )
    if is_first and as_json:
        print(format_record({**report, "step": result.train.step, "stopped": result.train.reason}))
    elif is_first:
        _print_change(report)
    report_stop("finetune", result.train.reason, result.train.signal, out)


def _recorded_options(recorded: dict[str, Any], given: dict[str, Any], out: Path) -> dict[str, Any]:
    """The model and the options of a run that is continued; an option that was given must be the recorded one."""
    flags = {"max_new_words": "--new-words", "min_count": "--min-count", "also": "--also"}
    for name, flag in flags.items():
        if given[name] is not None and given[name] != recorded[name]:
            raise ConfigError(
                f"{flag} is {given[name]}; the run in {out} was started with {recorded[name]}.", f"Leave out {flag}."
            )
    return {name: recorded[name] for name in ("model", *flags)}


def _print_change(report: dict[str, Any]) -> None:
    before, after = report.get("before") or {}, report.get("after") or {}
    sources = after.get("by_source") or ({"text": after} if after else {})
    for name, row in sources.items():
        row_before = (before.get("by_source") or {"text": before}).get(name, {})
        start = f"{row_before['reset']['mean']:,.2f}" if "reset" in row_before else "no softmax"
        print(f"{name:28} perplexity (reset) {start} -> {row['reset']['mean']:,.2f}")
