"""Self-test: recomputes the golden vectors of the two reference implementations on this machine and device.

There are two tiny models in the published formats, with thirty sentences each; the state is carried from batch to
batch. The vectors agree only if gate order, clips, skips, forget bias, highways and state are all correct.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from elmo.embed.load import load

GOLDEN = Path(__file__).parents[1] / "golden"
SENTENCES = {"allennlp": "sentences.json", "bilm-tf": "lm_embeddings_sentences.json"}
LIMITS = {"float32": 2e-6, "bfloat16": 0.2}  # largest absolute difference; the values are about one


@dataclass(frozen=True)
class Replay:
    """The largest difference of one model from the published vectors."""

    model: str
    device: str
    dtype: str
    difference: float

    @property
    def passed(self) -> bool:
        return self.difference <= LIMITS[self.dtype]


def golden_batches(model: str) -> list[tuple[list[list[str]], list[np.ndarray]]]:
    """Ten batches of three sentences, and the expected top layer (n, D) of each sentence."""
    folder = GOLDEN / model
    texts = json.loads((folder / SENTENCES[model]).read_text(encoding="utf-8"))
    files = [h5py.File(folder / f"lm_embeddings_{row}.hdf5", "r") for row in range(3)]
    try:
        return [
            (
                [texts[row][b].split() for row in range(3)],
                [np.concatenate(file[str(b)][...], axis=-1) for file in files],
            )
            for b in range(10)
        ]
    finally:
        for file in files:
            file.close()


def replay(model: str, *, device: str = "cpu", dtype: str = "float32") -> Replay:
    """Embeds the golden sentences as the reference implementation did, and compares the vectors."""
    folder = GOLDEN / model
    embedder = load(folder / "options.json", folder / "lm_weights.hdf5", device=device, dtype=dtype, state="carry")
    largest = 0.0
    for sentences, expected in golden_batches(model):
        for actual, golden in zip(embedder.embed(sentences, layers="top"), expected, strict=True):
            largest = max(largest, float(np.abs(actual - golden).max()))
    return Replay(model, device, dtype, largest)
