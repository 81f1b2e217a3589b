"""The optimizer of the task models, one update with clipped gradients, and a running average of the weights."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from elmo.tasks.config import RunConfig


def make_optimizer(model: nn.Module, config: RunConfig) -> torch.optim.Optimizer:
    """An optimizer of all trainable weights; the weights of a tuned biLM have their own learning rate."""
    optim = config.optim
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    bilm_weights = [p for name, p in trainable if name.startswith("inputs.bilm.")]
    task_weights = [p for name, p in trainable if not name.startswith("inputs.bilm.")]
    groups = [{"params": task_weights, "lr": optim.lr}]
    groups += [{"params": bilm_weights, "lr": config.elmo.lr}] if bilm_weights else []
    decay = optim.weight_decay
    if optim.name == "adadelta":
        return torch.optim.Adadelta(groups, rho=optim.rho, weight_decay=decay)
    if optim.name == "sgd":
        return torch.optim.SGD(groups, momentum=0.9, weight_decay=decay)
    adam = torch.optim.AdamW if optim.name == "adamw" else torch.optim.Adam
    return adam(groups, weight_decay=decay, fused=True)


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Loads a saved state with its learning rates; whether the kernels are fused stays as it is."""
    for group, saved_group in zip(optimizer.param_groups, state["param_groups"], strict=True):
        if "fused" in group:
            saved_group["fused"] = group["fused"]
    optimizer.load_state_dict(state)


def update(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, clip_norm: float) -> Tensor:
    """Makes one update; if the gradient is not finite, the weights do not change. Returns whether it is finite.

    The result is a bool tensor without dimensions on the device: a fused optimizer reads it there, without
    synchronisation.
    """
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    weights = [p for p in model.parameters() if p.grad is not None]
    norm = torch.nn.utils.clip_grad_norm_(weights, clip_norm or math.inf)
    is_finite = norm.isfinite()
    if optimizer.defaults.get("fused"):
        optimizer.found_inf = (~is_finite).float()  # type: ignore[attr-defined]  # the interface of torch's GradScaler
        optimizer.step()
    elif is_finite:
        optimizer.step()
    return is_finite


class WeightAverage:
    """Exponential moving average of the trainable weights; with decay 0 it does nothing."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.values = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad} if decay else {}

    @torch.no_grad()
    def step(self, model: nn.Module, updates: int) -> None:
        """Adds the weights after update number `updates`; the decay is lower at first, to discount initial values."""
        if not self.decay:
            return
        decay = min(self.decay, (1 + updates) / (10 + updates))
        weights = [weight.detach() for name, weight in model.named_parameters() if name in self.values]
        torch._foreach_lerp_(list(self.values.values()), weights, 1 - decay)  # one kernel launch for all

    @torch.no_grad()
    def swap(self, model: nn.Module) -> None:
        """Exchanges the weights of the model and the average; a second call exchanges them back."""
        for name, weight in model.named_parameters():
            if name in self.values:
                current = weight.clone()
                weight.copy_(self.values[name])
                self.values[name].copy_(current)
