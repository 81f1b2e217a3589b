"""Word-in-context probe: do two sentences use a word in the same sense? A threshold on a cosine, for each layer.

The threshold is the one with the highest accuracy on the training pairs; it is scored on the development pairs. The
test pairs are scored too if their answers are in the folder; the published data set does not include them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import ConfigError, DataError
from elmo.probes.features import span_vectors
from elmo.probes.layer_averages import layer_average_names, layer_averages, pair_cosines
from elmo.probes.record import probe_record
from elmo.probes.vector_source import VectorSource
from elmo.text.lines import read_lines


@dataclass(frozen=True)
class Pair:
    """The position of a word in each of two sentences, and whether it has the same sense."""

    sentences: tuple[list[str], list[str]]
    positions: tuple[int, int]
    same: bool


def read_wic(data_path: str | Path, *, limit: int | None = None) -> list[Pair]:
    """Reads the pairs of NAME.data.txt (word, POS, positions, two sentences) and their answers in NAME.gold.txt."""
    data_path = Path(data_path)
    gold_path = data_path.with_name(data_path.name.replace(".data.", ".gold."))
    lines, answers = list(read_lines(data_path)), [line.strip() for line in read_lines(gold_path)]
    if len(lines) != len(answers) or not lines:
        raise DataError(f"{data_path} has {len(lines)} pairs and {gold_path.name} {len(answers)} answers.")
    return [
        _parse_pair(data_path, number, line, answer)
        for number, (line, answer) in islice(enumerate(zip(lines, answers, strict=True), 1), limit)
    ]


def _parse_pair(path: Path, number: int, line: str, answer: str) -> Pair:
    columns = line.split("\t")
    positions = columns[2].split("-") if len(columns) == 5 else []
    are_numbers = all(re.fullmatch("[0-9]{1,9}", position) for position in positions)
    if len(positions) != 2 or not are_numbers or answer not in ("T", "F"):
        raise DataError(
            f"{path}:{number}: expected word, POS, positions and two sentences, separated by tabs; and T or F."
        )
    sentences = columns[3].split(), columns[4].split()
    if any(int(position) >= len(sentence) for position, sentence in zip(positions, sentences, strict=True)):
        raise DataError(f"{path}:{number}: the position {columns[2]} is outside a sentence.")
    return Pair(sentences, (int(positions[0]), int(positions[1])), answer == "T")


def probe_wic(
    source: VectorSource, folder: str | Path, *, limit: int | None = None, show: bool | None = None
) -> dict[str, Any]:
    """Returns a record with the threshold and the accuracy (percent) of each view, for plain and centred vectors."""
    folder = Path(folder)
    files = {split: folder / f"{split}.data.txt" for split in ("train", "dev")}
    if (folder / "test.gold.txt").exists():
        files["test"] = folder / "test.data.txt"
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder.", "Give the folder with train.data.txt and dev.data.txt.")
    pairs = {split: read_wic(path, limit=limit) for split, path in files.items()}
    vectors = {split: word_vectors(source, pairs[split], show) for split in files}  # (N, 2, L, D)
    same = {split: np.array([pair.same for pair in pairs[split]]) for split in files}
    centre = vectors["train"].mean(axis=(0, 1))  # (L, D)
    views: dict[str, dict[str, Any]] = {}
    for form, shift in (("plain", np.zeros_like(centre)), ("centred", centre)):
        cosines = {split: pair_cosines(layer_averages(vectors[split] - shift)) for split in files}  # (N, A)
        for column, name in enumerate(layer_average_names(source.num_layers)):
            threshold = best_threshold(cosines["train"][:, column], same["train"])
            accuracies = {
                split: 100.0 * np.mean((cosines[split][:, column] >= threshold) == same[split]) for split in files
            }
            views.setdefault(name, {})[form] = {**accuracies, "threshold": threshold}
    return probe_record(
        kind="wic",
        source=source,
        files=files,
        settings={"limit": limit},
        counts={split: len(pairs[split]) for split in files},
        scores={
            "metric": "accuracy",
            "views": views,
            "always_same": {split: 100.0 * float(same[split].mean()) for split in files},
        },
    )


def word_vectors(source: VectorSource, pairs: Sequence[Pair], show: bool | None = None) -> np.ndarray:
    """The layers of both occurrences of the word of every pair, (N, 2, L, D)."""
    sentences = [sentence for pair in pairs for sentence in pair.sentences]
    spans = [(position, position + 1) for pair in pairs for position in pair.positions]
    vectors = span_vectors(source, sentences, spans, show=show)  # (2N, L, D)
    return vectors.reshape(len(pairs), 2, source.num_layers, source.dim)


def best_threshold(cosines: np.ndarray, same: np.ndarray) -> float:
    """The threshold t for which `cosine >= t` agrees with `same` most often; halfway between two cosines."""
    order = np.argsort(cosines, kind="stable")
    sorted_cosines, sorted_same = cosines[order], same[order]
    # a threshold before index k predicts "different" for the first k pairs and "same" for the others
    num_correct = np.concatenate([[0], np.cumsum(~sorted_same)]) + np.concatenate(
        [np.cumsum(sorted_same[::-1])[::-1], [0]]
    )
    is_allowed = np.concatenate([[True], sorted_cosines[1:] > sorted_cosines[:-1], [True]])  # not between equal cosines
    best = int(np.argmax(np.where(is_allowed, num_correct, -1)))
    if best == 0:
        return float(sorted_cosines[0]) - 1e-3
    if best == len(sorted_cosines):
        return float(sorted_cosines[-1]) + 1e-3
    return float(sorted_cosines[best - 1] + sorted_cosines[best]) / 2
