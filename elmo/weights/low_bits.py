"""Storage of a softmax matrix in 4, 5 or 6 bits per weight: codes of levels, and one scale per group of columns.

`store` uses it for head.safetensors. The columns of a row are divided into groups of 64, and a weight w is stored as
the number of the level that is nearest to w / scale, where scale is the group's largest |w| in float16. The levels are
the same for all groups. They lie between -1 and 1, denser around 0: as a quantiser with the least squared error places
them for normally distributed weights. Because the outermost levels are exactly -1 and 1, the scale of a matrix that was
read is found again, and it is stored again as the same bytes.

    head.weight.codes    uint8 (bits, rows, columns / 8): the bits of the codes, eight columns per byte
    head.weight.scale    float16 (rows, groups)
    head.weight.levels   float32 (2^bits)
    head.weight.shape    int64 (2): rows, columns
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from elmo.errors import ConfigError, WeightsError
from elmo.model.config import HeadConfig

BITS = (4, 5, 6)
GROUP = 64  # columns per scale
PARTS = (".codes", ".scale", ".levels", ".shape")
_SPREAD = 0.42  # standard deviation of weights / largest |weight| of their group; the least error on trained softmaxes
_BLOCK = 8192  # rows that are converted at once
_DAMAGED = "The file is damaged: copy or download it again."


def check_bits(bits: int) -> None:
    """Raises ConfigError for a number of bits that is not supported."""
    if bits not in BITS:
        raise ConfigError(
            f"The softmax cannot be stored in {bits} bits.", f"Expected one of {', '.join(map(str, BITS))}."
        )


def check_head(head: HeadConfig | None, bits: int) -> None:
    """Raises ConfigError unless this softmax can be stored in so many bits."""
    check_bits(bits)
    if head is None:
        raise ConfigError(f"The model has no softmax to store in {bits} bits.", "Leave --head-bits out.")
    if head.kind != "softmax" or head.tied:
        raise ConfigError(
            f"Only a softmax with a matrix of its own can be stored in {bits} bits; this one is adaptive or tied.",
            "Leave --head-bits out.",
        )


@functools.cache
def make_levels(bits: int) -> Tensor:
    """The levels in ascending order, (2^bits,) float32.

    The best density of levels is proportional to the cube root of the density of the weights (Panter and Dite 1951);
    for a normal distribution that is a normal distribution with sqrt(3) times its deviation.
    """
    deviation = torch.tensor(3**0.5 * _SPREAD, dtype=torch.float64)
    top = torch.special.ndtr(1 / deviation)
    shares = torch.linspace(float(1 - top), float(top), 1 << bits, dtype=torch.float64)
    levels: Tensor = (torch.special.ndtri(shares) * deviation).float()
    levels[0], levels[-1] = -1.0, 1.0
    return levels


def pack_matrix(name: str, matrix: Tensor, bits: int) -> dict[str, Tensor]:
    """The tensors that store a matrix; no weight moves further than to the nearest level of its group."""
    check_bits(bits)
    num_rows, num_columns = matrix.shape
    levels = make_levels(bits)
    borders = ((levels[1:] + levels[:-1]) / 2).numpy()
    codes = np.empty((bits, num_rows, -(-num_columns // 8)), dtype=np.uint8)
    scales = []
    for start in range(0, num_rows, _BLOCK):
        groups = _grouped(matrix[start : start + _BLOCK].float())  # (rows, groups, GROUP)
        scale = groups.abs().amax(dim=2).to(torch.float16)  # (rows, groups)
        if not bool(torch.isfinite(scale).all()):
            hint = "Store the model as float32."
            raise ConfigError(f"{name!r} has values that are NaN, infinite or too large for float16.", hint)
        divisor = torch.where(scale > 0, scale.float(), torch.inf).unsqueeze(2)
        block = np.searchsorted(borders, (groups / divisor).numpy()).astype(np.uint8)  # (rows, groups, GROUP)
        block = block.reshape(len(block), -1)[:, :num_columns]
        for bit in range(bits):
            codes[bit, start : start + _BLOCK] = np.packbits((block >> bit) & 1, axis=1)
        scales.append(scale)
    shape = torch.tensor([num_rows, num_columns])
    stored = (torch.from_numpy(codes), torch.cat(scales), levels.clone(), shape)
    return {name + part: tensor for part, tensor in zip(PARTS, stored, strict=True)}


def unpack_matrix(name: str, stored: Mapping[str, Tensor], bits: int, source: str) -> Tensor:
    """The float32 matrix: the product of level and scale for each weight. Inconsistent tensors are errors."""
    codes, scale, levels, (num_rows, num_columns) = _check(name, stored, bits, source)
    matrix = torch.empty((num_rows, num_columns), dtype=torch.float32)
    packed, table = codes.numpy(), levels.numpy()
    for start in range(0, num_rows, _BLOCK):
        planes = packed[:, start : start + _BLOCK]
        block = np.unpackbits(planes[0], axis=1, count=num_columns)  # (rows, columns)
        for bit in range(1, bits):
            block |= np.unpackbits(planes[bit], axis=1, count=num_columns) << bit
        factors = scale[start : start + _BLOCK].float().repeat_interleave(GROUP, dim=1)[:, :num_columns].numpy()
        matrix[start : start + _BLOCK] = torch.from_numpy(table[block] * factors)
    return matrix


def _grouped(rows: Tensor) -> Tensor:
    """The rows in groups of columns, (rows, groups, GROUP); the last group is padded with zeros."""
    padding = -rows.shape[1] % GROUP
    padded: Tensor = torch.nn.functional.pad(rows, (0, padding))
    return padded.reshape(len(rows), -1, GROUP)


def _check(
    name: str, stored: Mapping[str, Tensor], bits: int, source: str
) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:
    missing = [part for part in PARTS if name + part not in stored]
    if missing:
        raise WeightsError(f"{source}: {name + missing[0]!r} is missing.", _DAMAGED)
    codes, scale, levels, shape = (stored[name + part] for part in PARTS)
    if shape.dtype != torch.int64 or tuple(shape.shape) != (2,) or bool((shape < 1).any()):
        raise WeightsError(f"{source}: {name + '.shape'!r} is not a pair of positive numbers.", _DAMAGED)
    num_rows, num_columns = shape.tolist()
    expected = {
        ".codes": (torch.uint8, (bits, num_rows, -(-num_columns // 8))),
        ".scale": (torch.float16, (num_rows, -(-num_columns // GROUP))),
        ".levels": (torch.float32, (1 << bits,)),
    }
    for part, (dtype, size) in expected.items():
        tensor = stored[name + part]
        if tensor.dtype != dtype or tuple(tensor.shape) != size:
            found = f"{tensor.dtype} {tuple(tensor.shape)}"
            raise WeightsError(f"{source}: {name + part!r} holds {found}; expected {dtype} {size}.", _DAMAGED)
    if not bool((torch.isfinite(scale) & (scale >= 0)).all()):
        raise WeightsError(f"{source}: {name + '.scale'!r} has values that are negative, NaN or infinite.", _DAMAGED)
    if not bool((levels.abs() <= 1).all()):
        raise WeightsError(f"{source}: {name + '.levels'!r} has values outside -1 to 1.", _DAMAGED)
    return codes, scale, levels, (num_rows, num_columns)
