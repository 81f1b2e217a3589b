"""How a task model's weights move: optimizer, clipped gradients, a running average of the weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from elmo.tasks.config import RunConfig


def make_optimizer(model: nn.Module, config: RunConfig) -> torch.optim.Optimizer:
    """Over all weights that learn; those of a tuned biLM have a rate of their own."""
    optim = config.optim
    learning = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    bilm = [p for name, p in learning if name.startswith("inputs.bilm.")]
    own = [p for name, p in learning if not name.startswith("inputs.bilm.")]
    groups = [{"params": own, "lr": optim.lr}]
    groups += [{"params": bilm, "lr": config.elmo.lr}] if bilm else []
    decay = optim.weight_decay
    if optim.name == "adadelta":
        return torch.optim.Adadelta(groups, rho=optim.rho, weight_decay=decay)
    if optim.name == "sgd":
        return torch.optim.SGD(groups, momentum=0.9, weight_decay=decay)
    kind = torch.optim.AdamW if optim.name == "adamw" else torch.optim.Adam
    return kind(groups, weight_decay=decay, fused=True if all(p.is_cuda for _, p in learning) else None)


def update(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, clip_norm: float) -> Tensor:
    """One step down the loss's gradient; false, and nothing moves, where it is not finite.

    The answer (a bool without axes) stays on the device: a fused optimizer finds it there, and nobody waits.
    """
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    weights = [p for p in model.parameters() if p.grad is not None]
    norm = torch.nn.utils.clip_grad_norm_(weights, clip_norm or math.inf)
    is_finite = norm.isfinite()
    if optimizer.defaults.get("fused"):
        optimizer.found_inf = (~is_finite).float()  # type: ignore[attr-defined]  # how loss scaling tells it, too
        optimizer.step()
    elif is_finite:
        optimizer.step()
    return is_finite


class WeightAverage:
    """Exponential running average of the learning weights; decay 0: the weights themselves."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.values = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad} if decay else {}

    @torch.no_grad()
    def step(self, model: nn.Module, updates: int) -> None:
        """After update number `updates`; at first the average is short, so that the start is soon forgotten."""
        if not self.decay:
            return
        decay = min(self.decay, (1 + updates) / (10 + updates))
        weights = [weight.detach() for name, weight in model.named_parameters() if name in self.values]
        torch._foreach_lerp_(list(self.values.values()), weights, 1 - decay)  # one launch for all of them

    @torch.no_grad()
    def swap(self, model: nn.Module) -> None:
        """The model and the average change places; a second call changes them back."""
        for name, weight in model.named_parameters():
            if name in self.values:
                held = weight.clone()
                weight.copy_(self.values[name])
                self.values[name].copy_(held)
