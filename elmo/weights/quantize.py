"""8-bit storage of matrices: integers from -127 to 127 and one float scale per output of the matrix.

`store` uses this for its safetensors files. A weight w of output o is stored as round(w / scale[o]), where scale[o] is
the output's largest |w| / 127, rounded up to 17 significant bits. 127 times such a scale is exact in float32, and so is
every smaller product: reading is exact, and a model that was read is stored again as the same bytes.
Scales belong to outputs, not to inputs, because an output is one dot product and its error then depends on its own
weights only.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from elmo.errors import ConfigError, WeightsError

SCALE = ".scale"  # suffix of a quantised tensor's name
MAX_VALUE = 127  # largest |value|; -128 is never written
_SMALLEST = (
    MAX_VALUE * 2.0**-126
)  # an output with only smaller weights is stored as zeros: its scale would not be exact
_SPARE_BITS = 0x7F  # low bits of a scale that are zero, so that the product with a 7-bit number is exact


def pack(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as `int8` storage holds them: matrices quantised, convolutions in float16, vectors in float32."""
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() == 1:
            packed[name] = tensor.float()
        elif tensor.dim() != 2 or name.endswith("chars.table"):
            packed[name] = tensor.to(torch.float16)  # 1% of a model's numbers
        else:
            packed[name], packed[name + SCALE] = quantize(tensor, output_dim(name), name)
    return packed


def unpack(stored: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """All tensors as float32, with exactly the values that `pack` stored; invalid scales are errors."""
    tensors = {}
    for name, tensor in stored.items():
        if tensor.dtype == torch.int8:
            tensors[name] = dequantize(tensor, stored.get(name + SCALE), output_dim(name), f"{source}: {name!r}")
        elif not name.endswith(SCALE):
            tensors[name] = tensor.float()
        elif stored.get(name.removesuffix(SCALE), tensor).dtype != torch.int8:
            raise WeightsError(f"{source}: {name!r} has no 8-bit tensor to scale.", "The file is damaged.")
    return tensors


def output_dim(name: str) -> int:
    """The dimension of a matrix that counts its outputs: columns in LSTM kernels and projections, rows elsewhere."""
    return 1 if name.endswith((".kernel", ".projection")) else 0


def quantize(matrix: Tensor, dim: int, name: str = "the matrix") -> tuple[Tensor, Tensor]:
    """The matrix in int8 and the scales of its outputs in float32; no weight changes by more than half its scale."""
    largest = matrix.abs().amax(dim=1 - dim).float()  # (outputs,)
    if not bool(torch.isfinite(largest).all()):
        raise ConfigError(f"{name!r} has values that are NaN or infinite.", "Store the model as float32.")
    scale = _round_up(torch.where(largest < _SMALLEST, 0.0, largest / MAX_VALUE))  # (outputs,)
    if not bool(torch.isfinite(scale * MAX_VALUE).all()):
        raise ConfigError(f"{name!r} has values too large for int8.", "Store the model as float32.")
    divisor = torch.where(scale > 0, scale, torch.inf).double().unsqueeze(1 - dim)
    return (matrix.double() / divisor).round_().clamp_(-MAX_VALUE, MAX_VALUE).to(torch.int8), scale


def dequantize(values: Tensor, scale: Tensor | None, dim: int, what: str) -> Tensor:
    """The float32 matrix; each product is exact for scales made by `quantize`."""
    outputs = (values.shape[dim],) if values.dim() == 2 else None
    if outputs is None or scale is None or tuple(scale.shape) != outputs or scale.dtype != torch.float32:
        scales = "none" if scale is None else f"{scale.dtype} {tuple(scale.shape)}"
        raise WeightsError(
            f"{what} holds int8 {tuple(values.shape)} with scales {scales}; expected a matrix and float32 {outputs}.",
            "The file is damaged or was not written by this package.",
        )
    if not bool((torch.isfinite(scale * MAX_VALUE) & (scale >= 0)).all()):
        raise WeightsError(f"{what} has scales that are negative, NaN or too large.", "Damaged: download it again.")
    integers, factor = values.numpy(), scale.unsqueeze(1 - dim).numpy()  # numpy: torch is eight times slower here
    if integers.size and int(integers.min()) < -MAX_VALUE:
        raise WeightsError(
            f"{what} holds -128; values must be from -{MAX_VALUE} to {MAX_VALUE}.", "Damaged: download it again."
        )
    return torch.from_numpy(np.multiply(integers, factor, dtype=np.float32))


def _round_up(scale: Tensor) -> Tensor:
    # positive floats sort like their bit patterns, so this addition rounds up to the next pattern that ends in zeros
    bits = scale.contiguous().view(torch.int32)
    return ((bits + _SPARE_BITS) & ~_SPARE_BITS).view(torch.float32)
