"""Perplexity of a model on files: each source by itself and all together, state reset and carried."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmo.model.bilm import BiLM
from elmo.pretrain.data.corpus import Reading, find_sources
from elmo.pretrain.data.prepare import PrepareConfig, prepare
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.train.perplexity import DEFINITION, Evaluator
from elmo.pretrain.train.type_inputs import input_rows
from elmo.weights.word_list import write_words


def measure(
    model: BiLM,
    vocab: Sequence[str],
    files: Sequence[str],
    reading: Reading,
    *,
    carried: bool = True,
    num_workers: int | None = None,
) -> dict[str, Any]:
    """Of all files together and, under "by_source", of each; the text is prepared in a temporary folder."""
    found = _measure_files(model, vocab, files, reading, carried, num_workers)
    sources = [source.path for source in find_sources(files)]
    if len(sources) > 1:
        found["by_source"] = {
            Path(path).name: _measure_files(model, vocab, [path], reading, carried, num_workers) for path in sources
        }
    return found


def _measure_files(
    model: BiLM, vocab: Sequence[str], files: Sequence[str], reading: Reading, carried: bool, num_workers: int | None
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="elmo-") as name:
        folder = Path(name)
        words = folder / "vocab.txt"
        write_words(words, vocab)
        chars = model.config.chars
        config = PrepareConfig(
            files=tuple(files),
            heldout=0.0,
            reading=reading,
            vocab_path=str(words),
            max_chars=chars.max_chars if chars else 50,
        )
        data = prepare(config, folder / "data", num_workers=num_workers)
        return measure_prepared(model, data, carried=carried)


def measure_prepared(model: BiLM, data: PreparedData, *, split: str = "train", carried: bool = True) -> dict[str, Any]:
    """The same for text that is prepared already."""
    evaluator = Evaluator(model, input_rows(data, model.config).to(next(model.parameters()).device))
    found: dict[str, Any] = {"definition": DEFINITION, "reset": evaluator.reset(data, split=split).to_dict()}
    if carried:
        found["carried"] = evaluator.carried(data, split=split).to_dict()
    found["words"] = data.split(split).num_tokens
    found["unknown"] = _unknown_share(data, split)
    return found


def _unknown_share(data: PreparedData, split: str) -> float:
    """Share of the running words that are outside the vocabulary."""
    part = data.split(split)
    unknown = sum(int((part.shard(n)[0] >= data.vocab_size).sum()) for n in range(len(part.shards)))
    return unknown / max(part.num_tokens, 1)
