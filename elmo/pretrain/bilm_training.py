"""Pretraining and fine-tuning as Python functions: files or lines of text in, a model folder and a report out.

    result = elmo.train_bilm(lines=["One sentence .", "Another ."], out="run", preset="tiny", train={"max_steps": 100})
    embedder = elmo.load(result.model)

The keyword settings are the sections of the TOML file (`config`). The functions are not called `elmo.pretrain` and
`elmo.finetune`, because `elmo.pretrain` is this package: an attribute cannot be both a module and a typed function.
"""

from __future__ import annotations

import filecmp
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError, DataError, OutputError
from elmo.files import atomic_file, explain_write
from elmo.pretrain.config import RunConfig, make_config
from elmo.pretrain.continued import VOCAB_FILE
from elmo.pretrain.finetune import finetune
from elmo.pretrain.finetune_settings import DEFAULTS, check_finetuning_settings
from elmo.pretrain.job import JobResult, pretrain
from elmo.text.encodings import UTF8
from elmo.text.tokenizer_function import reading_tokenizer
from elmo.weights.lookup import find_model

log = logging.getLogger(__name__)

_OF_A_TEXT = ("data", VOCAB_FILE)  # what a run writes from its text: prepared shards; in fine-tuning, a vocabulary
Files = str | Path | Sequence[str | Path]
Text = Files | Mapping[str, Files]  # with several languages: language -> files
Section = Mapping[str, Any]


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended, its model folder and its report (both None if a signal stopped the run)."""

    model: Path | None
    report: dict[str, Any] | None
    num_steps: int
    stopped: str  # the reason: finished, max tokens, early stop, time is up, signal


def train_bilm(
    files: Text | None = None,  # names or globs; several languages: {"de": "de.txt", "fr": ["a.txt", "b.txt"]}
    *,
    lines: Iterable[str] | None = None,  # text in memory, instead of files
    out: str | Path,
    tokenizer: str | None = None,  # of raw text; None or "none": one tokenised sentence per line
    preset: str = "small",
    recipe: str = "modern",
    words: bool = False,  # word embeddings as input instead of characters
    data: Section | None = None,
    model: Section | None = None,
    objective: Section | None = None,
    optim: Section | None = None,
    train: Section | None = None,
    num_workers: int | None = None,
    strict_resume: bool = False,
    say: Callable[[str], None] = log.info,
) -> TrainingResult:
    """Trains a biLM in the folder `out`, as `elmo pretrain` does; the same call resumes an interrupted run."""
    sections = {"data": data, "model": model, "objective": objective, "optim": optim, "train": train}
    tokenizer = reading_tokenizer(None, tokenizer)
    config = _config({"preset": preset, "recipe": recipe}, sections, files, lines, Path(out), tokenizer, words)
    result = pretrain(config, Path(out), num_workers=num_workers, strict_resume=strict_resume, say=say)
    return _result(result, result.report)


def finetune_bilm(
    initial_model: str | Path,  # name, folder or file
    files: Text | None = None,
    *,
    lines: Iterable[str] | None = None,
    out: str | Path,
    tokenizer: str | None = None,  # of raw text; None: the model's own, if it is known; "none": see train_bilm
    max_new_words: int = 50_000,
    min_count: int = 5,
    also: Sequence[str | Path] = (),  # held-out files of the old domain
    data: Section | None = None,
    objective: Section | None = None,
    optim: Section | None = None,  # lr is 5e-4 by default
    train: Section | None = None,  # epochs is 1 by default
    num_workers: int | None = None,
    strict_resume: bool = False,
    say: Callable[[str], None] = log.info,
) -> TrainingResult:
    """Continues the training of a model on other text, as `elmo finetune` does; the report compares both models."""
    sections = {"data": data, "objective": objective, "optim": optim, "train": train}
    parts = find_model(initial_model)
    given = {name: section for name, section in sections.items() if section is not None}
    check_finetuning_settings(parts.config.head, given)
    tokenizer = reading_tokenizer(parts.tokenizer, tokenizer)
    config = _config(DEFAULTS, sections, files, lines, Path(out), tokenizer, words=False)
    result, report = finetune(
        parts,
        config,
        Path(out),
        max_new_words=max_new_words,
        min_count=min_count,
        also=tuple(map(str, also)),
        num_workers=num_workers,
        strict_resume=strict_resume,
        say=say,
    )
    return _result(result, report if result.model is not None else None)


def _config(
    defaults: Mapping[str, Any],
    sections: Mapping[str, Section | None],
    files: Text | None,
    lines: Iterable[str] | None,
    out: Path,
    tokenizer: str | None,
    words: bool,
) -> RunConfig:
    if (files is None) == (lines is None):
        raise ConfigError("Expected either files or lines.", "Pass one of files=... and lines=....")
    languages = {name: _as_list(of_one) for name, of_one in files.items()} if isinstance(files, Mapping) else {}
    names = [] if isinstance(files, Mapping) or files is None else _as_list(files)
    given: dict[str, Any] = {name: section for name, section in sections.items() if section is not None}
    text: dict[str, Any] = {"languages": languages} if languages else {"files": names or [str(out / "lines.txt")]}
    if tokenizer is not None:
        text["reading"] = {"tokenize": tokenizer}
    if lines is not None:
        text["reading"] = {**text.get("reading", {}), "encoding": UTF8}  # as `_write_lines` writes them
    config = make_config(defaults, given, {"data": text}, words=words)  # wrong settings are reported before any work
    if lines is not None:
        _write_lines(out / "lines.txt", lines)
    elif not names and not languages:
        raise ConfigError("No text files were given.", "Name files or globs.")
    return config


def _as_list(files: Files) -> list[str]:
    return [str(files)] if isinstance(files, (str, Path)) else [str(name) for name in files]


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes the text into the run folder, where a resumed run finds it; under torchrun, one process does.

    The text from which a run has written files is never replaced.
    """
    if os.environ.get("RANK", "0") != "0":
        return
    if isinstance(lines, str):
        raise TypeError("lines is a string; expected a list or another iterable of strings, one per line.")
    with explain_write(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as partial:
        with open(partial, "w", encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(lines):
                if not isinstance(line, str):
                    raise TypeError(f"lines[{number}] is a {type(line).__name__}; expected a string.")
                if "\n" in line.removesuffix("\n"):
                    raise DataError(f"lines[{number}] contains a line break.", "Pass one string per line.")
                file.write(line.removesuffix("\n") + "\n")
        is_used = any((path.parent / name).exists() for name in _OF_A_TEXT)
        if is_used and path.exists() and not filecmp.cmp(partial, path, shallow=False):
            raise OutputError(
                f"The run in {path.parent} was started with other lines.",
                "Pass the same lines to continue it, or choose another folder.",
            )


def _result(result: JobResult, report: dict[str, Any] | None) -> TrainingResult:
    return TrainingResult(result.model, report, result.train.step, result.train.reason)
