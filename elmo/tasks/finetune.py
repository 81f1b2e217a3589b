"""Fine-tunes a biLM on a task's training text, without labels, before the task is trained (paper, Table 7).

RUN/
  bilm-finetuning/   during fine-tuning: the text, and the folder of a pretraining run, which can be resumed
  bilm/              the fine-tuned model, for `elmo.load` and for other runs, with a summary in its config.json

The perplexity of the dev text is measured before and after, for each part of the text (contexts and questions of
SQuAD), with the full softmax and the vocabulary of the model. A text that several examples share is read once.
"""

from __future__ import annotations

import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from elmo.devices import choose_device
from elmo.embed.load import load, model_parts
from elmo.embed.model_checksum import vectors_checksum
from elmo.errors import ConfigError
from elmo.files import atomic_file, explain_write, read_json, sha256_file
from elmo.pretrain.config import make_config as make_pretraining_config
from elmo.pretrain.finetune import finetune
from elmo.records import write_json
from elmo.run_folder import lock_run_folder
from elmo.settings import above, at_least, changed_settings, check_fields, format_assignment
from elmo.tasks.checks import check_files, check_folder, check_same
from elmo.tasks.config import RunConfig
from elmo.tasks.record import command_of, finetuning_of
from elmo.tasks.run import BILM
from elmo.tasks.task import Task, load_task, read_labelled_file
from elmo.tasks.train import train
from elmo.tasks.training_loop import Say
from elmo.weights.store import CONFIG, read_store, save_store

WORK = "-finetuning"  # is added to the name of the model's folder while it is made
STEPS = 20  # tokens per row and update
MAX_ROWS = 128
LEAST_UPDATES = 250  # per epoch, if the text is long enough for that with one row
CHECKPOINT_EVERY = 100  # updates
FULL_SOFTMAX = 32_768  # words; a smaller vocabulary is trained without sampling

Sentence = Sequence[str]


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """How the biLM is fine-tuned on the text of the task."""

    epochs: Annotated[float, above(0)] = 1.0  # passes over the training text; the paper makes one
    lr: Annotated[float, above(0)] = 5e-4  # peak learning rate
    rows: Annotated[int, at_least(0)] = 0  # rows of running text per update; 0: by the length of the text
    new_words: Annotated[int, at_least(0)] = 0  # frequent words outside the vocabulary that get a row in the softmax
    seed: Annotated[int, at_least(0, up_to=2**31)] = 0  # not that of the task, so that runs with other seeds share it

    def __post_init__(self) -> None:
        check_fields(self)


def finetune_and_train(
    config: RunConfig,
    out: str | Path,
    settings: FinetuneConfig | None = None,
    *,
    bilm: str | Path | None = None,
    say: Say = lambda line: None,
    show: bool | None = None,
    wait: bool = False,
) -> dict[str, Any]:
    """Fine-tunes `config.elmo.model` on the task's text, then trains the task with it; returns the task's record.

    The fine-tuned model is the folder `bilm`, by default OUT/bilm. If it is there already, it is used as it is; it must
    come from the same model, files and settings. Both stages resume after an interruption.
    """
    folder = Path(out) / BILM if bilm is None else Path(bilm)
    tuned = finetune_on_task(config, folder, settings, say=say, wait=wait)
    config = replace(config, elmo=replace(config.elmo, model=str(tuned)))
    return train(config, out, say=say, show=show, wait=wait)


def finetune_on_task(
    config: RunConfig,
    folder: str | Path,
    settings: FinetuneConfig | None = None,
    *,
    say: Say = lambda line: None,
    wait: bool = False,
) -> Path:
    """Fine-tunes `config.elmo.model` on the text of the task's training file and writes the model to `folder`.

    All of the training file is read, also if `config.data.fraction` selects a share of the labelled examples. Progress
    is kept next to `folder`, and the same call resumes it.
    """
    folder, settings = Path(folder), settings or FinetuneConfig()
    if not config.elmo.used:
        raise ConfigError("Fine-tuning needs a biLM, and the settings have elmo.mode = 'none'.", "Add --elmo MODEL.")
    check_folder(folder)
    check_files(config)
    task = load_task(config.task)
    identity = _identity(config, settings)
    with lock_run_folder(folder.parent, wait=say if wait else None):
        if folder.exists():
            check_same(folder, _finished_identity(folder), identity)
            shutil.rmtree(_work_folder(folder), ignore_errors=True)  # if the process died before it was removed
            say(f"{folder} is fine-tuned already: {_describe(finetuning_of(folder) or {})}")
            return folder
        _finetune(task, config, folder, settings, identity, say)
    return folder


def task_texts(task: Task, examples: Sequence[Any]) -> dict[str, list[Sentence]]:
    """The sentences of the examples by part of the text; a text that several examples share is returned once."""
    parts: dict[str, dict[tuple[tuple[str, ...], ...], None]] = {}
    for example in examples:
        for part, sentences in task.texts(example).items():
            parts.setdefault(part, {})[tuple(map(tuple, sentences))] = None
    return {part: [sentence for text in texts for sentence in text if sentence] for part, texts in parts.items()}


def rows_for(num_tokens: int) -> int:
    """The power of two, at most MAX_ROWS, with which an epoch has LEAST_UPDATES updates or more, if possible."""
    limit = min(MAX_ROWS, max(1, num_tokens // (STEPS * LEAST_UPDATES)))
    return 1 << (limit.bit_length() - 1)


def _finetune(
    task: Task, config: RunConfig, folder: Path, settings: FinetuneConfig, identity: dict[str, Any], say: Say
) -> None:
    work = _work_folder(folder)
    parts = model_parts(config.elmo.model)
    if parts.config.head is None:
        raise ConfigError(
            f"{config.elmo.model} has no softmax, which fine-tuning needs to predict words.",
            "Choose a model with a softmax (`elmo info MODEL` shows it), such as `default`.",
        )
    if (work / "identity.json").exists():
        check_same(work, read_json(work / "identity.json"), identity)
    files = {
        split: _write_text(task, getattr(config.data, split), config.data.tokenizer, work / "text" / split)
        for split in ("train", "dev")
    }
    write_json(work / "identity.json", identity)
    num_tokens = sum(num for _, num in files["train"].values())
    pretraining = make_pretraining_config(
        {
            "data": {
                "files": [str(path) for path, _ in files["train"].values()],
                "heldout_files": [str(path) for path, _ in files["dev"].values()],
                "heldout": 0.0,
                "reading": {"specials": "escape"},  # <UNK> as a word of the data is text
            },
            "objective": {"softmax": "sampled" if parts.config.head.vocab_size > FULL_SOFTMAX else "full"},
            "optim": {"lr": settings.lr},
            "train": {
                "epochs": settings.epochs,
                "rows": settings.rows or rows_for(num_tokens),
                "steps": STEPS,
                "seed": settings.seed,
                "validate_every": 0,  # the weights at the end are used
                "checkpoint_every": CHECKPOINT_EVERY,
                "device": config.train.device,
            },
        }
    )
    result, report = finetune(
        parts, pretraining, work, max_new_words=settings.new_words, num_workers=1, strict_resume=True, say=say
    )
    if result.train.signal is not None:
        say(f"stopped by {signal.Signals(result.train.signal).name}; the same command resumes the fine-tuning.")
        signal.raise_signal(result.train.signal)
    assert result.model is not None
    summary = {
        **identity,
        "task": task.name,
        "command": _command(task, config, settings),
        "updates": result.train.step,
        "words": num_tokens,
        "coverage": report["coverage"],
        "perplexity": {
            "definition": report["before"]["definition"],
            **{side: _by_part(report[side], list(files["dev"])) for side in ("before", "after")},
        },
    }
    tuned = read_store(result.model)
    save_store(folder, replace(tuned, about={**tuned.about, "finetuning": summary}))
    shutil.rmtree(work)
    say(f"{folder}: {_describe(summary)}")


def _work_folder(folder: Path) -> Path:
    return folder.with_name(folder.name + WORK)


def _identity(config: RunConfig, settings: FinetuneConfig) -> dict[str, Any]:
    """What the fine-tuned model depends on: it is not used for runs in which one of these values is another."""
    sha256 = vectors_checksum(load(config.elmo.model, device=choose_device(config.train.device)))
    tokenizer = {"tokenizer": config.data.tokenizer} if config.data.tokenizer else {}
    return {
        "initial": {"model": config.elmo.model, "sha256": sha256},
        "data": {split: {"sha256": sha256_file(getattr(config.data, split))} for split in ("train", "dev")} | tokenizer,
        "settings": asdict(settings),
    }


def _finished_identity(folder: Path) -> dict[str, Any]:
    summary = read_json(folder / CONFIG).get("about", {}).get("finetuning") if (folder / CONFIG).is_file() else None
    if not isinstance(summary, dict):
        raise ConfigError(f"{folder} is not a biLM that was fine-tuned on a task.", "Choose another --out.")
    return {key: summary.get(key) for key in ("initial", "data", "settings")}


def _write_text(task: Task, examples: str, tokenizer_name: str | None, folder: Path) -> dict[str, tuple[Path, int]]:
    """Writes one file per part of the text, a sentence per line; returns its path and its number of tokens."""
    with explain_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for part, sentences in task_texts(task, read_labelled_file(task, examples, tokenizer_name)).items():
        path = folder / f"{part}.txt"
        with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(" ".join(sentence) + "\n" for sentence in sentences)
        files[part] = path, sum(map(len, sentences))
    return files


def _by_part(report: Mapping[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """The perplexity of all dev text, and under "by_part" that of each part."""
    together = {key: value for key, value in report.items() if key not in ("by_source", "definition")}
    by_source = report.get("by_source") or {f"{parts[0]}.txt": together}
    by_part = {
        part: {key: value for key, value in by_source[f"{part}.txt"].items() if key != "definition"} for part in parts
    }
    return {**together, "by_part": by_part}


def _command(task: Task, config: RunConfig, settings: FinetuneConfig) -> str:
    words = [command_of(task, config), "--finetune-bilm"]
    for key, (_, value) in changed_settings(asdict(FinetuneConfig()), asdict(settings)).items():
        words += ["--set", shlex.quote(format_assignment(f"finetune.{key}", value))]
    return " ".join(words)


def _describe(summary: Mapping[str, Any]) -> str:
    """One phrase with the perplexity of each part before and after."""
    before, after = (summary["perplexity"][side]["by_part"] for side in ("before", "after"))
    changes = [f"{part} {before[part]['reset']['mean']:,.2f} -> {after[part]['reset']['mean']:,.2f}" for part in before]
    return f"dev perplexity {', '.join(changes)}"
