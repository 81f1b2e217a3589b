"""The start of a fine-tuning run: its vocabulary, its model and its options are found and recorded in the run folder.

A folder that holds another run is refused before anything is written there, because its run could not be continued with
another vocabulary.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError
from elmo.files import atomic_file
from elmo.pretrain.adaptation import adapt_vocabulary
from elmo.pretrain.config import CONFIG_FILE, RunConfig, make_config
from elmo.pretrain.continued import INITIAL_FILE, VOCAB_FILE, check_verb, read_initial
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.vocabulary import read_vocabulary
from elmo.records import write_json
from elmo.settings import changed_settings, describe_changes, read_toml
from elmo.weights.model_parts import ModelParts
from elmo.weights.word_list import write_words


def record_start(
    parts: ModelParts,
    config: RunConfig,
    out: Path,
    *,
    max_new_words: int,
    min_count: int,
    also: tuple[str, ...],
    num_workers: int | None,
) -> None:
    """Writes the vocabulary and initial.json of a run on `config.data`; the caller holds the folder `out`.

    A ConfigError if the folder holds a run with another model, other options or another vocabulary. `also` may differ:
    these files are only measured.
    """
    source = os.path.abspath(parts.source) if os.path.exists(parts.source) else parts.source
    start = {"model": source, "max_new_words": max_new_words, "min_count": min_count}
    if (out / CONFIG_FILE).is_file():
        check_verb(out, finetuning=True)
    recorded = read_initial(out) if (out / INITIAL_FILE).exists() else None
    if recorded is not None:
        _check_same_start(out, recorded, start)
        _check_same_reading(out, config.data)
    vocab, coverage = adapt_vocabulary(parts, config, max_new_words, min_count, num_workers)
    if (out / VOCAB_FILE).exists():
        _check_same_vocabulary(out, vocab)
    else:
        with atomic_file(out / VOCAB_FILE) as partial:
            write_words(partial, vocab)
    write_json(out / INITIAL_FILE, {**(recorded or {**start, "coverage": vars(coverage)}), "also": list(also)})


def _check_same_start(out: Path, recorded: dict[str, Any], start: dict[str, Any]) -> None:
    if changes := describe_changes(changed_settings({name: recorded[name] for name in start}, start)):
        raise ConfigError(f"{out} holds a run of `elmo finetune` that was started otherwise ({changes}).", _hint(out))


def _check_same_reading(out: Path, data: PrepareConfig) -> None:
    """Compares the settings that decide how often the words of the same text count with those of the run in `out`."""
    if not (out / CONFIG_FILE).is_file():
        return
    before, after = (_reading_settings(one) for one in (make_config(read_toml(out / CONFIG_FILE)).data, data))
    if changes := describe_changes(changed_settings(before, after)):
        raise ConfigError(f"{out} holds a run of `elmo finetune` with other settings ({changes}).", _hint(out))


def _reading_settings(data: PrepareConfig) -> dict[str, Any]:
    return {
        "data.languages": ", ".join(data.languages) or "none",
        "data.temperature": data.temperature,
        **{f"data.reading.{name}": value for name, value in vars(data.reading).items()},
    }


def _check_same_vocabulary(out: Path, vocab: list[str]) -> None:
    recorded = list(read_vocabulary(out / VOCAB_FILE).words)
    if recorded == vocab:
        return
    pairs = zip(recorded, vocab, strict=False)
    line = next((number for number, pair in enumerate(pairs) if pair[0] != pair[1]), min(len(recorded), len(vocab)))
    raise ConfigError(
        f"{out} holds a run of `elmo finetune` on other text: its vocabulary has {len(recorded):,} words, that of this "
        f"text and model {len(vocab):,}, and they differ from line {line + 1:,} on.",
        _hint(out),
    )


def _hint(out: Path) -> str:
    return f"`elmo finetune --out {out}` continues that run; for another run choose another --out."
