"""Muon for the matrices of a biLM, AdamW for everything else (Jordan et al. 2024; scale of Liu et al. 2025).

Muon replaces a matrix's momentum by the nearest orthogonal matrix, so that every direction of the matrix learns at the
same speed. Between `optim`, which chooses the optimizer, and `step`, which calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmo.model.lstm import ProjectedLSTM
from elmo.model.token_encoder import Highway, TokenEncoder

NUM_GATES = 4  # matrices side by side in an LSTM kernel, (2P, 4H)
NUM_ITERATIONS = 5
A, B, C = 3.4445, -4.7750, 2.0315  # x -> A x + B x^3 + C x^5 moves singular values of 0.01 to 1 close to 1
SCALE = 0.2  # gives an update the root mean square of AdamW's, so both halves share one learning rate
TINY = 1e-7  # keeps a gradient of zero at zero


def matrix_parameters(model: nn.Module) -> dict[Tensor, int]:
    """The parameters that Muon updates, each with the number of matrices that lie side by side in its columns.

    These are the LSTM kernels (input and recurrent rows together, four gates), the LSTM projections, both matrices of
    each highway, and the token projection. Tables, convolutions, the softmax and all vectors are left to AdamW.
    """
    found: dict[Tensor, int] = {}
    for module in model.modules():
        if isinstance(module, ProjectedLSTM):
            found[module.kernel] = NUM_GATES
            if module.projection is not None:
                found[module.projection] = 1
        elif isinstance(module, Highway):
            found |= {module.transform.weight: 1, module.carry.weight: 1}
        elif isinstance(module, TokenEncoder) and module.project is not None:
            found[module.project.weight] = 1
    return {parameter: count for parameter, count in found.items() if parameter.requires_grad}


class Muon(torch.optim.Optimizer):
    """One optimizer with two halves: `matrices` (see `matrix_parameters`) by Muon, the parameters of `adamw` by AdamW.

    torch.optim.Muon is not used because it takes the four gates of a kernel as one matrix, launches its iteration for
    every parameter by itself, and does not know `found_inf`. `adamw` must be fused, because only torch's fused kernels
    know it. Parameters without a gradient are skipped. Nothing here waits for the device. The state has torch's own
    form: "momentum_buffer" of a matrix, AdamW's two averages and step of the rest.
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
        self.found_inf: Tensor | None = None  # a scalar on the device: above zero, a step changes nothing

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch's overloads describe closures
        """The update from the parameters' gradients; the matrices' rate is `lr` x `lr_ratio`."""
        assert closure is None
        # AdamW works on the state of this object, which is what is saved and loaded
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
            # A gradient equal to the momentum leaves the momentum as it is; a rate of zero does so with the weights.
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
    """Each direction (rows, n * columns) as its n = counts[i] matrices, made orthogonal: (rows, n, columns).

    Matrices of equal shape go through Newton-Schulz together, because a step has few launches to spare.
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
    """For each of the matrices (N, rows, columns) about U V^T of its singular value decomposition.

    The singular values end near 1. On CUDA the caller passes bfloat16, whose error is far below the distance from 1
    that five iterations leave. On a CPU it passes float32, because most CPUs emulate bfloat16 slowly and a run must not
    depend on the model of the CPU.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices  # the product with its transpose is then the small one
    norms = torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True, dtype=torch.float32)
    x = x * (1 / (norms + TINY)).to(x.dtype)
    for _ in range(NUM_ITERATIONS):
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.mT if is_tall else x
