"""Reads weights.hdf5 of the published layout as an untrusted file, and writes it so that older tools can read it.

HDF5 files can refer to other files, declare terabytes in a kilobyte, and fail with many kinds of exceptions. Only
hard-linked, directly stored float datasets of the expected shape are read; anything else is a WeightsError.
"""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
from torch import Tensor

from elmo.errors import ElmoError, WeightsError
from elmo.files import atomic_file, check_regular
from elmo.model.config import BiLMConfig
from elmo.weights.memory_bound import claim, memory_bound
from elmo.weights.names import TensorSpec, from_published, match_names, tensor_specs, to_published

log = logging.getLogger(__name__)

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_FLOAT_BYTES = (2, 4, 8)  # either endianness
_MAX_NAMES = 10_000
_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
_SMALL_CHUNK = 1 << 20  # bytes; larger chunks must not be larger than their dataset
_HEAD = "softmax/"


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all datasets; their contents are not read."""
    with _opened(path) as file:
        return {name: tuple(dataset.shape) for name, dataset in _datasets(file, path).items()}


def read_hdf5(path: Path, config: BiLMConfig, *, head: bool = False) -> dict[str, Tensor]:
    """All tensors of a model except its softmax (with `head`: only its softmax), under our names, in float32."""
    with memory_bound(path), _opened(path) as file:
        datasets = {name: data for name, data in _datasets(file, path).items() if name.startswith(_HEAD) == head}
        shapes = {name: tuple(dataset.shape) for name, dataset in datasets.items()}
        matches = match_names(_specs(config, head), shapes, str(path))
        claim(sum(max(datasets[name].nbytes, 4 * datasets[name].size) for _, name in matches), path)
        return {spec.name: from_published(spec, _read(datasets[name], path)) for spec, name in matches}


def read_dataset(path: Path, name: str) -> np.ndarray | None:
    """One dataset as stored, in float32; None if the file has none of this name."""
    with memory_bound(path), _opened(path) as file:
        dataset = _datasets(file, path).get(name)
        if dataset is None:
            return None
        claim(max(dataset.nbytes, 4 * dataset.size), path)
        return _read(dataset, path).astype(np.float32)


def write_hdf5(path: Path, config: BiLMConfig, tensors: Mapping[str, Tensor], *, head: bool = False) -> None:
    """Writes the published layout without the softmax, as AllenNLP's files are; with `head`, only the softmax."""
    image = io.BytesIO()  # in memory: h5py crashes the process if the disk fills up while a file is open
    with h5py.File(image, "w", libver="earliest") as file:
        for spec in _specs(config, head):
            file.create_dataset(spec.published_name, data=_published_array(config, spec, tensors[spec.name]))
    with atomic_file(path) as partial:
        partial.write_bytes(image.getbuffer())


def _specs(config: BiLMConfig, head: bool) -> list[TensorSpec]:
    return [spec for spec in tensor_specs(config) if spec.published_name.startswith(_HEAD) == head]


def _published_array(config: BiLMConfig, spec: TensorSpec, tensor: Tensor) -> np.ndarray:
    """The array as bilm-tf stores it: readers of this layout add a forget bias of 1, so the stored bias excludes it."""
    array = to_published(spec, tensor.float())
    included = 1.0 - config.lstm.forget_bias
    if spec.name.endswith(".bias") and spec.name.startswith("stacks.") and included:
        forget = slice(2 * config.lstm.cell_dim, 3 * config.lstm.cell_dim)
        array = array.copy()
        array[forget] -= np.float32(included)
    return array


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    check_regular(path, WeightsError)
    try:
        with open(path, "rb") as file:
            magic = file.read(len(HDF5_MAGIC))
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error}).") from error
    if magic != HDF5_MAGIC:
        raise WeightsError(
            f"{path} is not an HDF5 file (it starts with {magic!r}).", "Check its name, or download it again."
        )
    try:
        with h5py.File(path, "r", locking=False) as opened:
            yield opened
    except ElmoError:
        raise
    except MemoryError as error:
        raise WeightsError(f"{path}: its weights do not fit into memory.") from error
    # h5py raises many kinds of exceptions for damaged files; callers get one
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, ArithmeticError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise WeightsError(f"{path}: damaged HDF5 file ({reason}).", "Download it again.") from error


def _datasets(file: h5py.File, path: Path) -> dict[str, h5py.Dataset]:
    """All datasets by full name; links to other places and cycles are errors."""
    datasets: dict[str, h5py.Dataset] = {}
    groups: list[tuple[str, h5py.Group]] = [("", file)]
    visited = {h5py.h5o.get_info(file.id).addr}
    while groups:
        prefix, group = groups.pop()
        for key in group:
            name = f"{prefix}{key}"
            if len(datasets) + len(visited) > _MAX_NAMES:
                raise WeightsError(f"{path} holds more than {_MAX_NAMES:,} names.", "A biLM has a few dozen.")
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise WeightsError(f"{path}: {name!r} is a link to another place.", "Links are not allowed in weights.")
            item = group[key]
            if isinstance(item, h5py.Group):
                address = h5py.h5o.get_info(item.id).addr
                if address in visited:
                    raise WeightsError(f"{path}: group {name!r} contains itself.")
                visited.add(address)
                groups.append((f"{name}/", item))
            elif isinstance(item, h5py.Dataset):
                _check_storage(item, name, path)
                datasets[name] = item
            else:
                raise WeightsError(f"{path}: {name!r} is neither group nor dataset.")
    return datasets


def _check_storage(dataset: h5py.Dataset, name: str, path: Path) -> None:
    if dataset.external:
        raise WeightsError(f"{path}: {name!r} uses external storage, which is not allowed in weights.")
    if dataset.is_virtual:
        raise WeightsError(f"{path}: {name!r} is a virtual dataset, which is not allowed in weights.")
    if dataset.dtype.kind != "f" or dataset.dtype.itemsize not in _FLOAT_BYTES:
        raise WeightsError(f"{path}: {name!r} holds {dataset.dtype}; expected float16, float32 or float64.")
    if dataset.compression not in (None, "gzip") or dataset.scaleoffset is not None:
        raise WeightsError(f"{path}: {name!r} is stored with filter {dataset.compression}; only gzip is supported.")
    if dataset.shape is None:
        raise WeightsError(f"{path}: {name!r} is empty.")
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    if len(set(filters)) < len(filters) or not _FILTERS.issuperset(filters):
        raise WeightsError(f"{path}: {name!r} has an unknown filter, or a filter more than once.", "Download it again.")
    # HDF5 unpacks a whole chunk even if the dataset holds a part of it
    chunk_bytes = math.prod(dataset.chunks) * dataset.dtype.itemsize if dataset.chunks else 0
    if chunk_bytes > max(dataset.nbytes, _SMALL_CHUNK):
        raise WeightsError(f"{path}: {name!r} has {dataset.nbytes:,} bytes, in chunks of {chunk_bytes:,} bytes.")


def _read(dataset: h5py.Dataset, path: Path) -> np.ndarray:
    if not _is_complete(dataset):  # HDF5 would silently fill missing parts with zeros
        raise WeightsError(f"{path}: {dataset.name!r} is truncated.", "Download the file again.")
    if dataset.dtype.itemsize > 4:
        log.warning("%s: %r holds %s and is rounded to float32.", path, dataset.name, dataset.dtype)
    with np.errstate(over="ignore"):  # check_finite reports values that become infinite
        return np.asarray(dataset[()], dtype=np.float32)


def _is_complete(dataset: h5py.Dataset) -> bool:
    if dataset.chunks is None:
        return bool(dataset.id.get_storage_size() == dataset.nbytes)
    num_chunks = math.prod(-(-size // chunk) for size, chunk in zip(dataset.shape, dataset.chunks, strict=True))
    return bool(dataset.id.get_num_chunks() == num_chunks)
