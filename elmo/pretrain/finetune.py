"""Fine-tunes a trained biLM on text of a new domain, with its vocabulary adapted to it (`adaptation`).

A softmax that is new has random weights: it is trained alone at first, so that it does not disturb the other weights.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError
from elmo.files import atomic_file, read_json
from elmo.pretrain.adaptation import adapt_model
from elmo.pretrain.config import CONFIG_FILE, RunConfig, make_config, write_config
from elmo.pretrain.continued import VOCAB_FILE, read_initial
from elmo.pretrain.data.sources import find_sources
from elmo.pretrain.data.vocabulary import read_vocabulary
from elmo.pretrain.duration import first_step
from elmo.pretrain.file_perplexity import file_perplexity
from elmo.pretrain.finetune_start import record_start
from elmo.pretrain.job import JobResult, check_text, hold_folder, pretrain
from elmo.pretrain.train import distributed
from elmo.records import make_record, write_record
from elmo.schema import NUMBER, List, check_shape
from elmo.settings import read_toml
from elmo.weights.model_parts import ModelParts

log = logging.getLogger(__name__)

_MEAN = {"reset": {"mean": NUMBER}}
_BEFORE = {"files?": List(str), "by_source?": {"*": _MEAN}, "reset?": {"mean": NUMBER}}
BEFORE_FILE, REPORT_FILE = "before.json", "finetune.json"


def finetune(
    parts: ModelParts,
    config: RunConfig,
    out: Path,
    *,
    max_new_words: int = 50_000,
    min_count: int = 5,
    also: tuple[str, ...] = (),
    continued: bool = False,
    num_workers: int | None = None,
    strict_resume: bool = False,
    say: Callable[[str], None] = log.info,
    show_progress: bool | None = None,
) -> tuple[JobResult, dict[str, Any]]:
    """Continues the training of a model on `config.data`; returns the result of the run and a report.

    The report holds the coverage and, for held-out files of the new domain and for `also`, the perplexity before and
    after. `also` are held-out files of the old domain. `continued`: vocabulary and text are those in the folder `out`
    of an interrupted run. `say` receives status lines. `show_progress`: see `Progress`.
    """
    if parts.lexicon is not None or parts.config.chars is None:
        raise ConfigError("Only a model that reads characters can be fine-tuned; this one reads words or a lexicon.")
    if not continued:
        check_text(config)
    patterns = (*config.data.all_heldout_files, *also)
    files = [source.path for source in find_sources(patterns)] if patterns else []  # a missing file is an error now
    with hold_folder(config, out) as device:
        is_first = distributed.rank() == 0
        say, show_progress = distributed.first_process_only(say), show_progress if is_first else False
        if is_first and not continued:
            record_start(
                parts,
                config,
                out,
                max_new_words=max_new_words,
                min_count=min_count,
                also=also,
                num_workers=num_workers,
            )
        distributed.barrier()
        vocab, coverage = list(read_vocabulary(out / VOCAB_FILE).words), read_initial(out)["coverage"]
        say(
            f"vocabulary: {coverage['old_words']:,} old words, {coverage['new_words']:,} new words; coverage of the "
            f"text {coverage['before']:.2%} -> {coverage['after']:.2%}"
        )
        model, new_softmax = adapt_model(parts, vocab, device, seed=config.train.seed), parts.config.head is None
        config = _run_config(config, parts, out)
        if is_first and not (out / CONFIG_FILE).exists():
            write_config(config, out)  # so that a run that is interrupted from here on can be continued

        def measure(what: str) -> dict[str, Any]:
            """The perplexity on held-out files of the new domain and on the files `also`; {} without files."""
            if not files:
                return {}
            say(f"{what} on {', '.join(files)}")
            reading = config.data.reading
            return file_perplexity(model, vocab, files, reading, num_workers=num_workers, show_progress=show_progress)

        before = _read_before(out, files)
        if before is None and is_first and not new_softmax:
            before = measure("measuring the perplexity before the training")
            with atomic_file(out / BEFORE_FILE) as partial:
                partial.write_text(json.dumps({"files": files, **before}), encoding="utf-8")
        result = pretrain(
            config,
            out,
            initial=model,
            new_softmax=new_softmax,
            continued=continued,
            num_workers=num_workers,
            strict_resume=strict_resume,
            about={
                "finetuned_from": parts.about.get("name") or _folder_name(Path(parts.source)),
                **({} if parts.tokenizer is None else {"tokenizer": parts.tokenizer}),
            },
            earlier_counts=_word_counts(parts),
            say=say,
            show_progress=show_progress,
            device=device,
        )
        if result.model is not None and (finished := _read_finished(out, result, files)) is not None:
            return result, finished
        report = {"coverage": coverage, "files": files, "before": before, "step": result.train.step}
        if result.model is not None:
            report["after"] = measure(f"the model is in {result.model}; measuring its perplexity")
        record = make_record("finetuning", report)
        if result.model is not None:
            write_record(out / REPORT_FILE, record)
        return result, record


def _run_config(config: RunConfig, parts: ModelParts, out: Path) -> RunConfig:
    """The settings of the run, with the shape of the model, its kind of softmax and the vocabulary in `out`."""
    head_only_steps = config.train.head_only_steps
    if head_only_steps < 0:  # not given
        head_only_steps = _recorded_head_only_steps(out)
    objective, head = config.objective, parts.config.head
    if head is not None and head.kind == "adaptive":
        objective = replace(objective, softmax="adaptive", cutoffs=head.cutoffs)
    return replace(
        config,
        objective=objective,
        model=replace(parts.config, head=None),
        data=replace(config.data, vocab_path=str(out / VOCAB_FILE)),
        train=replace(config.train, head_only_steps=head_only_steps),
    )


def _folder_name(source: Path) -> str:
    """The name of a model's file or folder; of RUN/model, which every run has, with the name of the run."""
    return "/".join(source.absolute().parts[-2:]) if source.name == "model" else source.name


def _word_counts(parts: ModelParts) -> dict[str, int] | None:
    """Word -> count in the text of the model; None if it is not known."""
    if parts.vocab is None or parts.word_counts is None:
        return None
    return dict(zip(parts.vocab, parts.word_counts.tolist(), strict=True))


def _read_before(out: Path, files: list[str]) -> dict[str, Any] | None:
    """The perplexity before the training, as an earlier call measured it on the same files; None otherwise."""
    path = out / BEFORE_FILE
    if not path.exists():
        return None
    before = read_json(path)
    check_shape(before, _BEFORE, path, hint="Restore it, or start over in another --out.")
    measured = before.pop("files", None)  # an earlier version did not record them
    return before if measured == files else None


def _read_finished(out: Path, result: JobResult, files: list[str]) -> dict[str, Any] | None:
    """The report of a run that had been finished and measured on the same files before this call; None otherwise."""
    report = read_json(out / REPORT_FILE) if (out / REPORT_FILE).exists() else {}
    is_same = report.get("step") == result.train.step and report.get("files", files) == files
    return report if is_same and not result.train.num_new_steps else None


def _recorded_head_only_steps(out: Path) -> int:
    """The number with which a run that has a checkpoint in `out` was started; for a new run, the default."""
    recorded = read_toml(out / CONFIG_FILE) if first_step(out) and (out / CONFIG_FILE).exists() else {}
    return make_config(recorded).train.head_only_steps
