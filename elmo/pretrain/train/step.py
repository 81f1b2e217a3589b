"""One training step: a batch of running text to two losses, a clipped gradient and an update.

Keeps what passes from step to step (LSTM states, optimizer sums) and nothing else: each step's chance (dropout,
negatives) comes from the seed and the step's number, so a run continues exactly from these and its place in the text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from elmo.kernels.api import find_kernel
from elmo.model.bilm import BiLM
from elmo.model.head import AdaptiveHead, SoftmaxHead
from elmo.model.lstm import State
from elmo.model.stacks import run_stacks
from elmo.pretrain.config import RunConfig
from elmo.pretrain.data.stream import LMBatch
from elmo.pretrain.train.distributed import average_gradients, average_value, rank, world_size
from elmo.pretrain.train.objective import adaptive_softmax_loss, full_softmax_loss, sampled_softmax_loss
from elmo.pretrain.train.optim import clip_gradients, learning_rate, make_optimizer, set_learning_rate
from elmo.pretrain.train.sampler import Sample
from elmo.pretrain.train.step_graphs import Graphs
from elmo.pretrain.train.step_inputs import Feed, Feeder, draw_samples, step_seed
from elmo.pretrain.train.type_inputs import type_vectors

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
        self.lr_factor = 1.0  # of the schedule's rate; see `spike_guard`
        self._feeder = Feeder(
            len(rows), len(model.stacks), resets=config.train.reset > 0, even=self.device.type == "cuda"
        )
        fused = self.device.type == "cuda" and config.optim.name in ("adamw", "muon")  # see `make_optimizer`
        self._pinned = torch.empty(1 + len(model.stacks), pin_memory=True) if fused else None
        self._graphs = Graphs(self.gradients, self.parameters) if self._can_record() else None

    @property
    def num_scored(self) -> int:
        """Words that a position's softmax scores."""
        assert self.model.head is not None
        sampled = self.config.objective.softmax == "sampled"
        vocab_size = self.model.head.vocab_size
        return min(self.config.objective.num_samples, vocab_size) if sampled else vocab_size

    def _can_record(self) -> bool:
        """Whether a step is the same run of kernels each time: not where the device must be asked in between."""
        lstm = find_kernel("bilstm", self.device.type, str(self.dtype).removeprefix("torch."))
        fixed = isinstance(self.model.head, SoftmaxHead) and not self.sparse and self.config.train.accumulate == 1
        return lstm is not None and fixed

    def fresh_state(self) -> State:
        """Zero states for this process's rows, (directions, L, B, ·)."""
        zero = self.model.zero_state(self.config.train.rows // world_size())
        return State(zero.h.to(self.dtype), zero.c)

    def feeds(self, batch: LMBatch, number: int) -> list[Feed]:
        """What step `number` is fed of a batch, part by part. By one thread at a time."""
        assert self.model.head is not None
        objective, train = self.config.objective, self.config.train
        samples = []
        if self.num_scored < self.model.head.vocab_size:
            samples = draw_samples(
                self.model.head.vocab_size, objective.num_samples, train.seed, number, len(self.model.stacks)
            )
        parts = np.array_split(np.arange(len(batch.forward.inputs)), train.accumulate)
        made = [self._feeder.feed(batch, slice(int(p[0]), int(p[-1]) + 1), samples) for p in parts]
        return [feed.pinned() for feed in made] if self.device.type == "cuda" else made

    def step(self, batch: LMBatch, number: int) -> StepMetrics:
        """The update of step `number` (0, 1, ...)."""
        return self.update(self.feeds(batch, number), number)

    def update(self, feeds: list[Feed], number: int) -> StepMetrics:
        """The update of step `number`, of a batch that `feeds` made ready."""
        train, optim = self.config.train, self.config.optim
        rate = self.lr_factor * learning_rate(optim, number, train.max_steps)
        set_learning_rate(self.optimizer, rate)
        seed = step_seed(train.seed, number, "dropout", rank())
        if self._graphs is not None:
            losses, after = self._graphs.run(feeds[0], self.state, seed)
        else:
            losses, after = self._plainly(feeds, seed)
        if number < train.head_only_steps:
            for name, parameter in self.model.named_parameters():
                if not name.startswith("head."):
                    parameter.grad = None
        average_gradients(self.parameters)
        norm = clip_gradients(self.parameters, optim.clip_norm)
        found = torch.cat([norm.reshape(1), average_value(losses)])  # (1 + D,)
        values = self._update_unless_bad(found) if self._pinned is not None else found.tolist()
        skipped = not np.isfinite(values).all()
        if not skipped:
            if self._pinned is None:
                self.optimizer.step()
            self.state = after
        return StepMetrics(values[1], values[-1], values[0], rate, skipped)

    def _update_unless_bad(self, found: Tensor) -> list[float]:
        """The update with the device itself looking whether `found` is finite, so that it need not wait for an answer.

        While the optimizer's kernels run, the next step is prepared.
        """
        assert self._pinned is not None
        self._pinned.copy_(found, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        # how torch's fused optimizers are told to leave everything as it is
        self.optimizer.found_inf = (~found.isfinite().all()).float()  # type: ignore[attr-defined]
        self.optimizer.step()
        arrived.synchronize()
        return [float(value) for value in self._pinned]

    def _plainly(self, feeds: list[Feed], seed: int) -> tuple[Tensor, State]:
        """Losses, states after them and gradients, part by part."""
        self.optimizer.zero_grad(set_to_none=True)
        torch.manual_seed(seed)
        num_rows = self.state.h.shape[2]
        losses = torch.zeros(len(self.model.stacks), device=self.device)
        after, first = [], 0
        for feed in feeds:
            count = feed.places.shape[2]
            before = State(self.state.h[:, :, first : first + count], self.state.c[:, :, first : first + count])
            found, state = self.gradients(feed.to(self.device), before, count / num_rows)
            losses += found * (count / num_rows)
            after.append(state)
            first += count
        return losses, State(torch.cat([s.h for s in after], dim=2), torch.cat([s.c for s in after], dim=2))

    def gradients(self, feed: Feed, before: State, weight: float = 1.0) -> tuple[Tensor, State]:
        """Adds the gradients of some rows, which are so much of the batch; their losses (D,) and states after."""
        found, after = self.losses(feed, before)
        scale = self.config.train.steps if self.config.optim.times_unroll else 1.0
        (sum(found) / len(found) * weight * scale).backward()  # type: ignore[union-attr]  # found is never empty
        return torch.stack([loss.detach() for loss in found]), after

    def losses(self, feed: Feed, before: State) -> tuple[list[Tensor], State]:
        """Mean loss of each direction over some rows, and their states after it."""
        vectors = type_vectors(self.model, self.rows, feed.types, self.dtype)  # (N, P)
        dropout = self.config.objective.dropout
        x = nn.functional.embedding(feed.places, vectors)  # (D, T, B, P); its backward is quicker than indexing's
        fresh = None if feed.fresh is None else feed.fresh.transpose(1, 2)
        top, after = run_stacks(self.model.stacks, x.transpose(1, 2), before, fresh, dropout)  # (D, B, T, P)
        hidden = nn.functional.dropout(top.transpose(1, 2), dropout, self.model.training).flatten(1, 2)  # (D, T*B, P)
        samples = feed.samples
        losses = [self._loss(hidden[d], feed.targets[d], samples[d] if samples else None) for d in range(len(hidden))]
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
