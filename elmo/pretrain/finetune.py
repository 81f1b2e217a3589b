"""Fine-tunes a trained biLM on text of a new domain, with its vocabulary adapted to it (`adaptation`).

A softmax that is new has random weights: it is trained alone at first, so that it does not disturb the other weights.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from elmo.devices import choose_device
from elmo.errors import ConfigError
from elmo.files import atomic_file, read_json
from elmo.model.bilm import BiLM
from elmo.pretrain.adaptation import Coverage, adapt_model, adapt_vocabulary
from elmo.pretrain.config import CONFIG_FILE, RunConfig, make_config, write_config
from elmo.pretrain.continued import INITIAL_FILE, VOCAB_FILE, read_initial
from elmo.pretrain.data.sources import find_sources
from elmo.pretrain.data.vocabulary import read_vocabulary
from elmo.pretrain.duration import first_step
from elmo.pretrain.file_perplexity import file_perplexity
from elmo.pretrain.job import JobResult, pretrain
from elmo.records import make_record, write_json, write_record
from elmo.schema import NUMBER, check_shape
from elmo.settings import read_toml
from elmo.weights.model_parts import ModelParts
from elmo.weights.word_list import write_words

log = logging.getLogger(__name__)

_MEAN = {"reset": {"mean": NUMBER}}
_PERPLEXITY = {"by_source?": {"*": _MEAN}, "reset?": {"mean": NUMBER}}
REPORT_FILE = "finetune.json"


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
    if heldout_files := (*config.data.all_heldout_files, *also):
        find_sources(heldout_files)  # a missing file is an error now, and not after the training
    if continued:
        vocab = list(read_vocabulary(out / VOCAB_FILE).words)
        coverage = Coverage(**read_initial(out)["coverage"])
    else:
        vocab, coverage = adapt_vocabulary(parts, config, max_new_words, min_count, num_workers)
    say(
        f"vocabulary: {coverage.old_words:,} old words, {coverage.new_words:,} new words; coverage of the text "
        f"{coverage.before:.2%} -> {coverage.after:.2%}"
    )
    out.mkdir(parents=True, exist_ok=True)
    if not continued:
        with atomic_file(out / VOCAB_FILE) as partial:
            write_words(partial, vocab)
        source = os.path.abspath(parts.source) if os.path.exists(parts.source) else parts.source
        options = {"max_new_words": max_new_words, "min_count": min_count, "also": list(also)}
        write_json(out / INITIAL_FILE, {"model": source, **options, "coverage": vars(coverage)})
    model = adapt_model(parts, vocab, choose_device(config.train.device))
    new_softmax = parts.config.head is None
    head_only_steps = config.train.head_only_steps
    if head_only_steps < 0:  # not given
        head_only_steps = _recorded_head_only_steps(out)
    config = replace(
        config,
        model=replace(parts.config, head=None),
        data=replace(config.data, vocab_path=str(out / VOCAB_FILE)),
        train=replace(config.train, head_only_steps=head_only_steps),
    )
    if not (out / CONFIG_FILE).exists():
        write_config(config, out)  # so that a run that is interrupted from here on can be continued
    report: dict[str, Any] = {"coverage": vars(coverage)}
    before_path = out / "before.json"  # measured only once, because a continued run starts from other weights
    before = read_json(before_path) if before_path.exists() else None
    if before is not None:
        check_shape(before, _PERPLEXITY, before_path, hint="Restore it, or start over in another --out.")
    if before is None and not new_softmax:
        if heldout_files:
            say(f"measuring the perplexity before the training on {', '.join(heldout_files)}")
        before = _heldout_perplexity(model, vocab, config, also, num_workers, show_progress)
        with atomic_file(before_path) as partial:
            partial.write_text(json.dumps(before), encoding="utf-8")
    result = pretrain(
        config,
        out,
        initial=model,
        new_softmax=new_softmax,
        continued=continued,
        num_workers=num_workers,
        strict_resume=strict_resume,
        about={
            "finetuned_from": parts.about.get("name") or Path(parts.source).name,
            **({} if parts.tokenizer is None else {"tokenizer": parts.tokenizer}),
        },
        say=say,
        show_progress=show_progress,
    )
    finished = read_json(out / REPORT_FILE) if (out / REPORT_FILE).exists() else {}
    if result.model is not None and not result.train.num_new_steps and finished.get("step") == result.train.step:
        return result, finished
    report |= {"before": before, "step": result.train.step}
    if result.model is not None:
        if heldout_files:
            say(f"the model is in {result.model}; measuring its perplexity on {', '.join(heldout_files)}")
        report["after"] = _heldout_perplexity(model, vocab, config, also, num_workers, show_progress)
    record = make_record("finetuning", report)
    if result.model is not None:
        write_record(out / REPORT_FILE, record)
    return result, record


def _heldout_perplexity(
    model: BiLM,
    vocab: list[str],
    config: RunConfig,
    also: tuple[str, ...],
    num_workers: int | None,
    show_progress: bool | None,
) -> dict[str, Any]:
    """Perplexity on the held-out files of the new domain and on the files `also` of the old one; {} without files."""
    files = (*config.data.all_heldout_files, *also)
    if not files:
        return {}
    reading = config.data.reading
    return file_perplexity(model, vocab, files, reading, num_workers=num_workers, show_progress=show_progress)


def _recorded_head_only_steps(out: Path) -> int:
    """The number with which a run that has a checkpoint in `out` was started; for a new run, the default."""
    recorded = read_toml(out / CONFIG_FILE) if first_step(out) and (out / CONFIG_FILE).exists() else {}
    return make_config(recorded).train.head_only_steps
