"""weights.hdf5, the published layout: read as if the file were hostile, written so that old tools read it.

HDF5 can point outside the file, declare terabytes in a kilobyte, and fail in many voices. Here only hard-linked,
plainly stored float datasets of the expected shape are read, and everything else is one WeightsError.
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
from elmo.files import atomic_file
from elmo.model.config import BiLMConfig
from elmo.weights.names import Entry, extra_names, match, table, to_ours, to_published

log = logging.getLogger(__name__)

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_LARGEST_EXPANSION = 50  # times a file's own size that its datasets may declare
_FLOATS = (2, 4, 8)  # bytes; either endianness
_MOST_NAMES = 10_000
_HEAD = "softmax/"


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all datasets, nothing of their contents."""
    with _opened(path) as file:
        return {name: tuple(dataset.shape) for name, dataset in _datasets(file, path).items()}


def read_hdf5(path: Path, config: BiLMConfig, *, head: bool = False) -> dict[str, Tensor]:
    """All tensors of a model of this shape but its softmax (or its softmax alone), under our names, in float32."""
    with _opened(path) as file:
        found = _datasets(file, path)
        datasets = {name: dataset for name, dataset in found.items() if name.startswith(_HEAD) == head}
        matched = match(_part(config, head), {name: tuple(d.shape) for name, d in datasets.items()}, str(path))
        for name in extra_names(matched, datasets):
            log.warning("%s: dataset %r has no place in the model and is ignored.", path, name[:200])
        _check_total(path, [datasets[name] for _, name in matched])
        return {entry.ours: to_ours(entry, _read(datasets[name], path)) for entry, name in matched}


def write_hdf5(path: Path, config: BiLMConfig, tensors: Mapping[str, Tensor], *, head: bool = False) -> None:
    """The published layout; the softmax (which AllenNLP's files do not hold) alone when `head`, else all but it."""
    image = io.BytesIO()  # the library crashes the process when a disk is full under an open file, so it gets none
    with h5py.File(image, "w", libver="earliest") as file:
        for entry in _part(config, head):
            file.create_dataset(entry.published, data=_for_old_tools(config, entry, tensors[entry.ours]))
    with atomic_file(path) as partial:
        partial.write_bytes(image.getbuffer())


def _part(config: BiLMConfig, head: bool) -> list[Entry]:
    return [entry for entry in table(config) if entry.published.startswith(_HEAD) == head]


def _for_old_tools(config: BiLMConfig, entry: Entry, tensor: Tensor) -> np.ndarray:
    """The array as the reference stores it: its readers add a forget bias of 1, so the stored bias lacks it."""
    array = to_published(entry, tensor.float())
    contained = 1.0 - config.lstm.forget_bias
    if entry.ours.endswith(".bias") and entry.ours.startswith("stacks.") and contained:
        forget = slice(2 * config.lstm.cell_dim, 3 * config.lstm.cell_dim)
        array = array.copy()
        array[forget] -= np.float32(contained)
    return array


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    try:
        with open(path, "rb") as file:
            magic = file.read(len(HDF5_MAGIC))
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error}).") from error
    if magic != HDF5_MAGIC:
        raise WeightsError(f"{path} is no HDF5 file (starts with {magic!r}).", "Check its name, or download it again.")
    try:
        with h5py.File(path, "r", locking=False) as opened:
            yield opened
    except ElmoError:
        raise
    except MemoryError as error:
        raise WeightsError(f"{path}: its weights do not fit into memory.") from error
    # the library answers damage with many kinds of error; to a caller they are one
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, ArithmeticError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise WeightsError(f"{path}: damaged HDF5 file ({reason}).", "Download it again.") from error


def _datasets(file: h5py.File, path: Path) -> dict[str, h5py.Dataset]:
    """All datasets by full name, having refused every way a file can point elsewhere or at itself."""
    found: dict[str, h5py.Dataset] = {}
    groups: list[tuple[str, h5py.Group]] = [("", file)]
    seen = {h5py.h5o.get_info(file.id).addr}
    while groups:
        prefix, group = groups.pop()
        for key in group:
            name = f"{prefix}{key}"
            if len(found) + len(seen) > _MOST_NAMES:
                raise WeightsError(f"{path} holds more than {_MOST_NAMES:,} names.", "A biLM has a few dozen.")
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise WeightsError(f"{path}: {name!r} is a link to another place.", "Links are not allowed in weights.")
            item = group[key]
            if isinstance(item, h5py.Group):
                address = h5py.h5o.get_info(item.id).addr
                if address in seen:
                    raise WeightsError(f"{path}: group {name!r} contains itself.")
                seen.add(address)
                groups.append((f"{name}/", item))
            elif isinstance(item, h5py.Dataset):
                _check_storage(item, name, path)
                found[name] = item
            else:
                raise WeightsError(f"{path}: {name!r} is neither group nor dataset.")
    return found


def _check_storage(dataset: h5py.Dataset, name: str, path: Path) -> None:
    if dataset.external:
        raise WeightsError(f"{path}: {name!r} uses external storage, which is not allowed in weights.")
    if dataset.is_virtual:
        raise WeightsError(f"{path}: {name!r} is a virtual dataset, which is not allowed in weights.")
    if dataset.dtype.kind != "f" or dataset.dtype.itemsize not in _FLOATS:
        raise WeightsError(f"{path}: {name!r} holds {dataset.dtype}; expected float16, float32 or float64.")
    if dataset.compression not in (None, "gzip") or dataset.scaleoffset is not None:
        raise WeightsError(f"{path}: {name!r} is stored with filter {dataset.compression}; only gzip is read.")
    if dataset.shape is None:
        raise WeightsError(f"{path}: {name!r} is empty.")


def _check_total(path: Path, datasets: list[h5py.Dataset]) -> None:
    declared, stored = sum(d.nbytes for d in datasets), path.stat().st_size
    if declared > _LARGEST_EXPANSION * stored:
        raise WeightsError(
            f"{path}: {stored:,} bytes declare {declared:,} bytes of weights.",
            f"More than {_LARGEST_EXPANSION} times a file's size is refused.",
        )


def _read(dataset: h5py.Dataset, path: Path) -> np.ndarray:
    if not _is_whole(dataset):  # HDF5 would fill what is missing with zeros, without a word
        raise WeightsError(f"{path}: {dataset.name!r} is cut short.", "Download the file again.")
    if dataset.dtype.itemsize > 4:
        log.warning("%s: %r holds %s and is rounded to float32.", path, dataset.name, dataset.dtype)
    with np.errstate(over="ignore"):  # what becomes infinite is reported as such by check_finite
        return np.asarray(dataset[()], dtype=np.float32)


def _is_whole(dataset: h5py.Dataset) -> bool:
    if dataset.chunks is None:
        return bool(dataset.id.get_storage_size() == dataset.nbytes)
    num_chunks = math.prod(-(-size // chunk) for size, chunk in zip(dataset.shape, dataset.chunks, strict=True))
    return bool(dataset.id.get_num_chunks() == num_chunks)
