"""Linear classifiers on frozen vectors: one for each layer, one for a learned mix, one for all layers side by side.

All are fitted in one run over the data: a batch is read once and every classifier takes its step on it, with losses
that share no parameters. Each keeps the weights of the epoch that did best on the development set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.progress import Progress

BLOCK = 8192  # words looked at together where no gradient is needed


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    epochs: int = 12  # most passes over the training words
    patience: int = 3  # stop when no classifier got better on dev for so many epochs
    batch: int = 512  # words
    learning_rate: float = 2e-3  # Adam's, falling to zero along a cosine
    weight_decay: float = 1e-2  # decoupled
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least 1.")


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What one classifier came to."""

    view: str  # "0", "1", ..., "mix", "concat"
    dev: float  # its best score there
    epoch: int  # when, from 1
    predictions: np.ndarray  # (N,) label numbers for the test words
    layer_weights: list[float] | None = None  # of the mix


class View(nn.Module):
    """Standardised layers (B, L, D) to scores (B, K), through one layer, a mix, or all of them."""

    def __init__(self, name: str, num_layers: int, dim: int, num_labels: int, rng: torch.Generator) -> None:
        super().__init__()
        self.name = name
        wide = dim * (num_layers if name == "concat" else 1)
        self.weight = nn.Parameter(torch.empty(num_labels, wide).normal_(std=0.01, generator=rng))  # (K, D)
        self.bias = nn.Parameter(torch.zeros(num_labels))
        self.mix = nn.Parameter(torch.zeros(num_layers)) if name == "mix" else None  # the paper's s, before its softmax

    def forward(self, layers: Tensor) -> Tensor:
        if self.name == "concat":
            chosen = layers.flatten(1)  # (B, L*D)
        elif self.mix is not None:
            chosen = torch.einsum("l,bld->bd", torch.softmax(self.mix, 0), layers)  # gamma is part of the weight
        else:
            chosen = layers[:, int(self.name)]  # (B, D)
        return nn.functional.linear(chosen, self.weight, self.bias)  # (B, K)


def view_names(num_layers: int) -> list[str]:
    """Every layer by its number; with more than one, also their mix and all side by side."""
    return [str(layer) for layer in range(num_layers)] + (["mix", "concat"] if num_layers > 1 else [])


def fit(
    train: tuple[np.ndarray, np.ndarray],  # layers (N, L, D), labels (N,)
    dev: np.ndarray,
    test: np.ndarray,
    num_labels: int,
    score: Callable[[np.ndarray], float],  # of predicted labels for dev; higher is better
    config: FitConfig,
    *,
    device: str = "cpu",
    show: bool | None = None,
) -> list[Fitted]:
    """Fits every view on the training words, chooses its epoch on dev, and reads the test words with it."""
    features, labels = train
    _, L, D = features.shape
    rng = torch.Generator().manual_seed(config.seed)
    mean, scale = _moments(features)
    shift, factor = torch.from_numpy(mean).to(device), torch.from_numpy(1 / scale).to(device)  # (L, D)
    views = [View(name, L, D, num_labels, rng).to(device) for name in view_names(L)]
    parameters = [parameter for view in views for parameter in view.parameters()]
    optimizer = _Adam(parameters, config.weight_decay)
    num_steps = config.epochs * -(-len(labels) // config.batch)
    targets = torch.from_numpy(labels.astype(np.int64)).to(device)
    best: list[tuple[float, int, dict[str, Tensor]]] = [(-1.0, 0, {}) for _ in views]

    def ready(rows: np.ndarray) -> Tensor:
        return (torch.from_numpy(rows).to(device).float() - shift) * factor  # (B, L, D)

    with Progress("fitting", config.epochs * len(labels), show=show) as progress:
        for epoch in range(1, config.epochs + 1):
            for chosen in torch.randperm(len(labels), generator=rng).split(config.batch):
                chosen = chosen.sort().values  # a mapped file is read in order
                layers = ready(features[chosen.numpy()])
                losses = [nn.functional.cross_entropy(view(layers), targets[chosen.to(device)]) for view in views]
                gradients = torch.autograd.grad(torch.stack(losses).sum(), parameters)
                optimizer.step(
                    gradients, config.learning_rate * 0.5 * (1 + math.cos(math.pi * optimizer.t / num_steps))
                )
                progress.advance(len(chosen))
            for number, guesses in enumerate(_predict(views, dev, ready)):
                if (found := score(guesses)) > best[number][0]:
                    kept = {name: value.clone() for name, value in views[number].state_dict().items()}
                    best[number] = (found, epoch, kept)
            if epoch - max(at for _, at, _ in best) >= config.patience:
                break
    for view, (_, _, kept) in zip(views, best, strict=True):
        view.load_state_dict(kept)
    return [
        Fitted(view=view.name, dev=found, epoch=at, predictions=guesses, layer_weights=_shares(view))
        for view, (found, at, _), guesses in zip(views, best, _predict(views, test, ready), strict=True)
    ]


class _Adam:
    """Adam with decoupled weight decay on matrices; torch's own takes seconds to import what it does not need here."""

    def __init__(self, parameters: Sequence[Tensor], weight_decay: float) -> None:
        self.parameters, self.weight_decay, self.t = parameters, weight_decay, 0
        self.first = [torch.zeros_like(parameter) for parameter in parameters]
        self.second = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], rate: float) -> None:
        self.t += 1
        for parameter, gradient, first, second in zip(self.parameters, gradients, self.first, self.second, strict=True):
            first.lerp_(gradient, 0.1)
            second.lerp_(gradient**2, 0.001)
            if parameter.dim() > 1:
                parameter.mul_(1 - rate * self.weight_decay)
            scale = (second / (1 - 0.999**self.t)).sqrt_().add_(1e-8)
            parameter.addcdiv_(first, scale, value=-rate / (1 - 0.9**self.t))


def _moments(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each number of each layer, (L, D), in bounded memory."""
    total = np.zeros(features.shape[1:])
    squares = np.zeros(features.shape[1:])
    for block in _blocks(features):
        wide = block.astype(np.float64)
        total += wide.sum(0)
        squares += (wide**2).sum(0)
    mean = total / len(features)
    variance = np.maximum(squares / len(features) - mean**2, 0.0)
    return mean.astype(np.float32), np.sqrt(variance + 1e-8).astype(np.float32)


def _predict(views: Sequence[View], features: np.ndarray, ready: Callable[[np.ndarray], Tensor]) -> list[np.ndarray]:
    with torch.inference_mode():
        found = [[view(layers).argmax(-1).cpu() for view in views] for layers in map(ready, _blocks(features))]
    return [torch.cat([row[number] for row in found]).numpy() for number in range(len(views))]


def _blocks(features: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(features), BLOCK):
        yield np.array(features[start : start + BLOCK])  # a copy: what is mapped may not be written to


def _shares(view: View) -> list[float] | None:
    return None if view.mix is None else [round(share, 4) for share in torch.softmax(view.mix.detach(), 0).tolist()]
