"""Other ELMo implementations on the same weights and sentences, where they can be imported.

AllenNLP 2.10.1, the last release, requires versions of its dependencies that no longer install next to a current
PyTorch; benchmarks/peers/README.md describes how to run it nevertheless.
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

from elmo.bench.baseline import BATCH_SIZE, Embed, Sentences
from elmo.model.bilm import BiLM
from elmo.weights.convert import drop_head
from elmo.weights.model_parts import ModelParts
from elmo.weights.published import OPTIONS, WEIGHTS, write_published

log = logging.getLogger(__name__)


def allennlp_embed(model: BiLM) -> Embed | None:
    """AllenNLP's biLM with this model's weights, from token lists to arrays; None if it is not installed.

    It processes batches in the given order and resets its state before each, so that its vectors are comparable.
    """
    if importlib.util.find_spec("allennlp") is None:
        return None
    try:
        elmo_module: Any = importlib.import_module("allennlp.modules.elmo")
    except Exception as error:  # an old package next to new ones can fail in any way
        log.warning("allennlp is installed, but cannot be imported: %s: %s", type(error).__name__, error)
        return None
    networks: list[Any] = []  # the network, once it has been needed

    def run(sentences: Sentences) -> list[np.ndarray]:
        if not networks:
            networks.append(_make_network(elmo_module, model))
        network, vectors = networks[0], []
        with torch.inference_mode():
            for start in range(0, len(sentences), BATCH_SIZE):
                batch = [list(sentence) for sentence in sentences[start : start + BATCH_SIZE]]
                network._elmo_lstm.reset_states()
                layers = network(elmo_module.batch_to_ids(batch))["activations"]  # L + 1 of (B, T, D)
                stacked = torch.stack(layers).numpy()
                vectors += [stacked[:, row, 1 : len(tokens) + 1] for row, tokens in enumerate(batch)]
        return vectors

    return run


def _make_network(elmo_module: Any, model: BiLM) -> Any:
    parts = drop_head(ModelParts(config=model.config, tensors=model.state_dict()))
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "model"
        write_published(pair, parts)
        return elmo_module._ElmoBiLm(str(pair / OPTIONS), str(pair / WEIGHTS)).eval()
