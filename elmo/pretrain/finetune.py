"""Fine-tunes a trained biLM on text of a new domain and adapts its vocabulary (paper section 3.4).

The softmax keeps its rows for words of the old vocabulary, gets new rows for frequent words of the domain, and is
reordered by the frequencies of the domain, which the sampled softmax needs. A model without a softmax (the published
files) gets a new one, which is trained alone at first so that its random weights do not disturb the other weights.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.devices import choose_device
from elmo.errors import ConfigError
from elmo.files import atomic_file, read_json
from elmo.kernels.api import find_strongest_windows
from elmo.model.bilm import BiLM
from elmo.model.config import HeadConfig
from elmo.model.head import SoftmaxHead
from elmo.pretrain.config import CONFIG_FILE, RunConfig, write_config
from elmo.pretrain.continued import INITIAL_FILE, VOCAB_FILE, read_initial
from elmo.pretrain.data.languages import sample_languages
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.sources import find_sources
from elmo.pretrain.data.vocabulary import count_words, read_vocabulary
from elmo.pretrain.file_perplexity import file_perplexity
from elmo.pretrain.job import JobResult, pretrain
from elmo.records import make_record, write_json, write_record
from elmo.schema import NUMBER, check_shape
from elmo.text.chars import encode_token
from elmo.text.vocab import BOS, EOS, UNK, Vocabulary
from elmo.weights.model_parts import ModelParts, build
from elmo.weights.word_list import write_words

log = logging.getLogger(__name__)

_MEAN = {"reset": {"mean": NUMBER}}
_PERPLEXITY = {"by_source?": {"*": _MEAN}, "reset?": {"mean": NUMBER}}
REPORT_FILE = "finetune.json"
NEIGHBORS = 10  # old words whose rows are averaged into the row of a new word


@dataclass(frozen=True)
class Coverage:
    """How much of the domain's text the vocabulary covers before and after it is adapted."""

    old_words: int
    new_words: int
    before: float  # share of tokens
    after: float


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
    if new_softmax and not head_only_steps:
        head_only_steps = _default_head_only_steps(config)
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


def adapt_vocabulary(
    parts: ModelParts, config: RunConfig, max_new_words: int, min_count: int, num_workers: int | None
) -> tuple[list[str], Coverage]:
    """The old words and frequent new words, sorted by falling frequency in the domain; unseen old words come last."""
    words, counted, frequency = _count_domain(config.data, num_workers)
    specials = (BOS, EOS, UNK)
    old = [word for word in (parts.vocab or ()) if word not in specials] if parts.config.head else []
    excluded = {*old, *specials}
    frequent = [word for word in words if word not in excluded and counted[word] >= min_count]
    new = frequent[: max_new_words if old else config.data.max_vocab]
    old_rank = {word: rank for rank, word in enumerate(old)}
    ordered = sorted(old + new, key=lambda word: (-frequency.get(word, 0), old_rank.get(word, len(old_rank)), word))
    total = max(sum(n for word, n in frequency.items() if word not in specials), 1)
    before, after = (sum(frequency.get(word, 0) for word in group) / total for group in (old, old + new))
    return [*specials, *ordered], Coverage(len(old), len(new), before, after)


def _count_domain(data: PrepareConfig, num_workers: int | None) -> tuple[list[str], dict[str, int], dict[str, float]]:
    """The words of the text in falling order, their counts, and their counts weighted as training reads languages."""

    def table(files: Iterable[str]) -> tuple[list[str], list[int]]:
        words, _, train, _ = count_words(files, data.reading, num_workers=num_workers).table()
        return words, train.tolist()

    if not data.languages:
        words, counts = table(data.files)
        counted = dict(zip(words, counts, strict=True))
        return words, counted, {word: float(count) for word, count in counted.items()}
    tables = {name: table(files) for name, files in data.languages.items()}
    # sentence ends are not counted here: these weights only order the words
    sizes = {name: sum(counts) for name, (_, counts) in tables.items()}
    counted = {}
    frequency: dict[str, float] = {}
    for language in sample_languages(sizes, data.temperature):
        for word, count in zip(*tables[language.name], strict=True):
            counted[word] = counted.get(word, 0) + count
            frequency[word] = frequency.get(word, 0.0) + count * language.repetitions
    return sorted(frequency, key=lambda word: (-frequency[word], word)), counted, frequency


def adapt_model(parts: ModelParts, vocab: list[str], device: str = "cpu") -> BiLM:
    """The model with a softmax over `vocab`: rows of old words are copied, rows of new words are weighted means.

    The mean is over the rows of the most similar old words. Similarity is the cosine of the context-independent token
    vectors, which depend on the characters alone.
    """
    source = build(parts).to(device)
    model = BiLM(replace(parts.config, head=HeadConfig(vocab_size=len(vocab)))).to(device)
    weights = {name: tensor for name, tensor in source.state_dict().items() if not name.startswith("head.")}
    model.load_state_dict(weights, strict=False)
    if parts.config.head is None:
        return model
    if not isinstance(source.head, SoftmaxHead):
        raise ConfigError(
            "The model has an adaptive softmax, which cannot get new words.", "Train a new model instead."
        )
    assert parts.vocab is not None
    assert isinstance(model.head, SoftmaxHead)
    old_vocab = Vocabulary(parts.vocab, source=parts.source)
    row_pairs = [(row, old_vocab.id(word)) for row, word in enumerate(vocab) if word in old_vocab]
    all_new_rows = [row for row, word in enumerate(vocab) if word not in old_vocab]
    with torch.no_grad():
        copied_rows, old_rows = (torch.tensor(rows, device=device) for rows in zip(*row_pairs, strict=True))
        model.head.weight[copied_rows] = source.head.weight[old_rows]
        model.head.bias[copied_rows] = source.head.bias[old_rows]
        if all_new_rows:
            old_vectors = _token_vectors(source, [old_vocab.words[int(i)] for i in old_rows])  # (old words, P)
            for start in range(0, len(all_new_rows), 256):
                new_rows = torch.tensor(all_new_rows[start : start + 256], device=device)  # (N,)
                vectors = _token_vectors(source, [vocab[int(i)] for i in new_rows])  # (N, P)
                num_neighbors = min(NEIGHBORS, len(old_vectors))
                cosine, nearest = (vectors @ old_vectors.t()).topk(num_neighbors, dim=1)  # (N, neighbors)
                mixture = torch.softmax(cosine * 10, dim=1)  # (N, neighbors), the nearest has the highest weight
                neighbor_rows = old_rows[nearest]  # (N, neighbors)
                model.head.weight[new_rows] = (mixture[:, :, None] * source.head.weight[neighbor_rows]).sum(dim=1)
                model.head.bias[new_rows] = (mixture * source.head.bias[neighbor_rows]).sum(dim=1)
    return model


def _token_vectors(model: BiLM, words: list[str]) -> Tensor:
    """The context-independent vectors of words, normalised to length 1, (N, P)."""
    chars = model.config.chars
    assert chars is not None
    vectors, parameter = [], next(model.parameters())
    strongest_windows = find_strongest_windows(model, parameter.device, parameter.dtype)
    for start in range(0, len(words), 512):
        ids = np.stack([encode_token(word, chars.max_chars) for word in words[start : start + 512]])
        vectors.append(model.token_encoder(torch.from_numpy(ids).to(parameter.device), strongest_windows))
    return torch.nn.functional.normalize(torch.cat(vectors), dim=1)  # (N, P)


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


def _default_head_only_steps(config: RunConfig) -> int:
    """The number of steps for which only a new softmax is trained: a tenth of the run if its length is set."""
    return max(1, config.train.max_steps // 10) if config.train.max_steps else 500
