"""Options that several verbs share, and the parsers that turn their values into settings."""

from __future__ import annotations

import glob
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elmo.errors import ConfigError, printable

if TYPE_CHECKING:
    from elmo.pretrain.data.prepare_config import PrepareConfig

log = logging.getLogger(__name__)

TASK_NAMES = "squad, snli, srl, coref, ner, sst"

TaskName = Annotated[str, typer.Argument(help=f"Task: {TASK_NAMES}.")]
TrainFile = Annotated[
    Path | None, typer.Option(help="Training examples in the format of the task (.gz .bz2 .xz .zst too).")
]
DevFile = Annotated[
    Path | None, typer.Option(help="Development examples in the format of the task (.gz .bz2 .xz .zst too).")
]
ConfigFile = Annotated[Path | None, typer.Option(help="TOML file with settings; flags override it.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", help="Any other setting as section.key=value; may be repeated.")
]
DEVICES = "Device: auto, cpu, cuda, cuda:1, mps. Default: auto."
Device = Annotated[str, typer.Option("--device", show_default=False, help=DEVICES)]
OptionalDevice = Annotated[str | None, typer.Option("--device", help=DEVICES)]  # None: that of the settings of a run
ModelName = Annotated[str, typer.Option("--model", help="Name, folder or file of the model.")]
ModelFile = Annotated[str, typer.Argument(help="Name, folder or file of a model; with --weights, its options file.")]
Weights = Annotated[str, typer.Option("--weights", help="Weights file, if MODEL is the options file.")]
Paragraphs = Annotated[bool, typer.Option("--paragraphs", help="Split the corpus's lines into sentences.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def known_tokenizer(name: str | None) -> str | None:
    """The name of a tokenizer, if there is one of this name: checked before a model is loaded or warned about."""
    from elmo.text.tokenize import tokenizer

    if name is not None and name != "none":
        tokenizer(name)
    return name


Tokenizer = Annotated[
    str | None,
    typer.Option(
        callback=known_tokenizer,
        help="Tokenizer: default (English), unicode (any language), spacy:LANG, moses:LANG, or whitespace if the text "
        "is already tokenised. Default: that of the model.",
    ),
]
ReadingTokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        callback=known_tokenizer,
        help="Tokenizer for raw text with one paragraph per line: default (English), unicode (any language), "
        "spacy:LANG, moses:LANG, whitespace; none: the text has one tokenised sentence per line. Default: that of the "
        "model, or else none.",
    ),
]
Encoding = Annotated[str, typer.Option(help="Encoding of the text, for example latin-1, cp1252 or utf-16.")]
InvalidBytes = Annotated[
    str,
    typer.Option("--errors", help="Handling of bytes that are invalid in the encoding: strict (stop) or replace."),
]
OptionalEncoding = Annotated[
    str | None, typer.Option("--encoding", help="Encoding of the text, for example latin-1 or utf-16. Default: utf-8.")
]
Heldout = Annotated[
    list[str] | None,
    typer.Option(
        "--heldout",
        help="Held-out text: a share of the sentences between 0 and 1, or files, separated by commas or in repeated "
        "options; with --language as de=test.txt,fr=test2.txt. Default: 0.01.",
    ),
]
RunFolder = Annotated[
    Path, typer.Option(help="Folder of the run. The same command, or --out alone, continues an interrupted run.")
]
Languages = Annotated[
    list[str] | None,
    typer.Option(
        "--language",
        help="Text of one language, instead of the files: LANGUAGE=FILES (de=de.txt, fr='fr/*.txt'); may be repeated, "
        "also for more files of a language. In `elmo pretrain`, other languages in the file of --config stay.",
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        min=1.0,
        help="Sampling of languages: each is read in proportion to size ** (1 / temperature). 1, the default, reads "
        "the text as it is; 2 and more repeat small languages.",
    ),
]
TEXT_FILES = "files, globs or folders (.txt files; .gz .bz2 .xz .zst too)"
StopAfter = Annotated[str | None, typer.Option(help="Stop after this time and save a checkpoint: 90s, 30m, 2h.")]
Rows = Annotated[int | None, typer.Option(help="Batch size: rows of continuous text per update. Default: 128.")]
Precision = Annotated[
    str | None,
    typer.Option(
        help="Number type of matrix products: float32, bfloat16, or auto (bfloat16 on CUDA); the rest is float32."
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed of all random numbers.")]
Workers = Annotated[int | None, typer.Option(help="Number of processes that prepare the text. Default: one per core.")]


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


def run_length(epochs: float | None, max_steps: int | None, stop_after: str | None) -> dict[str, Any]:
    """Train settings of --epochs, --max-steps and --stop-after; None where a flag is not given."""
    if epochs is not None and max_steps is None:
        max_steps = 0  # as many as the epochs take, also where a file of settings has another number
    seconds = None if stop_after is None else parse_duration(stop_after)
    return {"epochs": epochs, "max_steps": max_steps, "stop_after": seconds}


def parse_languages(values: Iterable[str] | None, flag: str = "--language") -> dict[str, list[str]] | None:
    """The files of each language from LANGUAGE=FILES; a language that is named again gets more files."""
    if values is None:
        return None
    languages: dict[str, list[str]] = {}
    for value in values:
        name, equals, files = value.partition("=")
        if not equals or not name or not files:
            raise ConfigError(f"{flag} {value!r}: expected LANGUAGE=FILES.", f"For example {flag} de=de.txt")
        parts = [part for part in files.split(",") if part]
        if len(parts) > 1 and not os.path.exists(files) and not glob.glob(files, recursive=True):
            first, second, *_ = parts
            raise ConfigError(
                f"{flag} {value!r}: no such file; expected one file, glob or folder.",
                f"Repeat the option for more files: {flag} {name}={first} {flag} {name}={second}",
            )
        languages.setdefault(name, []).append(files)
    return languages


def heldout_settings(heldout: list[str] | None, *, by_language: bool = False) -> dict[str, Any]:
    """Data settings of --heldout: a share of the text if its only value is a number, otherwise files.

    With `by_language` each file is written LANGUAGE=FILE. Files replace a share in a file of settings, and a share
    replaces its `heldout_files`; `check_share` refuses a share beside its `heldout_languages`.
    """
    from elmo.pretrain.data.prepare_config import PrepareConfig

    if not heldout:
        return {}
    share = _share(heldout)
    if share is not None:
        return {"heldout": share, "heldout_files": []}
    files = [name for value in heldout for name in _split_files(value, by_language=by_language)]
    unused = {"heldout": PrepareConfig.heldout}  # the default share, which is not used beside files
    if by_language:
        return {"heldout_languages": parse_languages(files, "--heldout"), **unused}
    return {"heldout_files": files, **unused}


def check_share(heldout: list[str] | None, data: PrepareConfig) -> None:
    """A share of --heldout is refused where the settings name held-out files of languages, which would be used."""
    if heldout and _share(heldout) is not None and data.heldout_languages:
        raise ConfigError(
            f"--heldout {heldout[0]} is a share of the text, and data.heldout_languages names held-out files.",
            "Leave out --heldout, or the table data.heldout_languages in the file of settings.",
        )


def _share(heldout: list[str]) -> float | None:
    """The share that --heldout gives; None if it gives files. A number that is also the name of a file is refused."""
    value, *others = heldout
    if others:
        return None
    try:
        share = float(value)
    except ValueError:
        return None
    if os.path.exists(value):
        raise ConfigError(
            f"--heldout {value}: a file has this name, which is also a share of the text.",
            f"Write {os.path.join(os.curdir, value)} for the file, or +{value} for the share.",
        )
    return share


def _split_files(value: str, *, by_language: bool) -> list[str]:
    """The files of a value of --heldout, which commas separate; a comma can also belong to the name of one file."""
    name = value.partition("=")[2] if by_language else value
    return [value] if os.path.exists(name) or glob.glob(name, recursive=True) else value.split(",")


def drop_unset(**values: Any) -> dict[str, Any]:
    """The settings without None values and empty tables, at every level."""
    settings = {}
    for key, value in values.items():
        value = drop_unset(**value) if isinstance(value, dict) else value
        if value is not None and value != {}:
            settings[key] = value
    return settings


def reading_tokenizer_of(own: str | None, given: str | None, *, announce: bool = True) -> str | None:
    """The tokenizer of --tokenizer for text files; with `announce`, a status line says that it is the model's own."""
    from elmo.text.tokenizer_function import reading_tokenizer

    if announce and given is None and own is not None:
        print_status(f"tokenizer {own}, as in the training of the model; for tokenised text pass --tokenizer none")
    return reading_tokenizer(own, given)


def report_folders(files: Iterable[str]) -> None:
    """Prints what is read of each folder among the text files."""
    from elmo.pretrain.data.sources import describe_folders

    for line in describe_folders(files):
        print_status(line)


def warn_of_file_names(texts: Iterable[str]) -> None:
    """A warning for each text that is the name of a file, which --file would read."""
    for text in texts:
        if os.path.isfile(text):
            log.warning("%s is a file, and its name is read as the text; --file reads the file.", text)


def check_invalid_bytes(errors: str) -> Literal["strict", "replace"]:
    """The value of --errors."""
    if errors not in ("strict", "replace"):
        raise ConfigError(f"--errors is {errors!r}; expected strict or replace.")
    return "replace" if errors == "replace" else "strict"


def stated_encoding(encoding: str) -> str | None:
    """The encoding for the command line of a record; None if it is the default."""
    return None if encoding == "utf-8" else encoding


def print_status(line: str) -> None:
    """Prints a status line to stderr, if there is one: a process may be started with stderr closed."""
    if sys.stderr is not None:
        print(printable(line), file=sys.stderr, flush=True)


def optional_str(value: Path | None) -> str | None:
    """The path as text, or None."""
    return None if value is None else str(value)
