"""Other implementations, where they can be imported here, on the same weights and sentences.

AllenNLP 2.10.1, the last one, names versions of its own needs that no longer install beside a current PyTorch;
benchmarks/peers/README.md says how to run it all the same.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmo.bench.baseline import BATCH, Embed, Sentences
from elmo.model.bilm import BiLM
from elmo.weights.convert import drop_head
from elmo.weights.model_parts import ModelParts
from elmo.weights.published import OPTIONS, WEIGHTS, write_published

log = logging.getLogger(__name__)


def allennlp_embed(model: BiLM) -> Embed | None:
    """AllenNLP's biLM with this model's weights, from token lists to arrays, or None where it is not installed.

    It takes batches as they come and starts each from fresh memory, so that its numbers are comparable.
    """
    if importlib.util.find_spec("allennlp") is None:
        return None
    try:
        theirs: Any = importlib.import_module("allennlp.modules.elmo")
    except Exception as error:  # an old package beside new ones fails in any way
        log.warning("allennlp is here, but cannot be imported: %s: %s", type(error).__name__, error)
        return None
    made: list[Any] = []

    def run(sentences: Sentences) -> list[np.ndarray]:
        if not made:
            made.append(_make(theirs, model))
        network, found = made[0], []
        with torch.inference_mode():
            for start in range(0, len(sentences), BATCH):
                group = [list(sentence) for sentence in sentences[start : start + BATCH]]
                network._elmo_lstm.reset_states()
                layers = network(theirs.batch_to_ids(group))["activations"]  # L + 1 of (B, T, D)
                stacked = torch.stack(layers).numpy()
                found += [stacked[:, row, 1 : len(tokens) + 1] for row, tokens in enumerate(group)]
        return found

    return run


def _make(theirs: Any, model: BiLM) -> Any:
    parts = drop_head(ModelParts(config=model.config, tensors=model.state_dict()))
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "model"
        write_published(pair, parts)
        return theirs._ElmoBiLm(str(pair / OPTIONS), str(pair / WEIGHTS)).eval()
