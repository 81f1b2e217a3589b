"""The published fixtures and small models made from them, for the tests of all packages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import oracle

from elmo.embed.embedder import Embedder
from elmo.model.bilm import BiLM
from elmo.text.indexer import ByteIndexer
from elmo.weights.model_parts import ModelParts, build
from elmo.weights.names import from_arrays
from elmo.weights.options import config_from_options
from elmo.weights.published import read_published

FIXTURES = Path(__file__).parents[1] / "elmo" / "golden"
GOLDEN = {"allennlp": "sentences.json", "bilm-tf": "lm_embeddings_sentences.json"}
SENTENCES = [
    ["The", "bank", "of", "the", "river", "was", "steep", "."],
    ["Ünïcödé", "漢字", "🙂", "a" * 300, "."],
    ["one"],
    ["She", "did", "n't", "say", "why", ",", "and", "nobody", "asked", "."],
]


def golden_parts(kind: str) -> ModelParts:
    return read_published(FIXTURES / kind / "options.json", FIXTURES / kind / "lm_weights.hdf5")


def golden_model(kind: str) -> BiLM:
    return build(golden_parts(kind))


def golden_embedder(kind: str, **options: Any) -> Embedder:
    return Embedder(golden_model(kind), ByteIndexer(), **options)


def golden_batches(kind: str) -> Iterator[tuple[list[list[str]], list[np.ndarray]]]:
    """Ten batches of three sentences and the expected top layer (n, 2P) of each sentence; rows carry their state."""
    sentences = json.loads((FIXTURES / kind / GOLDEN[kind]).read_text())
    files = [h5py.File(FIXTURES / kind / f"lm_embeddings_{k}.hdf5") for k in range(3)]
    for b in range(10):
        expected = [np.concatenate(file[str(b)][...], axis=-1) for file in files]
        yield [sentences[k][b].split() for k in range(3)], expected


def random_bilm(seed: int, **choices: Any) -> tuple[dict[str, Any], dict[str, np.ndarray], BiLM]:
    """A random model of the oracle, as options, arrays and network."""
    options, weights = oracle.random_model(np.random.default_rng(seed), **choices)
    config = config_from_options(
        options, "random", num_words=len(weights["embedding"]) if "embedding" in weights else None, names=weights
    )
    arrays = {name: np.asarray(array, dtype=np.float32) for name, array in weights.items()}
    return options, weights, build(ModelParts(config=config, tensors=from_arrays(config, arrays, "random")))
