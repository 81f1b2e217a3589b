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
        grads = [p.grad for p in parameters if p.grad is not None]
        for parameter in parameters:
            if parameter not in self.state:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        old_momenta = [self.state[p]["momentum_buffer"] for p in parameters]
        momenta = torch._foreach_lerp(old_momenta, grads, 1 - group["momentum"])
        directions = torch._foreach_lerp(grads, momenta, group["momentum"])  # Nesterov: a look one step ahead
        updates = orthogonal_updates(directions, [self._counts[p] for p in parameters])
        rate = group["lr"] * group["lr_ratio"]
        weights = torch._foreach_mul(parameters, 1 - rate * group["weight_decay"])
        torch._foreach_add_(weights, updates, alpha=-rate)
        for old, new in zip([*old_momenta, *parameters], [*momenta, *weights], strict=True):
            old.copy_(new if self.found_inf is None else torch.where(self.found_inf > 0, old, new))


def orthogonal_updates(directions: Sequence[Tensor], counts: Sequence[int]) -> list[Tensor]:
    """Each direction (R, n * S), which holds n = counts[i] matrices, with each matrix orthogonal and scaled.

    Matrices of equal shape go through Newton-Schulz together, because a step has few launches to spare.
    """
    by_shape: dict[torch.Size, list[int]] = {}
    stacks = [d.unflatten(1, (n, -1)).transpose(0, 1) for d, n in zip(directions, counts, strict=True)]  # (n, R, S)
    for number, stack in enumerate(stacks):
        by_shape.setdefault(stack.shape[1:], []).append(number)
    updates = list(directions)
    for shape, numbers in by_shape.items():
        orthogonal = newton_schulz(torch.cat([stacks[k] for k in numbers])) * (SCALE * max(shape) ** 0.5)  # (N, R, S)
        for k, update in zip(numbers, orthogonal.split([counts[k] for k in numbers]), strict=True):
            updates[k] = update.transpose(0, 1).flatten(1)  # (R, n * S)
    return updates


def newton_schulz(matrices: Tensor) -> Tensor:
    """For each of the matrices (N, R, S) about U V^T of its singular value decomposition: singular values near 1.

    On CUDA the products are bfloat16, whose error is far below the distance from 1 that five iterations leave. On a
    CPU they are float32: most CPUs emulate bfloat16 slowly, and a run must not depend on which CPU it is on.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices  # the product with its transpose is then the small one
    x = x / (torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) + TINY)
    x = x.bfloat16() if x.is_cuda else x
    for _ in range(NUM_ITERATIONS):
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return (x.mT if is_tall else x).to(matrices.dtype)
