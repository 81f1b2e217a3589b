"""The training step: losses of both directions on one batch, gradients, gradient clipping and optimizer update.

`Trainer` holds only what passes from step to step: the weights, the optimizer state and the LSTM states of the rows.
The random numbers of a step (dropout, negatives) depend on nothing but the seed and the index of the step. A run
therefore resumes exactly from these states and its position in the text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from elmo.kernels.api import find_kernel, find_stacks
from elmo.model.bilm import BiLM
from elmo.model.head import AdaptiveHead, SoftmaxHead
from elmo.model.lstm import State
from elmo.model.stacks import run_stacks_plain
from elmo.pretrain.config import RunConfig
from elmo.pretrain.data.stream import LMBatch
from elmo.pretrain.train.distributed import average_gradients, mean_over_processes, rank, world_size
from elmo.pretrain.train.gradient_exchange import GradientExchange
from elmo.pretrain.train.objective import (
    adaptive_softmax_loss,
    full_softmax_loss,
    fused_adaptive_losses,
    fused_softmax_losses,
    sampled_softmax_loss,
)
from elmo.pretrain.train.optim import clip_gradients, learning_rate, make_optimizer, set_learning_rate
from elmo.pretrain.train.sampler import Sample
from elmo.pretrain.train.step_graphs import Graphs
from elmo.pretrain.train.step_inputs import InputBuilder, StepInputs, draw_samples, step_seed
from elmo.pretrain.train.type_inputs import type_vectors

MIN_SPARSE_VOCAB = 200_000  # from this vocabulary size on, Adagrad updates only the softmax rows that a step reads


@dataclass(frozen=True)
class StepMetrics:
    """The measurements of one step. `skipped`: a loss or the gradient was not finite, and nothing was updated."""

    forward: float  # mean training loss in nats (of the sampled softmax, if that is the objective)
    backward: float  # equal to `forward` for a model of one direction
    grad_norm: float  # before clipping
    lr: float
    skipped: bool


class Trainer:
    """A model in training with its optimizer and the LSTM states of its rows."""

    def __init__(self, model: BiLM, rows: Tensor, config: RunConfig) -> None:
        self.model, self.config = model.train(), config
        self.rows = rows  # (number of types, C or 1): the character ids or the word id of each word type
        self.device = next(model.parameters()).device
        self.optimizer = make_optimizer(model, config.optim)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.dtype = torch.bfloat16 if config.train.precision == "bfloat16" else torch.float32
        assert model.head is not None
        sampled = config.objective.softmax == "sampled" and config.optim.name == "adagrad"
        self.sparse = sampled and model.head.vocab_size >= MIN_SPARSE_VOCAB
        if self.sparse:
            torch.sparse.check_sparse_tensor_invariants.disable()  # an explicit choice silences torch's warning
        self.state = self.zero_state()
        self.lr_factor = 1.0  # multiplies the learning rate of the schedule; see `spike_guard`
        self._input_builder = InputBuilder(
            len(rows), len(model.stacks), with_resets=config.train.reset > 0, bucketed=self.device.type == "cuda"
        )
        fused = self.device.type == "cuda" and config.optim.name in ("adamw", "muon")  # see `make_optimizer`
        self._pinned = torch.empty(1 + len(model.stacks), pin_memory=True) if fused else None
        dtype_name = str(self.dtype).removeprefix("torch.")
        self._run_stacks = find_stacks(model, self.device.type, dtype_name)
        self._fused_softmax = find_kernel("sampled_cross_entropy", self.device.type, dtype_name)
        self._fused_losses = None if self.sparse else find_kernel("softmax_losses", self.device.type, dtype_name, model)
        self._graphs = Graphs(self.gradients, self.parameters) if self._can_record() else None
        overlaps = world_size() > 1 and self._graphs is None
        self._exchange = GradientExchange(self.parameters) if overlaps else None

    def _can_record(self) -> bool:
        """Whether every step launches the same kernels and never reads a value back from the device."""
        has_kernels = find_kernel("bilstm", self.device.type, str(self.dtype).removeprefix("torch.")) is not None
        # the plain stacks read from the device which rows are reset
        stays_on_device = self._run_stacks is not run_stacks_plain or self.config.train.reset == 0
        fixed = isinstance(self.model.head, SoftmaxHead) and not self.sparse and self.config.train.accumulate == 1
        return has_kernels and stays_on_device and fixed

    def zero_state(self) -> State:
        """Zero LSTM states for the rows of this process, (R, L, B, ·)."""
        zero = self.model.zero_state(self.config.train.rows // world_size())
        return State(zero.h.to(self.dtype), zero.c)

    def make_inputs(self, batch: LMBatch, step: int) -> list[StepInputs]:
        """The inputs of step `step`, one element per micro-batch. Only one thread may call this at a time."""
        objective, train, head = self.config.objective, self.config.train, self.model.config.head
        assert head is not None
        samples = []
        if objective.is_sampled(head):
            samples = draw_samples(head.vocab_size, objective.num_samples, train.seed, step, len(self.model.stacks))
        parts = np.array_split(np.arange(len(batch.forward.inputs)), train.accumulate)
        inputs = [self._input_builder.build(batch, slice(int(p[0]), int(p[-1]) + 1), samples) for p in parts]
        return [part.pinned() for part in inputs] if self.device.type == "cuda" else inputs

    def step(self, batch: LMBatch, step: int) -> StepMetrics:
        """Makes the update of step `step` (0, 1, ...) on a batch."""
        return self.update(self.make_inputs(batch, step), step)

    def update(self, inputs: list[StepInputs], step: int) -> StepMetrics:
        """Makes the update of step `step` on the micro-batches that `make_inputs` gives."""
        train, optim = self.config.train, self.config.optim
        rate = self.lr_factor * learning_rate(optim, step, train.max_steps)
        set_learning_rate(self.optimizer, rate)
        seed = step_seed(train.seed, step, "dropout", rank())
        if self._graphs is not None:
            losses, final_state = self._graphs.run(inputs[0], self.state, seed)
            average_gradients(self.parameters)
        else:
            losses, final_state = self._run_eagerly(inputs, seed)
        if step < train.head_only_steps:
            for name, parameter in self.model.named_parameters():
                if not name.startswith("head."):
                    parameter.grad = None
        norm = clip_gradients(self.parameters, optim.clip_norm)
        norm_and_losses = torch.cat([norm.reshape(1), mean_over_processes(losses)])  # (1 + R,)
        values = self._update_if_finite(norm_and_losses) if self._pinned is not None else norm_and_losses.tolist()
        skipped = not np.isfinite(values).all()
        if not skipped:
            if self._pinned is None:
                self.optimizer.step()
            self.state = final_state
        return StepMetrics(values[1], values[-1], values[0], rate, skipped)

    def _update_if_finite(self, norm_and_losses: Tensor) -> list[float]:
        """Makes the optimizer update, in which the device itself skips the update unless all values are finite.

        The host therefore need not wait for the values before it launches the update, and prepares the next step while
        the optimizer's kernels run. Returns the values.
        """
        assert self._pinned is not None
        self._pinned.copy_(norm_and_losses, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        # torch's fused optimizers change nothing where found_inf is above zero
        self.optimizer.found_inf = (~norm_and_losses.isfinite().all()).float()  # type: ignore[attr-defined]
        self.optimizer.step()
        copied.synchronize()
        return [float(value) for value in self._pinned]

    def _run_eagerly(self, inputs: list[StepInputs], seed: int) -> tuple[Tensor, State]:
        """Losses (R,) and final states, without a CUDA graph; accumulates the gradients of the micro-batches.

        Gradients are averaged over all processes during the backward pass of the last micro-batch.
        """
        self.optimizer.zero_grad(set_to_none=True)
        torch.manual_seed(seed)
        num_rows = self.state.h.shape[2]
        losses = torch.zeros(len(self.model.stacks), device=self.device)
        final_states, first = [], 0
        for part in inputs:
            count = part.type_index.shape[2]
            initial = State(self.state.h[:, :, first : first + count], self.state.c[:, :, first : first + count])
            if self._exchange is not None and part is inputs[-1]:
                self._exchange.begin()
            part_losses, final = self.gradients(part.to(self.device), initial, count / num_rows)
            losses += part_losses * (count / num_rows)
            final_states.append(final)
            first += count
        if self._exchange is not None:
            self._exchange.finish()
        return losses, State(*(torch.cat(tensors, dim=2) for tensors in zip(*final_states, strict=True)))

    def gradients(self, inputs: StepInputs, initial: State, weight: float = 1.0) -> tuple[Tensor, State]:
        """Adds the gradients of some rows to .grad; returns their losses (R,) and final states.

        `weight` is the share of these rows in the batch.
        """
        losses, final = self.losses(inputs, initial)
        scale = self.config.train.steps if self.config.optim.times_unroll else 1.0
        (sum(losses) / len(losses) * weight * scale).backward()  # type: ignore[union-attr]  # losses is never empty
        return torch.stack([loss.detach() for loss in losses]), final

    def losses(self, inputs: StepInputs, before: State) -> tuple[list[Tensor], State]:
        """The mean loss of each direction over some rows, and their final states; `before` are the initial states."""
        vectors = type_vectors(self.model, self.rows, inputs.types, self.dtype)  # (N, P)
        dropout = self.config.objective.dropout
        x = nn.functional.embedding(inputs.type_index, vectors)  # (R, T, B, P); its backward is faster than indexing's
        fresh = None if inputs.resets is None else inputs.resets.transpose(1, 2)  # (R, B, T)
        top, after = self._run_stacks(self.model.stacks, x.transpose(1, 2), before, fresh, dropout)  # (R, B, T, P)
        hidden = nn.functional.dropout(top.transpose(1, 2), dropout, self.model.training).flatten(1, 2)  # (R, T*B, P)
        samples = inputs.samples
        final = State(after.h.detach(), after.c.detach())
        head, fused = self.model.head, self._fused_losses
        if fused is not None and isinstance(head, AdaptiveHead):
            return list(fused_adaptive_losses(fused, head, hidden, inputs.targets).unbind()), final
        if fused is not None and isinstance(head, SoftmaxHead):
            return list(fused_softmax_losses(fused, head, hidden, inputs.targets, samples).unbind()), final
        losses = [self._loss(hidden[d], inputs.targets[d], samples[d] if samples else None) for d in range(len(hidden))]
        return losses, final

    def _loss(self, hidden: Tensor, targets: Tensor, sample: Sample | None) -> Tensor:
        """The mean loss of one direction, from top-layer outputs (N, P) and the words to predict (N,)."""
        head = self.model.head
        if isinstance(head, AdaptiveHead):
            return adaptive_softmax_loss(head, hidden.float(), targets)
        assert isinstance(head, SoftmaxHead)
        if sample is None:
            return full_softmax_loss(head, hidden, targets)
        return sampled_softmax_loss(head, hidden, targets, sample, sparse=self.sparse, fused=self._fused_softmax)
