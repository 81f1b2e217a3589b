"""The C interface of the token encoder in training (train_encoder.h): its structures, filled from a network."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int64, c_void_p

import torch
from torch import Tensor

from elmo.kernels.cpu.abi import load
from elmo.model.token_encoder import Highway, TokenEncoder


class Linear(Structure):
    """`Linear` of train_encoder.h, field by field."""

    _fields_ = [(name, c_void_p) for name in ("weight", "bias", "d_weight", "d_bias")]


class Convolution(Structure):
    """`Convolution` of train_encoder.h, field by field."""

    _fields_ = [*Linear._fields_, ("width", c_int64), ("count", c_int64)]


class HighwayPair(Structure):
    """`Highway` of train_encoder.h, field by field."""

    _fields_ = [("transform", Linear), ("carry", Linear)]


class Words(Structure):
    """`Words` of train_encoder.h, field by field."""

    _fields_ = [
        ("ids", c_void_p), ("num_words", c_int64), ("columns", c_int64),
        ("features", c_void_p), ("d_features", c_void_p), ("feature_dim", c_int64),
        ("table", c_void_p), ("d_table", c_void_p), ("num_chars", c_int64), ("char_dim", c_int64),
        ("convolutions", POINTER(Convolution)), ("num_convolutions", c_int64), ("num_filters", c_int64),
        ("tanh", c_int64), ("highways", POINTER(HighwayPair)), ("num_highways", c_int64),
        ("projection", POINTER(Linear)), ("out_dim", c_int64), ("out", c_void_p), ("d_out", c_void_p),
        ("dtype", c_int64), ("num_threads", c_int64),
    ]  # fmt: skip


def load_encoder() -> ctypes.CDLL:
    """The compiled library, with the types of the functions of this interface."""
    library = load()
    for function in (library.elmo_train_encoder_forward, library.elmo_train_encoder_backward):
        function.argtypes = [POINTER(Words), c_void_p]
    library.elmo_train_encoder_workspace.restype = c_void_p
    library.elmo_train_encoder_drop.argtypes = [c_void_p]
    return library


class Workspace:
    """Memory of the library for one forward call and its backward call; freed with the object."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.pointer: int = library.elmo_train_encoder_workspace()
        if not self.pointer:
            raise MemoryError("no memory for the token encoder")

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._library.elmo_train_encoder_drop(self.pointer)


def parameters_of(network: TokenEncoder) -> list[Tensor]:
    """The parameters that a call reads, in the order of `make_task`: all but the table of word vectors."""
    parameters: list[Tensor] = []
    if network.chars is not None:
        parameters += [network.chars.table]
        parameters += network.chars.convolutions.parameters()
        for highway in network.chars.highways:
            assert isinstance(highway, Highway)
            parameters += [highway.transform.weight, highway.transform.bias, highway.carry.weight, highway.carry.bias]
    if network.project is not None:
        parameters += [network.project.weight, network.project.bias]
    return parameters


def make_task(
    network: TokenEncoder,
    ids: Tensor,
    feature_dim: int,
    parameters: list[Tensor],
    gradients: list[Tensor] | None = None,
) -> Words:
    """The task of a call. It holds addresses of the tensors, not references to them."""
    task = Words(ids=ids.data_ptr(), num_words=len(ids), columns=ids.shape[1], feature_dim=feature_dim)
    task.out_dim = feature_dim
    pairs = [(parameter.data_ptr(), 0) for parameter in parameters]
    if gradients is not None:
        pairs = [(address, gradient.data_ptr()) for (address, _), gradient in zip(pairs, gradients, strict=True)]
    place = 0

    def take_linear() -> dict[str, int]:
        nonlocal place
        (weight, d_weight), (bias, d_bias) = pairs[place : place + 2]
        place += 2
        return {"weight": weight, "bias": bias, "d_weight": d_weight, "d_bias": d_bias}

    chars = network.chars
    if chars is not None:
        task.table, task.d_table = pairs[place]
        place += 1
        task.num_chars, task.char_dim = chars.table.shape
        convolutions = []
        for convolution in chars.convolutions:
            assert isinstance(convolution, torch.nn.Conv1d)
            width, count = convolution.kernel_size[0], convolution.out_channels
            convolutions.append(Convolution(**take_linear(), width=width, count=count))
        highways = [HighwayPair(Linear(**take_linear()), Linear(**take_linear())) for _ in chars.highways]
        task.convolutions = (Convolution * len(convolutions))(*convolutions)
        task.num_convolutions, task.num_filters = len(convolutions), sum(c.count for c in convolutions)
        task.highways, task.num_highways = (HighwayPair * len(highways))(*highways), len(highways)
        task.tanh = int(chars.activation is torch.tanh)
        task.out_dim += task.num_filters
    if network.project is not None:
        task.projection = ctypes.pointer(Linear(**take_linear()))
        task.out_dim = network.project.out_features
    return task
