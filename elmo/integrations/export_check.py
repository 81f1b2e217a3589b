"""The check of an exported network: the same trial inputs through it and through the model in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from elmo.embed.load import make_indexer
from elmo.embed.states import WARM_UP_TEXT
from elmo.errors import OutputError
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig
from elmo.text.batch import make_batch
from elmo.text.chars import NUM_CHARS
from elmo.weights.model_parts import ModelParts

TOLERANCE = 1e-4  # of a layer's value; float32 rounding of two implementations is below it
RELATIVE_TOLERANCE = 2e-6  # of the largest value, for models whose values are in the hundreds

# ids (B, T, W) int32 to layers (L+1, B, T, D) and mask (B, T)
ExportedNetwork = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Rounding:
    """How far the vectors of rounded weights are from those of the model."""

    max_difference: float
    lowest_cosine: float


def trial_inputs(config: BiLMConfig, seed: int = 0) -> list[np.ndarray]:
    """Random rows of ids (B, T, W) of several shapes: one token, one row, padded rows, and sizes that are equal."""
    rng = np.random.default_rng(seed)
    same = min(config.num_layers, 8)
    shapes = ([1], [6], [same] * same, [7, 1, 4, 2], [1, 2, 9])
    return [_random_rows(config, lengths, rng) for lengths in shapes]


def check_export(run: ExportedNetwork, model: BiLM, what: str) -> float:
    """The largest difference between the exported network and the model; an OutputError if it is too large."""
    largest, allowed = 0.0, 0.0
    for ids in trial_inputs(model.config):
        expected_layers, expected_mask = run_plain(model, ids)
        layers, mask = run(ids)
        if layers.shape != expected_layers.shape or not np.array_equal(mask, expected_mask):
            raise OutputError(
                f"{what}: for ids of shape {ids.shape} the layers have shape {layers.shape} and the mask has "
                f"{int(mask.sum())} tokens; expected {expected_layers.shape} and {int(expected_mask.sum())}."
            )
        difference = float(np.abs(layers.astype(np.float64) - expected_layers).max())
        allowed = max(TOLERANCE, RELATIVE_TOLERANCE * float(np.abs(expected_layers).max()))
        if not difference <= allowed:  # also for NaN
            raise OutputError(
                f"{what}: for ids of shape {ids.shape} the layers differ from the model's by {difference:.2g}; "
                f"at most {allowed:.2g} was expected.",
                "Nothing was written. --no-check skips this comparison.",
            )
        largest = max(largest, difference)
    return largest


def rounding_error(parts: ModelParts, model: BiLM, rounded: BiLM) -> Rounding:
    """The difference between two models on a short English text, or on random ids if tokens cannot be made into ids."""
    batches, chars = trial_inputs(model.config), parts.config.chars
    reads_bytes = chars is not None and parts.config.words is None and chars.num_chars >= NUM_CHARS
    reads_words = chars is None and parts.vocab is not None
    if parts.lexicon is not None or reads_bytes or reads_words:
        sentences = [text.split() for text in WARM_UP_TEXT]
        batches = [make_batch([sentence], make_indexer(parts)).ids for sentence in sentences]
    difference, cosine = 0.0, 1.0
    for ids in batches:
        (a, mask), (b, _) = run_plain(model, ids), run_plain(rounded, ids)
        difference = max(difference, float(np.abs(a - b).max()))
        x, y = a[:, mask].astype(np.float64), b[:, mask].astype(np.float64)  # (L+1, N, D)
        lengths = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
        if (lengths > 0).any():
            cosine = min(cosine, float(((x * y).sum(-1)[lengths > 0] / lengths[lengths > 0]).min()))
    return Rounding(difference, cosine)


def run_plain(model: BiLM, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Layers (L+1, B, T, D) and mask (B, T) of the model in plain PyTorch."""
    with torch.inference_mode():
        output = model(torch.from_numpy(ids))
    return output.layers.numpy(), output.mask.numpy()


def _random_rows(config: BiLMConfig, lengths: list[int], rng: np.random.Generator) -> np.ndarray:
    """Rows of ids (B, T, W): tokens of random length, some as long as a row, and zeros after the end of a sentence."""
    ids = np.zeros((len(lengths), max(lengths), config.row_width), dtype=np.int32)
    for row, length in enumerate(lengths):
        if config.chars is not None:
            C, V = config.chars.max_chars, config.chars.num_chars
            ids[row, :length, :C] = rng.integers(1, V + 1, (length, C))
            for t in range(length):
                num_used = C if t == 5 else int(rng.integers(1, C // 2 + 1))
                ids[row, t, num_used:C] = V  # the padding character of bytes; any one that repeats serves here
        if config.words is not None:
            ids[row, :length, -1] = rng.integers(1, config.words.num_words + 1, length)
    return ids
