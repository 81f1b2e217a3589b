"""Reads state dicts written by torch.save as data: no code in the file is run, and allocations are bounded.

AllenNLP and ELMoForManyLangs store their weights this way. Files are read with torch's restricted unpickler only, on
torch versions where it is safe, and never memory-mapped. The checksums of a zip file are verified first. The result is
accepted only if it consists of dense tensors that are together no larger than the file.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from elmo.errors import WeightsError
from elmo.weights.memory_bound import claim, memory_bound

_OLDEST_TORCH = (2, 6)  # in older versions, a file could run code despite weights_only
_DAMAGED = "The file is truncated, damaged, or not a model: compare its size or checksum with the source."


def read_state_dict(
    source: Path | IO[bytes], name: str, select: Callable[[str], bool] | None = None
) -> dict[str, np.ndarray]:
    """The tensors of a torch-saved state dict as arrays (bfloat16 as float32); `select` restricts their names.

    A state dict one level down, as in {"model": state dict}, is accepted too. `name` names the file in errors.
    """
    if isinstance(source, Path):
        try:
            with memory_bound(source), open(source, "rb") as file:
                return read_state_dict(file, name, select)
        except OSError as error:
            raise WeightsError(f"{name}: cannot be read ({error.strerror or error}).") from error
    num_bytes = source.seek(0, 2)
    source.seek(0)
    with memory_bound(Path(name), size=num_bytes):
        claim(num_bytes, name)
    _check_zip(source, name, num_bytes)
    state = _find_tensors(_load(source, name), name)
    selected = {key: value for key, value in state.items() if select is None or select(key)}
    total = 0
    for key, value in selected.items():
        _check_tensor(value, f"{name}: '{key}'")
        total += value.numel() * value.element_size()
    if total > num_bytes:
        raise WeightsError(f"{name} has {num_bytes:,} bytes and claims {total:,} bytes of tensors.", _DAMAGED)
    return {key: _array(value) for key, value in selected.items()}


def _check_zip(file: IO[bytes], name: str, num_bytes: int) -> None:
    """Checks sizes and checksums of the newer format, a zip of uncompressed members, because torch does not."""
    magic = file.read(4)
    file.seek(0)
    if magic != b"PK\x03\x04":
        return  # the older format: a sequence of pickles
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise WeightsError(f"{name} has compressed members, which torch.save never writes.", _DAMAGED)
            if sum(member.file_size for member in members) > num_bytes:
                raise WeightsError(f"{name} claims more bytes than it has.", _DAMAGED)
            broken = archive.testzip()
    except WeightsError:
        raise
    except Exception as error:  # zipfile raises many kinds of exceptions for damaged files
        raise WeightsError(f"{name} cannot be read as a torch file ({_reason(error)}).", _DAMAGED) from error
    if broken is not None:
        raise WeightsError(f"{name}: its member '{broken}' does not match its checksum.", _DAMAGED)
    file.seek(0)


def _load(file: IO[bytes], name: str) -> Any:
    import torch

    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < _OLDEST_TORCH:
        raise WeightsError(
            f"{name} is a pickle, and torch {torch.__version__} cannot read pickles safely.",
            "Install torch 2.6 or newer, or convert the model on a machine that has it.",
        )
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=False)
    except Exception as error:  # torch raises many kinds of exceptions for damaged and hostile files
        raise WeightsError(f"{name} is not a plain file of tensors ({_reason(error)}).", _DAMAGED) from error


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _find_tensors(loaded: Any, name: str) -> dict[str, Any]:
    import torch

    candidates = [loaded, *loaded.values()] if isinstance(loaded, Mapping) else []
    for candidate in candidates:
        if isinstance(candidate, Mapping):
            tensors = {key: value for key, value in candidate.items() if isinstance(value, torch.Tensor)}
            if tensors and all(isinstance(key, str) for key in tensors):
                return tensors
    raise WeightsError(f"{name} holds no named tensors (it is a {type(loaded).__name__}).", _DAMAGED)


def _check_tensor(value: Any, name: str) -> None:
    import torch

    floats = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    if value.layout != torch.strided or value.device.type != "cpu" or value.dtype not in floats:
        raise WeightsError(f"{name} is {value.dtype} {value.layout}, expected a dense tensor of floats.", _DAMAGED)


def _array(value: Any) -> np.ndarray:
    import torch

    value = value.detach()
    array: np.ndarray = (value.float() if value.dtype == torch.bfloat16 else value).contiguous().numpy().copy()
    return array
