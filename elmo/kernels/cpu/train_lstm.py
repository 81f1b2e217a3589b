"""LSTM stacks in training on the CPU through the compiled kernels (train_lstm.h), forward and backward.

It is the fast implementation of `elmo.model.stacks.run_stacks_plain`. The memory that a backward pass needs is a tape
of the library. It is reused after its backward pass, because new memory of this size costs as much time as a layer.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_float, c_int64, c_void_p
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmo.kernels.cpu.abi import DTYPES, check, clip_limit, load, why_not_trainable
from elmo.kernels.cpu.gradient_memory import GradientMemory
from elmo.model.bilm import BiLM
from elmo.model.lstm import LSTMStack, ProjectedLSTM, State


class StackCall(Structure):
    """`StackCall` of train_lstm.h, field by field."""

    _fields_ = [
        *((name, c_int64) for name in ("num_directions", "num_layers", "num_steps", "num_rows")),
        *((name, c_int64) for name in ("proj_dim", "cell_dim", "dtype")),
        ("cell_clip", c_float), ("proj_clip", c_float), ("forget_bias", c_float), ("skip", c_int64),
        *((name, POINTER(c_void_p)) for name in ("kernels", "biases", "projections")),
        *((name, c_void_p) for name in ("x", "resets", "dropout", "initial_h", "initial_c")),
        *((name, c_void_p) for name in ("layers", "final_h", "final_c", "d_layers", "d_x")),
        *((name, POINTER(c_void_p)) for name in ("d_kernels", "d_biases", "d_projections")),
        ("num_threads", c_int64),
    ]  # fmt: skip


class TrainStacks:
    """Runs the LSTM stacks of one model in training; `dtype` is that of the products, all else is float32.

    The values of a row do not depend on the other rows, and no value depends on the number of threads.
    """

    def __init__(self, dtype: str = "float32") -> None:
        self.dtype = dtype
        self.gradients = GradientMemory()
        self._tapes: list[_Tape] = []  # not in use

    @staticmethod
    def supports(model: BiLM) -> str | None:
        """Why the kernels cannot train this model; None: they can."""
        layers = [layer for stack in model.stacks for layer in cast(LSTMStack, stack).layers]
        if any(cast(ProjectedLSTM, layer).projection is None for layer in layers):
            return "the compiled training kernels need LSTM layers with a projection, and this model has none"
        return why_not_trainable(model.stacks.parameters())

    def __call__(
        self, stacks: nn.ModuleList, x: Tensor, state: State, fresh: Tensor | None, dropout: float
    ) -> tuple[Tensor, State]:
        """Top outputs (R, B, T, P) of token vectors x (R, B, T, P), and the final states; see `run_stacks_plain`."""
        first = cast(LSTMStack, stacks[0])
        dropout = dropout if first.training else 0.0
        factors = None
        if dropout:
            x, factors = _drop(x, dropout, len(first.layers))
        resets = None if fresh is None else fresh.transpose(1, 2)  # (R, T, B)
        layers, after = self.layers(stacks, x.transpose(1, 2), state, resets, factors)
        # contiguous as the plain result is, because dropout draws its random numbers in the order of memory
        return layers[:, -1].transpose(1, 2).contiguous(), after

    def layers(
        self,
        stacks: nn.ModuleList,
        x: Tensor,
        state: State,
        resets: Tensor | None = None,
        factors: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Outputs of all layers (R, L, T, B, P) of token vectors x (R, T, B, P), and the states after the last step.

        `state` is h (R, L, B, P), c (R, L, B, H), without gradients; `resets` (R, T, B) is true where a row's state is
        reset before a step; `factors` (R, L - 1, T, B, P) multiply the inputs of the upper layers.
        """
        modules = [cast(ProjectedLSTM, layer) for stack in stacks for layer in cast(LSTMStack, stack).layers]
        first, skip = modules[0], cast(LSTMStack, stacks[0]).skip
        weights: list[Tensor] = [*(layer.kernel for layer in modules), *(layer.bias for layer in modules)]
        weights += [cast(Tensor, layer.projection) for layer in modules]
        num_directions, num_steps, num_rows, proj_dim = x.shape
        call = StackCall(
            num_directions=num_directions, num_layers=len(modules) // num_directions, num_steps=num_steps,
            num_rows=num_rows, proj_dim=proj_dim, cell_dim=state.c.shape[-1], dtype=DTYPES[self.dtype],
            cell_clip=clip_limit(first.cell_clip), proj_clip=clip_limit(first.proj_clip), forget_bias=first.forget_bias,
            skip=skip,
        )  # fmt: skip
        resets = None if resets is None else resets.to(torch.uint8).contiguous()
        needs_tape = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *weights))
        run: Any = _Run.apply
        tensors = x.float(), state.h.float(), state.c.float(), *weights
        out, h, c = run(self, call, needs_tape, resets, factors, *tensors)
        return out.to(x.dtype), State(h.to(state.h.dtype), c.to(state.c.dtype))

    def take_tape(self, call: StackCall) -> _Tape:
        """A tape that is not in use."""
        try:
            return self._tapes.pop()
        except IndexError:
            return _Tape(call)

    def give_back(self, tape: _Tape) -> None:
        """Makes a tape available for the next call."""
        self._tapes.append(tape)


class _Tape:
    """Memory of one forward and backward pass in the library; freed with the object."""

    def __init__(self, call: StackCall) -> None:
        self._library = load()
        self._library.elmo_tape_new.restype = c_void_p
        self._library.elmo_tape_drop.argtypes = [c_void_p]
        for name in ("elmo_stacks_forward", "elmo_stacks_backward"):
            getattr(self._library, name).argtypes = [c_void_p, POINTER(StackCall)]
        self._pointer = self._library.elmo_tape_new(ctypes.byref(call))
        if not self._pointer:
            raise MemoryError("no memory to train the LSTM layers")

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            self._library.elmo_tape_drop(self._pointer)

    def forward(self, call: StackCall) -> None:
        try:
            check(self._library.elmo_stacks_forward(self._pointer, ctypes.byref(call)))
        except IndexError as error:
            raise ValueError("one TrainStacks runs stacks of one shape, and these have another") from error

    def backward(self, call: StackCall) -> None:
        check(self._library.elmo_stacks_backward(self._pointer, ctypes.byref(call)))


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, owner: TrainStacks, call: StackCall, needs_tape: bool, resets: Tensor | None, mask: Tensor | None,
        x: Tensor, h: Tensor, c: Tensor, *weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        x, h, c = x.contiguous(), h.contiguous(), c.contiguous()
        mask = None if mask is None else mask.float().contiguous()  # ctx.tensors keeps it alive
        weights = tuple(weight.contiguous() for weight in weights)
        final_h, final_c = torch.empty_like(h), torch.empty_like(c)
        layers = x.new_empty(x.shape[0], call.num_layers, *x.shape[1:])  # (R, L, T, B, P)
        call.x, call.initial_h, call.initial_c = x.data_ptr(), h.data_ptr(), c.data_ptr()
        call.resets = None if resets is None else resets.data_ptr()
        call.dropout = None if mask is None else mask.data_ptr()
        call.layers, call.final_h, call.final_c = layers.data_ptr(), final_h.data_ptr(), final_c.data_ptr()
        call.kernels, call.biases, call.projections = _pointers(weights)
        call.num_threads = torch.get_num_threads()
        tape = owner.take_tape(call)
        tape.forward(call)
        ctx.owner, ctx.call, ctx.tape, ctx.tensors = owner, call, tape, (resets, mask)
        ctx.save_for_backward(*weights)
        ctx.mark_non_differentiable(final_h, final_c)
        if not needs_tape:  # not ctx.needs_input_grad, which is also true in inference mode
            ctx.tape = None
            owner.give_back(tape)
        return layers, final_h, final_c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        tape, call = ctx.tape, ctx.call
        if tape is None:
            raise RuntimeError("the backward pass of the LSTM stacks runs once; its memory has been reused")
        ctx.tape = None
        weights = ctx.saved_tensors
        d_layers = grads[0].contiguous()  # (R, L, T, B, P)
        d_x = torch.empty_like(d_layers[:, 0])
        d_weights = tuple(ctx.owner.gradients.empty_like(weight) for weight in weights)
        call.kernels, call.biases, call.projections = _pointers(weights)
        call.d_kernels, call.d_biases, call.d_projections = _pointers(d_weights)
        call.d_layers, call.d_x = d_layers.data_ptr(), d_x.data_ptr()
        call.num_threads = torch.get_num_threads()
        tape.backward(call)
        ctx.owner.give_back(tape)
        return None, None, None, None, None, d_x, None, None, *d_weights


def _pointers(tensors: tuple[Tensor, ...]) -> list[Any]:
    """Three arrays of pointers, from the tensors of all layers one kind after the other."""
    count = len(tensors) // 3
    return [(c_void_p * count)(*(t.data_ptr() for t in tensors[i : i + count])) for i in range(0, len(tensors), count)]


def _drop(x: Tensor, dropout: float, num_layers: int) -> tuple[Tensor, Tensor | None]:
    """x (R, B, T, P) after dropout, and the factors of the inputs of the upper layers, (R, L - 1, T, B, P).

    The random numbers are drawn in the order of the plain implementation: direction by direction, layer by layer.
    """
    inputs, factors = [], []
    for row in x:  # (B, T, P)
        inputs.append(nn.functional.dropout(row, dropout))
        for _ in range(num_layers - 1):
            factors.append(nn.functional.dropout(x.new_ones(row.shape, dtype=torch.float32), dropout).transpose(0, 1))
    return torch.stack(inputs), torch.stack(factors).unflatten(0, (len(x), -1)) if factors else None
