"""Linear classifiers on frozen vectors: one per layer, one on a learned mix, one on the concatenation of all layers.

All classifiers are trained in the same pass over the data: each batch is read once, and every classifier makes its
update on it; their losses share no parameters. Each classifier is restored to its best epoch on the development set.
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

BLOCK = 8192  # words per step where no gradient is needed


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """Training settings of the linear classifiers."""

    epochs: int = 12  # maximum number of passes over the training words
    patience: int = 3  # epochs without an improvement of any classifier on dev, after which training stops
    batch: int = 512  # words
    learning_rate: float = 2e-3  # of Adam, with cosine decay to zero
    weight_decay: float = 1e-2  # decoupled
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least 1.")


@dataclass(frozen=True, kw_only=True)
class FittedView:
    """The results of one trained classifier."""

    view: str  # "0", "1", ..., "mix", "concat"
    dev: float  # best score on the development set
    epoch: int  # the epoch of this score, from 1
    predictions: np.ndarray  # (N,) label ids for the test words
    layer_weights: list[float] | None = None  # of the mix, after the softmax


class View(nn.Module):
    """Classifier from standardised layers (B, L, D) to scores (B, K) of K labels; reads one layer, a mix, or all."""

    def __init__(self, name: str, num_layers: int, dim: int, num_labels: int, rng: torch.Generator) -> None:
        super().__init__()
        self.name = name
        input_dim = dim * (num_layers if name == "concat" else 1)
        self.weight = nn.Parameter(torch.empty(num_labels, input_dim).normal_(std=0.01, generator=rng))  # (K, D or L*D)
        self.bias = nn.Parameter(torch.zeros(num_labels))
        self.mix = nn.Parameter(torch.zeros(num_layers)) if name == "mix" else None  # the paper's s, before its softmax

    def forward(self, layers: Tensor) -> Tensor:
        if self.name == "concat":
            vectors = layers.flatten(1)  # (B, L*D)
        elif self.mix is not None:
            vectors = torch.einsum("l,bld->bd", torch.softmax(self.mix, 0), layers)  # (B, D); the weight includes gamma
        else:
            vectors = layers[:, int(self.name)]  # (B, D)
        return nn.functional.linear(vectors, self.weight, self.bias)  # (B, K)


def view_names(num_layers: int) -> list[str]:
    """The number of every layer; for more than one layer also "mix" and "concat"."""
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
) -> list[FittedView]:
    """Trains every view on the training words, selects its epoch on dev, and predicts the labels of the test words."""
    features, labels = train
    _, L, D = features.shape
    rng = torch.Generator().manual_seed(config.seed)
    mean, scale = _moments(features)
    shift, inverse_scale = torch.from_numpy(mean).to(device), torch.from_numpy(1 / scale).to(device)  # (L, D)
    views = [View(name, L, D, num_labels, rng).to(device) for name in view_names(L)]
    parameters = [parameter for view in views for parameter in view.parameters()]
    optimizer = _Adam(parameters, config.weight_decay)
    num_steps = config.epochs * -(-len(labels) // config.batch)
    targets = torch.from_numpy(labels.astype(np.int64)).to(device)
    best: list[tuple[float, int, dict[str, Tensor]]] = [(-1.0, 0, {}) for _ in views]

    def standardize(vectors: np.ndarray) -> Tensor:
        return (torch.from_numpy(vectors).to(device).float() - shift) * inverse_scale  # (B, L, D)

    with Progress("fitting", config.epochs * len(labels), show=show) as progress:
        for epoch in range(1, config.epochs + 1):
            for shuffled in torch.split(torch.randperm(len(labels), generator=rng), config.batch):
                indices = shuffled.sort().values  # a memory-mapped file is read in order
                layers = standardize(features[indices.numpy()])
                losses = [nn.functional.cross_entropy(view(layers), targets[indices.to(device)]) for view in views]
                gradients = torch.autograd.grad(torch.stack(losses).sum(), parameters)
                optimizer.step(
                    gradients, config.learning_rate * 0.5 * (1 + math.cos(math.pi * optimizer.t / num_steps))
                )
                progress.advance(len(indices))
            for number, predictions in enumerate(_predict(views, dev, standardize)):
                if (dev_score := score(predictions)) > best[number][0]:
                    weights = {name: value.clone() for name, value in views[number].state_dict().items()}
                    best[number] = (dev_score, epoch, weights)
            if epoch - max(best_epoch for _, best_epoch, _ in best) >= config.patience:
                break
    for view, (_, _, weights) in zip(views, best, strict=True):
        view.load_state_dict(weights)
    return [
        FittedView(
            view=view.name, dev=dev_score, epoch=best_epoch, predictions=predictions, layer_weights=_mix_weights(view)
        )
        for view, (dev_score, best_epoch, _), predictions in zip(
            views, best, _predict(views, test, standardize), strict=True
        )
    ]


class _Adam:
    """Adam with decoupled weight decay on matrices; importing torch.optim would take seconds."""

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
    """Mean and standard deviation of each dimension of each layer, (L, D), in bounded memory."""
    total = np.zeros(features.shape[1:])
    squares = np.zeros(features.shape[1:])
    for block in _blocks(features):
        values = block.astype(np.float64)
        total += values.sum(0)
        squares += (values**2).sum(0)
    mean = total / len(features)
    variance = np.maximum(squares / len(features) - mean**2, 0.0)
    return mean.astype(np.float32), np.sqrt(variance + 1e-8).astype(np.float32)


def _predict(
    views: Sequence[View], features: np.ndarray, standardize: Callable[[np.ndarray], Tensor]
) -> list[np.ndarray]:
    """The predicted label ids of each view, (N,)."""
    with torch.inference_mode():
        blocks = [[view(layers).argmax(-1).cpu() for view in views] for layers in map(standardize, _blocks(features))]
    return [torch.cat([block[number] for block in blocks]).numpy() for number in range(len(views))]


def _blocks(features: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(features), BLOCK):
        yield np.array(features[start : start + BLOCK])  # a copy: a memory-mapped array may be read-only


def _mix_weights(view: View) -> list[float] | None:
    return None if view.mix is None else [round(weight, 4) for weight in torch.softmax(view.mix.detach(), 0).tolist()]
