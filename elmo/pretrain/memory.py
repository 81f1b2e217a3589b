"""Estimates the memory of training and the size of checkpoints from the shapes of model and batch."""

from __future__ import annotations

from elmo.model.config import BiLMConfig, num_parameters
from elmo.pretrain.config import RunConfig

FLOAT_BYTES = 4


def training_memory(config: RunConfig, model: BiLMConfig) -> int:
    """Bytes of weights, gradients, optimizer state and the activations of a micro-batch; `model` has its softmax."""
    assert model.head is not None
    train, lstm = config.train, model.lstm
    num_scored = config.objective.num_scored(model.head.vocab_size)
    activations = lstm.num_layers * (14 * lstm.cell_dim + 6 * lstm.proj_dim) + 3 * num_scored  # per position
    activations *= model.num_directions * train.rows * train.steps // train.accumulate
    return FLOAT_BYTES * (_num_copies(config) * num_parameters(model, head=True) + activations)


def checkpoint_bytes(config: RunConfig, model: BiLMConfig) -> int:
    """Bytes of the checkpoints in a run folder, the one that is being written included, and of the best weights."""
    num_copies = (config.train.keep + 1) * (_num_copies(config) - 1) + 1  # gradients are not stored
    return FLOAT_BYTES * num_copies * num_parameters(model, head=True)


def _num_copies(config: RunConfig) -> int:
    """How often the weights are in memory: weights, gradients, and one or two optimizer states."""
    return 3 if config.optim.name == "adagrad" else 4
