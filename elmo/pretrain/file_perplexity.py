"""Perplexity of a model on files: of all files together and of each, with LSTM state reset and carried."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmo.model.bilm import BiLM
from elmo.pretrain.data.corpus import Reading
from elmo.pretrain.data.prepare import prepare
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.data.sources import find_sources
from elmo.pretrain.train.perplexity import DEFINITION, Evaluator
from elmo.pretrain.train.type_inputs import input_rows
from elmo.weights.word_list import write_words


def file_perplexity(
    model: BiLM,
    vocab: Sequence[str],
    files: Sequence[str],
    reading: Reading,
    *,
    carried: bool = True,
    num_workers: int | None = None,
) -> dict[str, Any]:
    """The perplexity of all files together and, under "by_source", of each file if there are several.

    The text is prepared in a temporary folder. carried: also measure with state carried from sentence to sentence.
    """
    report = _evaluate_together(model, vocab, files, reading, carried, num_workers)
    paths = [source.path for source in find_sources(files)]
    if len(paths) > 1:
        report["by_source"] = {
            Path(path).name: _evaluate_together(model, vocab, [path], reading, carried, num_workers) for path in paths
        }
    return report


def _evaluate_together(
    model: BiLM, vocab: Sequence[str], files: Sequence[str], reading: Reading, carried: bool, num_workers: int | None
) -> dict[str, Any]:
    """Prepares the files as one text and evaluates the model on it."""
    with tempfile.TemporaryDirectory(prefix="elmo-") as name:
        folder = Path(name)
        vocab_path = folder / "vocab.txt"
        write_words(vocab_path, vocab)
        chars = model.config.chars
        config = PrepareConfig(
            files=tuple(files),
            heldout=0.0,
            reading=reading,
            vocab_path=str(vocab_path),
            max_chars=chars.max_chars if chars else 50,
        )
        data = prepare(config, folder / "data", num_workers=num_workers)
        evaluator = Evaluator(model, input_rows(data, model.config).to(next(model.parameters()).device))
        report: dict[str, Any] = {"definition": DEFINITION, "reset": evaluator.reset(data, split="train").to_dict()}
        if carried:
            report["carried"] = evaluator.carried(data, split="train").to_dict()
        return report | {"words": data.train.num_tokens, "unknown": _unknown_share(data)}


def _unknown_share(data: PreparedData) -> float:
    """The share of tokens that are outside the vocabulary."""
    train = data.train
    unknown = sum(int((train.shard(n)[0] >= data.vocab_size).sum()) for n in range(len(train.shards)))
    return unknown / max(train.num_tokens, 1)
