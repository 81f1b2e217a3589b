"""One training step: a batch of running text to two losses, a clipped gradient and an update.

Keeps what passes from step to step (LSTM states, optimizer sums) and nothing else: each step's chance (dropout,
negatives) comes from the seed and the step's number, so a run continues exactly from these and its place in the text.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from elmo.model.bilm import BiLM
from elmo.model.head import AdaptiveHead, SoftmaxHead
from elmo.model.lstm import State
from elmo.model.rows import read_rows
from elmo.pretrain.config import RunConfig
from elmo.pretrain.distributed import average_gradients, average_value, rank, world_size
from elmo.pretrain.inputs import distinct_vectors
from elmo.pretrain.objective import adaptive_softmax_loss, full_softmax_loss, sampled_softmax_loss
from elmo.pretrain.optim import clip_gradients, learning_rate, make_optimizer, set_learning_rate
from elmo.pretrain.sampler import Sample, draw
from elmo.pretrain.stream import LMBatch

SPARSE_FROM = 200_000  # words from which Adagrad touches only the softmax rows that a step used


@dataclass(frozen=True)
class StepMetrics:
    """What one step did. `skipped`: a loss or the gradient was not finite, so nothing was updated."""

    forward: float  # mean loss in nats; of the sampled softmax where that is trained
    backward: float  # of a one-directional model: the same
    grad_norm: float  # before clipping
    lr: float
    skipped: bool


class Stepper:
    """The model in training with its optimizer and the states of its rows."""

    def __init__(self, model: BiLM, rows: Tensor, config: RunConfig) -> None:
        self.model, self.config = model.train(), config
        self.rows = rows  # (types, W): the row of ids of each word type
        self.device = next(model.parameters()).device
        self.optimizer = make_optimizer(model, config.optim)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.dtype = torch.bfloat16 if config.train.precision == "bfloat16" else torch.float32
        assert model.head is not None
        sampled = config.objective.softmax == "sampled" and config.optim.name == "adagrad"
        self.sparse = sampled and model.head.vocab_size >= SPARSE_FROM
        if self.sparse:
            torch.sparse.check_sparse_tensor_invariants.disable()  # torch warns until someone decides
        self.state = self.fresh_state()

    @property
    def num_scored(self) -> int:
        """Words that a position's softmax scores."""
        assert self.model.head is not None
        sampled = self.config.objective.softmax == "sampled"
        vocab_size = self.model.head.vocab_size
        return min(self.config.objective.num_samples, vocab_size) if sampled else vocab_size

    def fresh_state(self) -> State:
        """Zero states for this process's rows, (directions, L, B, ·)."""
        zero = self.model.zero_state(self.config.train.rows // world_size())
        return State(zero.h.to(self.dtype), zero.c)

    def step(self, batch: LMBatch, number: int) -> StepMetrics:
        """The update of step `number` (0, 1, ...)."""
        train, optim = self.config.train, self.config.optim
        rate = learning_rate(optim, number, train.max_steps)
        set_learning_rate(self.optimizer, rate)
        self.optimizer.zero_grad(set_to_none=True)
        torch.manual_seed(step_seed(train.seed, number, "dropout", rank()))
        samples = self._samples(number)
        parts = np.array_split(np.arange(self.state.h.shape[2]), train.accumulate)
        losses = torch.zeros(len(self.model.stacks), device=self.device)
        after = []
        for part in parts:
            rows = slice(int(part[0]), int(part[-1]) + 1)
            found, state = self.losses(batch, rows, samples)
            weight = len(part) / self.state.h.shape[2]
            scale = train.steps if optim.times_unroll else 1.0
            (sum(found) / len(found) * weight * scale).backward()  # type: ignore[union-attr]  # found is never empty
            losses += torch.stack([loss.detach() for loss in found]) * weight
            after.append(state)
        if number < train.head_only_steps:
            for name, parameter in self.model.named_parameters():
                if not name.startswith("head."):
                    parameter.grad = None
        average_gradients(self.parameters)
        norm = float(clip_gradients(self.parameters, optim.clip_norm))
        means = average_value(losses).tolist()
        skipped = not np.isfinite([norm, *means]).all()
        if not skipped:
            self.optimizer.step()
            self.state = State(torch.cat([s.h for s in after], dim=2), torch.cat([s.c for s in after], dim=2))
        return StepMetrics(means[0], means[-1], norm, rate, skipped)

    def losses(self, batch: LMBatch, rows: slice, samples: list[Sample]) -> tuple[list[Tensor], State]:
        """Mean loss of each direction over some of the batch's rows, and their states after it."""
        directions = [batch.forward, batch.backward][: len(self.model.stacks)]
        inputs = torch.from_numpy(np.stack([d.inputs[rows] for d in directions])).to(self.device)  # (directions, B, T)
        vectors, places = distinct_vectors(self.model, self.rows, inputs, self.dtype)  # (N, P)
        resets = np.stack([d.resets[rows] for d in directions])  # (directions, B, T)
        fresh = torch.from_numpy(resets).to(self.device) if resets.any() else None
        dropout = self.config.objective.dropout
        before = State(self.state.h[:, :, rows], self.state.c[:, :, rows])
        x = nn.functional.embedding(places, vectors)  # (directions, B, T, P); its backward is quicker than indexing's
        top, after = read_rows(self.model.stacks, x, before, fresh, dropout)  # (directions, B, T, P)
        hidden = nn.functional.dropout(top, dropout, self.model.training).flatten(1, 2)  # (directions, B*T, P)
        wanted = torch.from_numpy(np.stack([d.targets[rows] for d in directions])).to(self.device).long().flatten(1, 2)
        losses = [self._loss(hidden[d], wanted[d], samples[d] if samples else None) for d in range(len(directions))]
        return losses, State(after.h.detach(), after.c.detach())

    def _loss(self, hidden: Tensor, targets: Tensor, sample: Sample | None) -> Tensor:
        """One direction's mean loss of states (N, P) and the words that follow them (N,)."""
        head = self.model.head
        if isinstance(head, AdaptiveHead):
            return adaptive_softmax_loss(head, hidden.float(), targets)
        assert isinstance(head, SoftmaxHead)
        if sample is None:
            return full_softmax_loss(head, hidden, targets)
        return sampled_softmax_loss(head, hidden, targets, sample, sparse=self.sparse)

    def _samples(self, number: int) -> list[Sample]:
        """Negatives of each direction, the same on every process; none where the whole vocabulary is scored."""
        objective, head = self.config.objective, self.model.head
        assert head is not None
        if objective.softmax != "sampled" or objective.num_samples >= head.vocab_size:
            return []
        seeds = [step_seed(self.config.train.seed, number, "negatives", d) for d in range(len(self.model.stacks))]
        return [draw(head.vocab_size, objective.num_samples, seed, self.device) for seed in seeds]


def step_seed(seed: int, number: int, purpose: str, index: int = 0) -> int:
    """A seed for one purpose of one step that no other step shares."""
    text = f"{seed}/{number}/{purpose}/{index}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
