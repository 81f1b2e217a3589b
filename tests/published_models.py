"""Writes random models of the oracle to disk in the published layout, for tests of readers and writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import oracle

VOCAB = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "on", "a", "mat", ".", "ünï"]
SENTENCES = [["the", "cat", "sat", "."], ["a", "ünï", "unheard-of", "mat"], ["."]]


def write_model(
    folder: Path, seed: int = 0, *, vocab: bool = False, **choices: Any
) -> tuple[oracle.Options, oracle.Weights]:
    """Writes options.json, weights.hdf5 and, with `vocab`, vocab.txt with the oracle's eleven words into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    options, weights = oracle.random_model(np.random.default_rng(seed), **choices)
    oracle.write(folder, options, weights)
    if vocab:
        (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    return options, weights
