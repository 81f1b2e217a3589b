"""Perplexity of a model on files: of all files together and of each, with LSTM state reset and carried."""

from __future__ import annotations

import functools
import logging
import operator
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmo.model.bilm import BiLM
from elmo.pretrain.data.corpus import Reading, is_splittable
from elmo.pretrain.data.prepare import prepare
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.data.sources import Source, find_sources
from elmo.pretrain.train.perplexity import DEFINITION, Evaluator, LossSum
from elmo.pretrain.train.type_inputs import input_rows
from elmo.progress import Progress
from elmo.weights.word_list import write_words

log = logging.getLogger(__name__)


def file_perplexity(
    model: BiLM,
    vocab: Sequence[str],
    files: Sequence[str],
    reading: Reading,
    *,
    carried: bool = True,
    num_workers: int | None = None,
    show_progress: bool | None = None,
) -> dict[str, Any]:
    """The perplexity of all files together and, under "by_source", of each file if there are several.

    Every file is measured once; the perplexity of all comes from the sums of their losses. The text is prepared in a
    temporary folder. carried: also measure with state carried from sentence to sentence.
    """
    sources = find_sources(files)
    paths = [source.path for source in sources]
    device = next(model.parameters()).device
    with tempfile.TemporaryDirectory(prefix="elmo-") as name:
        folder = Path(name)
        write_words(folder / "vocab.txt", vocab)
        prepared = [
            _prepare_file(model, source, reading, folder, number, num_workers) for number, source in enumerate(sources)
        ]
        total = sum(data.train.num_positions for data in prepared) * (2 if carried else 1)
        measured = []
        with Progress("measuring", total, unit="predictions", show=show_progress) as progress:
            for data in prepared:
                evaluator = Evaluator(model, input_rows(data, model.config).to(device), progress=progress)
                measured.append(_measure(evaluator, data, carried))
    report = {"definition": DEFINITION, **functools.reduce(operator.add, measured).to_dict()}
    if len(paths) > 1:
        report["by_source"] = {label: result.to_dict() for label, result in zip(_labels(paths), measured, strict=True)}
    return report


@dataclass(frozen=True)
class _Measured:
    """The losses of one or several files."""

    reset: LossSum
    carried: LossSum | None
    words: int
    unknown: int  # words outside the vocabulary

    def __add__(self, other: _Measured) -> _Measured:
        carried = None if self.carried is None or other.carried is None else self.carried + other.carried
        return _Measured(self.reset + other.reset, carried, self.words + other.words, self.unknown + other.unknown)

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {"reset": self.reset.perplexity().to_dict()}
        if self.carried is not None:
            values["carried"] = self.carried.perplexity().to_dict()
        return values | {"words": self.words, "unknown": self.unknown / max(self.words, 1)}


def _prepare_file(
    model: BiLM, source: Source, reading: Reading, folder: Path, number: int, num_workers: int | None
) -> PreparedData:
    """Prepares one file with the vocabulary in `folder`, and warns of bytes that were replaced."""
    config = PrepareConfig(
        files=(source.path,),
        heldout=0.0,
        reading=reading,
        vocab_path=str(folder / "vocab.txt"),
        max_chars=model.config.chars.max_chars if model.config.chars else 50,
    )
    data = prepare(config, folder / f"data-{number}", num_workers=num_workers)
    num_replaced = data.manifest["sources"][0]["replaced_characters"]
    if (
        reading.errors == "replace" and num_replaced and is_splittable(source, reading)
    ):  # others warn when they are read
        log.warning(
            "%s: %d characters are U+FFFD, for bytes that are not %s.", source.path, num_replaced, reading.encoding
        )
    return data


def _measure(evaluator: Evaluator, data: PreparedData, carried: bool) -> _Measured:
    reset = evaluator.reset_sum(data, split="train")
    carried_sum = evaluator.carried_sum(data, split="train") if carried else None
    unknown = sum(int((data.train.shard(n)[0] >= data.vocab_size).sum()) for n in range(len(data.train.shards)))
    return _Measured(reset, carried_sum, data.train.num_tokens, unknown)


def _labels(paths: Sequence[str]) -> list[str]:
    """The names of files without folders; with folders where two files have the same name."""
    names = [Path(path).name for path in paths]
    return [path if names.count(name) > 1 else name for path, name in zip(paths, names, strict=True)]
