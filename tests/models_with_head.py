"""A tiny model with random weights and a softmax, for tests that score words."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from published_models import VOCAB

from elmo.model.config import HeadConfig
from elmo.weights.lookup import tiny_random
from elmo.weights.model_parts import ModelParts


def tiny_with_head(seed: int = 2018) -> ModelParts:
    """The model tiny-random with a softmax of eleven words."""
    parts = tiny_random(seed)
    rng = np.random.default_rng(seed)
    head = {
        "head.weight": torch.from_numpy(rng.standard_normal((11, 64), dtype=np.float32)),
        "head.bias": torch.ones(11),
    }
    config = dataclasses.replace(parts.config, head=HeadConfig(vocab_size=11))
    return dataclasses.replace(parts, config=config, tensors=parts.tensors | head, vocab=tuple(VOCAB))
