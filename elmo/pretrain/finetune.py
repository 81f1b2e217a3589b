"""A trained biLM taken further on the text of a domain, its vocabulary adapted on the way (paper section 3.4).

The softmax keeps its rows for words it knows, gets rows for the domain's own words, and is put into the order of the
domain's frequencies, which the sampled softmax needs. A model without a softmax (the published files) gets a new one,
which learns alone at first so that it does not disturb the rest.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.devices import choose_device
from elmo.errors import ConfigError
from elmo.files import atomic_file
from elmo.kernels.api import find_strongest_windows
from elmo.model.bilm import BiLM
from elmo.model.config import HeadConfig
from elmo.model.head import SoftmaxHead
from elmo.pretrain.config import RunConfig
from elmo.pretrain.data.vocabulary import count_words
from elmo.pretrain.file_perplexity import measure
from elmo.pretrain.job import JobResult, pretrain
from elmo.records import make_record, write_record
from elmo.text.chars import encode_token
from elmo.text.vocab import BOS, EOS, UNK, Vocabulary
from elmo.weights.model_parts import ModelParts, build
from elmo.weights.word_list import write_words

log = logging.getLogger(__name__)

NEIGHBORS = 10  # known words whose rows a new word starts from


@dataclass(frozen=True)
class Coverage:
    """How much of the domain's running text the vocabulary has words for, before and after."""

    old_words: int
    new_words: int
    before: float  # share of running words
    after: float


def finetune(
    parts: ModelParts,
    config: RunConfig,
    out: Path,
    *,
    max_new_words: int = 50_000,
    min_count: int = 5,
    also: tuple[str, ...] = (),
    num_workers: int | None = None,
    strict_resume: bool = False,
    say: Callable[[str], None] = log.info,
) -> tuple[JobResult, dict[str, Any]]:
    """Continues a model on `config.data`; `also` are held-out files of the model's old domain, measured as well.

    Gives the run's result and the report: coverage, and perplexity before and after on both kinds of text.
    """
    if parts.lexicon is not None or parts.config.chars is None:
        raise ConfigError("Fine-tuning is for models that read bytes; this one reads words or a lexicon.")
    vocab, coverage = adapted_vocabulary(parts, config, max_new_words, min_count, num_workers)
    say(
        f"vocabulary: {coverage.old_words:,} words kept, {coverage.new_words:,} new; they cover "
        f"{coverage.before:.2%} -> {coverage.after:.2%} of the running text"
    )
    out.mkdir(parents=True, exist_ok=True)
    with atomic_file(out / "vocab.txt") as partial:
        write_words(partial, vocab)
    model = adapted_model(parts, vocab, choose_device(config.train.device))
    fresh = parts.config.head is None
    head_only = config.train.head_only_steps if not fresh or config.train.head_only_steps else _head_steps(config)
    config = replace(
        config,
        model=replace(parts.config, head=None),
        data=replace(config.data, vocab_path=str(out / "vocab.txt")),
        train=replace(config.train, head_only_steps=head_only),
    )
    report: dict[str, Any] = {"coverage": vars(coverage)}
    before_path = out / "before.json"  # measured once: a continued run starts from other weights
    before = json.loads(before_path.read_text()) if before_path.exists() else None
    if before is None and not fresh:
        before = _measure_all(model, vocab, config, also, num_workers)
        with atomic_file(before_path) as partial:
            partial.write_text(json.dumps(before), encoding="utf-8")
    result = pretrain(
        config,
        out,
        initial=model,
        num_workers=num_workers,
        strict_resume=strict_resume,
        about={"finetuned_from": parts.about.get("name") or Path(parts.source).name},
        say=say,
    )
    report["before"] = before
    if result.model is not None:
        report["after"] = _measure_all(model, vocab, config, also, num_workers)
    record = make_record("finetuning", report)
    if result.model is not None:
        write_record(out / "finetune.json", record)
    return result, record


def adapted_vocabulary(
    parts: ModelParts, config: RunConfig, max_new_words: int, min_count: int, num_workers: int | None
) -> tuple[list[str], Coverage]:
    """Old words and the domain's frequent new ones, by falling frequency in the domain; unseen old words come last."""
    counts = count_words(config.data.files, config.data.reading, num_workers=num_workers)
    words, _, train, _ = counts.table()
    seen = dict(zip(words, train.tolist(), strict=True))
    special = (BOS, EOS, UNK)
    old = [word for word in (parts.vocab or ()) if word not in special] if parts.config.head else []
    known = set(old)
    often = [w for w in words if w not in known and w not in special and seen[w] >= min_count]
    new = often[: max_new_words if old else config.data.max_vocab]
    rank = {word: number for number, word in enumerate(old)}
    ordered = sorted(old + new, key=lambda word: (-seen.get(word, 0), rank.get(word, len(rank)), word))
    total = max(sum(n for word, n in seen.items() if word not in special), 1)
    covered = [sum(seen.get(word, 0) for word in group) / total for group in (old, old + new)]
    return [*special, *ordered], Coverage(len(old), len(new), *covered)


def adapted_model(parts: ModelParts, vocab: list[str], device: str = "cpu") -> BiLM:
    """The model with a softmax over `vocab`: known rows kept, new ones made from the known words they resemble.

    Resemblance is the cosine of the context-free token vectors, which characters alone decide.
    """
    source = build(parts).to(device)
    model = BiLM(replace(parts.config, head=HeadConfig(vocab_size=len(vocab)))).to(device)
    model.load_state_dict({k: v for k, v in source.state_dict().items() if not k.startswith("head.")}, strict=False)
    if parts.config.head is None:
        return model
    if not isinstance(source.head, SoftmaxHead):
        raise ConfigError(
            "The model has an adaptive softmax, which cannot take new words.", "Train a new model instead."
        )
    assert parts.vocab is not None
    assert isinstance(model.head, SoftmaxHead)
    old = Vocabulary(parts.vocab, source=parts.source)
    kept = [(new, old.id(word)) for new, word in enumerate(vocab) if word in old]
    fresh = [new for new, word in enumerate(vocab) if word not in old]
    with torch.no_grad():
        here, there = (torch.tensor(column, device=device) for column in zip(*kept, strict=True))
        model.head.weight[here], model.head.bias[here] = source.head.weight[there], source.head.bias[there]
        if fresh:
            known_vectors = _token_vectors(source, [old.words[int(i)] for i in there])  # (K, P)
            for start in range(0, len(fresh), 256):
                rows = torch.tensor(fresh[start : start + 256], device=device)
                vectors = _token_vectors(source, [vocab[int(i)] for i in rows])  # (R, P)
                cosine, nearest = (vectors @ known_vectors.t()).topk(min(NEIGHBORS, len(known_vectors)), dim=1)
                weights = torch.softmax(cosine * 10, dim=1)  # (R, k): the nearest counts most
                known = there[nearest]  # (R, k)
                model.head.weight[rows] = (weights[:, :, None] * source.head.weight[known]).sum(dim=1)
                model.head.bias[rows] = (weights * source.head.bias[known]).sum(dim=1)
    return model


def _token_vectors(model: BiLM, words: list[str]) -> Tensor:
    chars = model.config.chars
    assert chars is not None
    parts, like = [], next(model.parameters())
    strongest_windows = find_strongest_windows(model, like.device, like.dtype)
    for start in range(0, len(words), 512):
        ids = np.stack([encode_token(word, chars.max_chars) for word in words[start : start + 512]])
        parts.append(model.token_encoder(torch.from_numpy(ids).to(like.device), strongest_windows))
    return torch.nn.functional.normalize(torch.cat(parts), dim=1)  # (N, P)


def _measure_all(
    model: BiLM, vocab: list[str], config: RunConfig, also: tuple[str, ...], num_workers: int | None
) -> dict[str, Any]:
    """Perplexity on the files held out of the new text (where files are named) and on the old domain's."""
    files = (*config.data.heldout_files, *also)
    return measure(model, vocab, files, config.data.reading, num_workers=num_workers) if files else {}


def _head_steps(config: RunConfig) -> int:
    """How long a new softmax learns alone: a tenth of the run where its length is known."""
    return max(1, config.train.max_steps // 10) if config.train.max_steps else 500
