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


def options_of(arrays: dict[str, np.ndarray]) -> oracle.Options:
    """Options that fit the arrays of a checkpoint."""
    cells = [name for name in arrays if name.startswith("RNN_0/") and name.endswith("/W_0")]
    rows, columns = arrays[cells[0]].shape
    options: oracle.Options = {
        "bidirectional": any(name.startswith("RNN_1/") for name in arrays),
        "lstm": {"dim": columns // 4, "projection_dim": rows // 2, "n_layers": len(cells)},
    }
    if "char_embed" in arrays:
        count = sum(name.startswith("CNN/W_cnn_") for name in arrays)
        kernels = [arrays[f"CNN/W_cnn_{i}"] for i in range(count)]
        options["char_cnn"] = {
            "embedding": {"dim": arrays["char_embed"].shape[1]},
            "filters": [[kernel.shape[1], kernel.shape[3]] for kernel in kernels],
            "n_highway": sum(name.endswith("/b_carry") for name in arrays),
            "activation": "relu",
        }
    return options
