"""Continues a run from its folder alone, with the settings and the text that the folder records.

run/
  config.toml    effective settings (`config`)
  data/          prepared text: the run continues with it, also if the text files have been moved
  vocab.txt      in a fine-tuning run, the adapted vocabulary
  initial.json   in a fine-tuning run, the initial model and the options of `finetune`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError
from elmo.files import read_json
from elmo.pretrain.config import CONFIG_FILE, RunConfig, make_config
from elmo.schema import COUNT, SHARE, List, check_shape
from elmo.settings import OFF, changed_settings, describe_changes, merge, read_toml

INITIAL_FILE, VOCAB_FILE = "initial.json", "vocab.txt"
_CHANGEABLE = ("train", "optim")  # sections that may change; `job.identity` refuses some of their settings
_COVERAGE = {"old_words": COUNT, "new_words": COUNT, "before": SHARE, "after": SHARE}
_INITIAL = {"model": str, "max_new_words": COUNT, "min_count": COUNT, "also": List(str), "coverage": _COVERAGE}


def continued_config(out: Path, *layers: Mapping[str, Any], finetuning: bool = False) -> RunConfig:
    """The recorded settings of the run in `out`, with `layers` of changed settings on top.

    A ConfigError if the folder does not hold a run of this kind, or if a change concerns the text or the model.
    `train.stop_after`, the time limit of one call, is not taken over.
    """
    _check_run(out, finetuning)
    shard_by_shard = {"train": {"shuffle_window": 0}}  # the order of runs that do not record this setting
    recorded = merge(merge(shard_by_shard, read_toml(out / CONFIG_FILE)), {"train": {"stop_after": OFF}})
    before, config = make_config(recorded), make_config(recorded, *layers)
    changes = {
        key: values
        for key, values in changed_settings(asdict(before), asdict(config)).items()
        if key.split(".")[0] not in _CHANGEABLE
    }
    if changes:
        raise ConfigError(
            f"The run in {out} is continued with its own text and model, and these settings differ: "
            f"{describe_changes(changes)}.",
            "Leave them out. To train with them, name the text files and choose another --out.",
        )
    return config


def read_initial(out: Path) -> dict[str, Any]:
    """The initial model and the options of the fine-tuning run in `out`, as `finetune` recorded them."""
    path = out / INITIAL_FILE
    if not path.exists():
        raise ConfigError(
            f"{out} does not record its initial model: an earlier version of this package started the run.",
            "Repeat the command that started it, with the model and the text files.",
        )
    values = read_json(path)
    check_shape(values, _INITIAL, path, hint="Repeat the command that started the run.")
    return values


def _check_run(out: Path, finetuning: bool) -> None:
    """Raises ConfigError if `out` is not the folder of a run of `elmo pretrain`, or of `elmo finetune`."""
    if not (out / CONFIG_FILE).is_file():
        reason = f"it has no {CONFIG_FILE}" if out.exists() else "it does not exist"
        what = "model and text files" if finetuning else "text files"
        raise ConfigError(
            f"No {what} were given, and {out} is not the folder of a run: {reason}.",
            f"Give {what} to start a run, or the folder of an interrupted run as --out to continue it.",
        )
    check_verb(out, finetuning=finetuning)


def check_verb(out: Path, *, finetuning: bool) -> None:
    """Raises ConfigError if the run in `out` is not one of `elmo finetune`, or not one of `elmo pretrain`."""
    is_finetuning = (out / VOCAB_FILE).exists()
    if is_finetuning != finetuning:
        verb = "finetune" if is_finetuning else "pretrain"
        hint = f"Continue it with `elmo {verb} --out {out}`, or choose another --out."
        raise ConfigError(f"{out} is a run of `elmo {verb}`.", hint)
