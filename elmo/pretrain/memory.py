"""Estimates the memory of training and the size of checkpoints from the shapes of model and batch."""

from __future__ import annotations

import math

from elmo.model.config import BiLMConfig, HeadConfig, num_parameters
from elmo.pretrain.config import RunConfig
from elmo.pretrain.train.objective import MAX_LOGITS

FLOAT_BYTES = 4


def training_memory(config: RunConfig, model: BiLMConfig) -> int:
    """Bytes of weights, gradients, optimizer state and the activations of a micro-batch; `model` has its softmax."""
    assert model.head is not None
    train, lstm = config.train, model.lstm
    positions = model.num_directions * train.rows * train.steps // train.accumulate
    activations = positions * lstm.num_layers * (14 * lstm.cell_dim + 6 * lstm.proj_dim)
    activations += 3 * _num_logits(config, model.head, positions)
    return FLOAT_BYTES * (_num_copies(config) * num_parameters(model, head=True) + activations)


def checkpoint_bytes(config: RunConfig, model: BiLMConfig) -> int:
    """Bytes of the checkpoints in a run folder, the one that is being written included, and of the best weights."""
    num_copies = (config.train.keep + 1) * (_num_copies(config) - 1) + 1  # gradients are not stored
    return FLOAT_BYTES * num_copies * num_parameters(model, head=True)


def _num_logits(config: RunConfig, head: HeadConfig, positions: int) -> int:
    """The largest number of logits in memory at once.

    The full softmax computes them in blocks. For the others this is the number of plain PyTorch; the kernels need less.
    In an adaptive softmax, the words of a cluster are scored where the true word is one of them.
    """
    num_scored = config.objective.num_scored(head)
    if head.kind == "adaptive":
        clusters = zip(head.cutoffs, (*head.cutoffs[1:], head.vocab_size), strict=True)
        # by Zipf's law, the share of words number a to b in a text of V distinct words is ln(b / a) / ln(V)
        in_clusters = sum((end - start) * math.log(end / start) for start, end in clusters) / math.log(head.vocab_size)
        return round(positions * (num_scored + in_clusters))
    is_full = num_scored == head.vocab_size  # also if as many words are sampled
    return min(positions * num_scored, max(MAX_LOGITS, num_scored)) if is_full else positions * num_scored


def _num_copies(config: RunConfig) -> int:
    """How often the weights are in memory: weights, gradients, and one or two optimizer states."""
    return 3 if config.optim.name == "adagrad" else 4
