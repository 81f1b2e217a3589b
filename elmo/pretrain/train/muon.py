"""Muon for the matrices of a biLM, AdamW for everything else (Jordan et al. 2024; scale of Liu et al. 2025).

Muon replaces a matrix's momentum by the nearest orthogonal matrix, so that every direction of the matrix learns at the
same speed. `optim` chooses the optimizer and `step` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmo.kernels.api import find_kernel
from elmo.model.lstm import ProjectedLSTM
from elmo.model.token_encoder import Highway, TokenEncoder

MAX_HIGHWAY_DIM = 1024  # wider highways are left to AdamW: with 2,048 filters the iteration takes longer than the step
NUM_GATES = 4  # an LSTM kernel (2P, 4H) is the concatenation of one matrix per gate
NUM_ITERATIONS = 5
COEFFICIENTS = 3.4445, -4.7750, 2.0315  # a x + b x^3 + c x^5 moves singular values from 0.01..1 close to 1
SCALE = 0.2  # the root mean square of an update is that of AdamW, so both optimizers share one learning rate
EPSILON = 1e-7  # avoids a division by zero for a gradient of zero


def matrix_parameters(model: nn.Module) -> dict[Tensor, int]:
    """The parameters that Muon updates, each with the number of matrices that are concatenated in its columns.

    These are the LSTM kernels (input and recurrent rows together, four gates), the LSTM projections, both matrices of
    each highway of at most MAX_HIGHWAY_DIM filters, and the token projection. AdamW updates the rest: tables,
    convolutions, wider highways, the softmax and all vectors.
    """
    counts: dict[Tensor, int] = {}
    for module in model.modules():
        if isinstance(module, ProjectedLSTM):
            counts[module.kernel] = NUM_GATES
            if module.projection is not None:
                counts[module.projection] = 1
        elif isinstance(module, Highway) and module.transform.out_features <= MAX_HIGHWAY_DIM:
            counts |= {module.transform.weight: 1, module.carry.weight: 1}
        elif isinstance(module, TokenEncoder) and module.project is not None:
            counts[module.project.weight] = 1
    return {parameter: count for parameter, count in counts.items() if parameter.requires_grad}


class Muon(torch.optim.Optimizer):
    """Updates `matrices` (see `matrix_parameters`) with Muon and the parameters of `adamw` with AdamW.

    torch.optim.Muon is not used because it treats the four gates of a kernel as one matrix, launches its iteration
    separately for every parameter, and does not support `found_inf`. `adamw` must be fused, because only torch's fused
    kernels support `found_inf`. Parameters without a gradient are skipped. No operation waits for the device. The state
    has torch's own format: "momentum_buffer" for a matrix, AdamW's two averages and step for the rest.
    """

    def __init__(
        self,
        matrices: dict[Tensor, int],
        adamw: torch.optim.AdamW,
        *,
        lr: float,
        momentum: float,
        lr_ratio: float,
        weight_decay: float,
    ) -> None:
        hyperparameters = {"lr": lr, "momentum": momentum, "lr_ratio": lr_ratio, "weight_decay": weight_decay}
        super().__init__([{"params": list(matrices), **hyperparameters}, *adamw.param_groups], {})
        self._counts, self._adamw = matrices, adamw
        self.found_inf: Tensor | None = None  # a scalar on the device; a step changes nothing where it is above zero

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch's overloads describe closures
        """Updates the parameters from their gradients; the learning rate of the matrices is `lr` x `lr_ratio`."""
        assert closure is None
        # AdamW uses the state of this object, because this object is saved and loaded
        self._adamw.state, self._adamw.param_groups = self.state, self.param_groups[1:]
        self._adamw.found_inf = self.found_inf  # type: ignore[attr-defined]  # read by torch's fused kernels
        self._adamw.step()
        group = self.param_groups[0]
        parameters = [p for p in group["params"] if p.grad is not None]
        if parameters:
            self._update_matrices(parameters, group)

    def _update_matrices(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        momentum, rate = group["momentum"], torch.tensor(group["lr"] * group["lr_ratio"])
        grads = [p.grad for p in parameters if p.grad is not None]
        for parameter in parameters:
            if parameter not in self.state:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        momenta = [self.state[p]["momentum_buffer"] for p in parameters]
        if self.found_inf is not None:
            # A gradient equal to the momentum leaves the momentum unchanged, a rate of zero the weights.
            skip = self.found_inf > 0
            grads = [torch.where(skip, m, g) for m, g in zip(momenta, grads, strict=True)]
            rate = torch.where(skip, 0.0, group["lr"] * group["lr_ratio"])
        torch._foreach_lerp_(momenta, grads, 1 - momentum)
        directions = torch._foreach_lerp(grads, momenta, momentum)  # Nesterov momentum
        torch._foreach_mul_(parameters, 1 - rate * group["weight_decay"])
        orthogonal = orthogonal_directions(directions, [self._counts[p] for p in parameters])
        for parameter, update in zip(parameters, orthogonal, strict=True):
            num_rows, n, num_columns = update.shape
            scale = SCALE * max(num_rows, num_columns) ** 0.5
            parameter.unflatten(1, (n, num_columns)).addcmul_(update, -rate * scale)


def orthogonal_directions(directions: Sequence[Tensor], counts: Sequence[int]) -> list[Tensor]:
    """Splits each direction (rows, n * columns) into n = counts[i] orthogonalized matrices: (rows, n, columns).

    Matrices of equal shape go through Newton-Schulz in one batch, which needs fewer kernel launches.
    """
    split = [d.unflatten(1, (n, -1)).transpose(0, 1) for d, n in zip(directions, counts, strict=True)]
    by_shape: dict[torch.Size, list[int]] = {}
    for i, matrices in enumerate(split):  # (n, rows, columns)
        by_shape.setdefault(matrices.shape[1:], []).append(i)
    orthogonal = list(split)
    for shape, members in by_shape.items():
        sizes = [counts[i] for i in members]
        like = directions[members[0]]
        stack = like.new_empty(sum(sizes), *shape, dtype=torch.bfloat16 if like.is_cuda else like.dtype)
        for i, target in zip(members, stack.split(sizes), strict=True):
            target.copy_(split[i])
        for i, matrices in zip(members, newton_schulz(stack).split(sizes), strict=True):
            orthogonal[i] = matrices
    return [matrices.transpose(0, 1) for matrices in orthogonal]


def newton_schulz(matrices: Tensor) -> Tensor:
    """Approximates U V^T, from the singular value decomposition U S V^T, of each of the matrices (N, rows, columns).

    The singular values end near 1. On CUDA the caller passes bfloat16, whose error is far below the distance from 1
    that five iterations leave. On a CPU it passes float32, because most CPUs emulate bfloat16 slowly and a result must
    not depend on the model of the CPU.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices  # the product with its transpose is then the smaller one
    norms = torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True, dtype=torch.float32)
    x = x * (1 / (norms + EPSILON)).to(x.dtype)
    kernel = find_kernel("newton_schulz", x.device.type, str(x.dtype).removeprefix("torch."))
    x = _iterate(x) if kernel is None else kernel(x, COEFFICIENTS, NUM_ITERATIONS)
    return x.mT if is_tall else x


def _iterate(x: Tensor) -> Tensor:
    a, b, c = COEFFICIENTS
    for _ in range(NUM_ITERATIONS):
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x
