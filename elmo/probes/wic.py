"""Word in context: do two sentences use a word in the same sense? A cosine and a threshold for each layer.

The threshold is the one that is right most often on the training pairs; accuracy is on the development pairs (the test
pairs' answers are withheld; where they lie beside the data they are scored, too).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import ConfigError, DataError
from elmo.probes.layer_averages import average_names, averages
from elmo.probes.record import make_record
from elmo.probes.vector_source import VectorSource
from elmo.progress import Progress
from elmo.text.lines import read_lines


@dataclass(frozen=True)
class Pair:
    """A word's place in each of two sentences, and whether it means the same."""

    sentences: tuple[list[str], list[str]]
    places: tuple[int, int]
    same: bool


def read_wic(data_path: str | Path, *, limit: int | None = None) -> list[Pair]:
    """The pairs of NAME.data.txt (word, POS, places, two sentences) with their answers in NAME.gold.txt."""
    data_path = Path(data_path)
    gold_path = data_path.with_name(data_path.name.replace(".data.", ".gold."))
    lines, answers = list(read_lines(data_path)), [line.strip() for line in read_lines(gold_path)]
    if len(lines) != len(answers) or not lines:
        raise DataError(f"{data_path} has {len(lines)} pairs and {gold_path.name} {len(answers)} answers.")
    return [
        _pair(data_path, number, *both)
        for number, both in islice(enumerate(zip(lines, answers, strict=True), 1), limit)
    ]


def _pair(path: Path, number: int, line: str, answer: str) -> Pair:
    parts = line.split("\t")
    places = parts[2].split("-") if len(parts) == 5 else []
    if len(places) != 2 or not all(place.isdigit() for place in places) or answer not in ("T", "F"):
        raise DataError(f"{path}:{number}: expected word, POS, places, two sentences (with tabs), and T or F.")
    sentences = parts[3].split(), parts[4].split()
    if any(int(place) >= len(sentence) for place, sentence in zip(places, sentences, strict=True)):
        raise DataError(f"{path}:{number}: the place {parts[2]} lies outside of a sentence.")
    return Pair(sentences, (int(places[0]), int(places[1])), answer == "T")


def probe_wic(
    source: VectorSource, folder: str | Path, *, limit: int | None = None, show: bool | None = None
) -> dict[str, Any]:
    """A record with each view's threshold and accuracy in percent, for plain and for centred vectors."""
    folder = Path(folder)
    files = {split: folder / f"{split}.data.txt" for split in ("train", "dev")}
    if (folder / "test.gold.txt").exists():
        files["test"] = folder / "test.data.txt"
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder.", "Give the one with train.data.txt and dev.data.txt.")
    pairs = {split: read_wic(path, limit=limit) for split, path in files.items()}
    vectors = {split: target_vectors(source, pairs[split], show) for split in files}  # (N, 2, L, D)
    same = {split: np.array([pair.same for pair in pairs[split]]) for split in files}
    centre = vectors["train"].mean(axis=(0, 1))  # (L, D)
    views: dict[str, dict[str, Any]] = {}
    for form, shift in (("plain", np.zeros_like(centre)), ("centred", centre)):
        cosines = {split: pair_cosines(averages(vectors[split] - shift)) for split in files}  # (N, A)
        for column, name in enumerate(average_names(source.num_layers)):
            threshold = best_threshold(cosines["train"][:, column], same["train"])
            right = {split: 100.0 * np.mean((cosines[split][:, column] >= threshold) == same[split]) for split in files}
            views.setdefault(name, {})[form] = {**right, "threshold": threshold}
    return make_record(
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


def target_vectors(source: VectorSource, pairs: Sequence[Pair], show: bool | None = None) -> np.ndarray:
    """Both occurrences' layers of every pair, (N, 2, L, D)."""

    def sentences() -> Iterator[list[str]]:
        for pair in pairs:
            yield from pair.sentences

    places = [place for pair in pairs for place in pair.places]
    found = np.zeros((len(places), source.num_layers, source.dim), dtype=np.float32)
    with Progress("embedding", len(places), unit="sentences", show=show) as progress:
        for row, layers in enumerate(source.layers(sentences())):  # (L, n, D)
            found[row] = layers[:, places[row]]
            progress.advance(1)
    return found.reshape(len(pairs), 2, source.num_layers, source.dim)


def best_threshold(cosines: np.ndarray, same: np.ndarray) -> float:
    """The threshold t for which `cosine >= t` agrees with `same` most often; midway between two cosines."""
    order = np.argsort(cosines, kind="stable")
    ranked, truth = cosines[order], same[order]
    # with the threshold before place k, the first k are called different and the rest the same
    right = np.concatenate([[0], np.cumsum(~truth)]) + np.concatenate([np.cumsum(truth[::-1])[::-1], [0]])
    allowed = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])  # equal cosines go together
    best = int(np.argmax(np.where(allowed, right, -1)))
    if best == 0:
        return float(ranked[0]) - 1e-3
    if best == len(ranked):
        return float(ranked[-1]) + 1e-3
    return float(ranked[best - 1] + ranked[best]) / 2


def pair_cosines(views: np.ndarray) -> np.ndarray:
    """Of each pair's two sides, (N, 2, A, D) to (N, A)."""
    unit = views / np.maximum(np.linalg.norm(views, axis=-1, keepdims=True), 1e-9)
    found: np.ndarray = np.einsum("nad,nad->na", unit[:, 0], unit[:, 1])
    return found
