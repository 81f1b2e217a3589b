"""The token encoder in training on the CPU through the compiled kernels: one call forward and one backward.

It computes what `elmo.model.token_encoder.TokenEncoder` computes, in float32 or with the products of highways and
projection in bfloat16; weights, sums and gradients are float32. Each element of a result is summed in a fixed order, so
the number of threads does not change any bit. Word vectors are looked up by PyTorch and passed to the call as features.
"""

from __future__ import annotations

import ctypes
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from elmo.kernels.cpu.abi import DTYPES, check, empty, why_not_trainable
from elmo.kernels.cpu.gradient_memory import GradientMemory
from elmo.kernels.cpu.native import NativeBiLM
from elmo.kernels.cpu.train_encoder_task import Words, Workspace, load_encoder, make_task, parameters_of
from elmo.model.bilm import BiLM
from elmo.model.token_encoder import TokenEncoder

CHUNK_WORDS = 1024  # of a call without gradients, whose intermediate results then need little memory


def supports(model: BiLM) -> str | None:
    """Why the kernels cannot train this model's token encoder; None: they can."""
    return why_not_trainable(model.token_encoder.parameters()) or NativeBiLM.supports(model)


class TrainingEncoder:
    """The token encoder with gradients. It keeps the memory of a step for the next step of the same network."""

    def __init__(self, dtype: str) -> None:
        self._dtype = DTYPES[dtype]
        self._library = load_encoder()
        self._free: WeakKeyDictionary[TokenEncoder, list[Workspace]] = WeakKeyDictionary()
        self._gradients: WeakKeyDictionary[TokenEncoder, GradientMemory] = WeakKeyDictionary()

    def __call__(self, network: TokenEncoder, ids: Tensor) -> Tensor:
        """Token vectors (N, P) float32 of rows of ids (N, W), as `network(ids)` computes them."""
        features = empty(len(ids), 0)
        if network.words is not None:
            features = F.embedding(ids[:, -1], F.pad(network.words, (0, 0, 1, 0)))  # (N, word_dim); id 0 is padding
            ids = ids[:, :-1]
        ids = ids.int().contiguous()  # (N, C)
        if network.chars is not None and ids.shape[1] < network.chars.widest:
            raise ValueError(f"rows of {ids.shape[1]} characters are shorter than a filter of {network.chars.widest}")
        parameters = [parameter.contiguous() for parameter in parameters_of(network)]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (features, *parameters)):
            vectors: Tensor = _Encode.apply(self, network, ids, features, *parameters)  # type: ignore[no-untyped-call]  # of torch
            return vectors
        parts = []
        for some_ids, some_features in zip(ids.split(CHUNK_WORDS), features.split(CHUNK_WORDS), strict=True):
            part, workspace = self.forward(network, some_ids, some_features, parameters)
            self._free[network].append(workspace)
            parts.append(part)
        return torch.cat(parts)  # (N, P)

    def forward(
        self, network: TokenEncoder, ids: Tensor, features: Tensor, parameters: list[Tensor]
    ) -> tuple[Tensor, Workspace]:
        """Token vectors (N, P), and the memory that `backward` needs."""
        features = features.contiguous()
        task = make_task(network, ids, features.shape[1], parameters)
        out = empty(len(ids), task.out_dim)
        task.features, task.out = features.data_ptr(), out.data_ptr()
        free = self._free.setdefault(network, [])
        try:
            workspace = free.pop()
        except IndexError:
            workspace = Workspace(self._library)
        try:
            self._call(self._library.elmo_train_encoder_forward, task, workspace)
        except IndexError as error:
            seen = f"character ids from {ids.min()} to {ids.max()}; the model has 0 to {task.num_chars}"
            raise IndexError(seen) from error
        return out, workspace

    def backward(
        self, network: TokenEncoder, ids: Tensor, parameters: list[Tensor], d_out: Tensor, workspace: Workspace
    ) -> tuple[Tensor, list[Tensor]]:
        """The gradients of the features (N, word_dim) and of the parameters. The memory is free afterwards."""
        d_out = d_out.float().contiguous()
        d_features = empty(len(ids), 0 if network.words is None else network.words.shape[1])
        memory = self._gradients.setdefault(network, GradientMemory())
        gradients = [memory.empty_like(parameter) for parameter in parameters]
        if network.chars is not None:
            gradients[0].zero_()  # the call writes only the rows of characters that occur
        task = make_task(network, ids, d_features.shape[1], parameters, gradients)
        task.d_out, task.d_features = d_out.data_ptr(), d_features.data_ptr()
        self._call(self._library.elmo_train_encoder_backward, task, workspace)
        self._free.setdefault(network, []).append(workspace)
        return d_features, gradients

    def _call(self, function: Any, task: Words, workspace: Workspace) -> None:
        task.dtype, task.num_threads = self._dtype, torch.get_num_threads()
        check(function(ctypes.byref(task), workspace.pointer))


class _Encode(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kernel: TrainingEncoder, network: TokenEncoder, ids: Tensor, features: Tensor, *parameters: Tensor
    ) -> Tensor:
        out, ctx.workspace = kernel.forward(network, ids, features, list(parameters))
        ctx.kernel, ctx.network = kernel, network
        ctx.save_for_backward(ids, *parameters)  # torch checks that the weights have not changed in the meantime
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        ids, *parameters = ctx.saved_tensors
        workspace, ctx.workspace = ctx.workspace, None
        if workspace is None:
            raise RuntimeError("a second backward pass through the same token vectors; compute them once per pass")
        d_features, gradients = ctx.kernel.backward(ctx.network, ids, parameters, d_out, workspace)
        needed = zip(ctx.needs_input_grad[3:], (d_features, *gradients), strict=True)
        return None, None, None, *(gradient if is_needed else None for is_needed, gradient in needed)
