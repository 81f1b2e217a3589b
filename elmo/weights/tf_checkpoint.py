"""TensorFlow checkpoints of bilm-tf, read without TensorFlow.

A V2 checkpoint is `PREFIX.index` (a sorted table: variable name -> type, shape, and where its bytes lie) beside
`PREFIX.data-0000i-of-0000n` (the bytes). `read_tf_checkpoint` gives raw arrays under TensorFlow's names and
`published_names` renames them to the datasets of the published HDF5 layout, from where every model takes the same road.
Checksums are verified for every index block and for every tensor read. This is the only place that holds a softmax
trained by bilm-tf: its HDF5 dump leaves it out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from elmo.errors import WeightsError
from elmo.weights.crc32c import masked_crc32c
from elmo.weights.tf_index import DAMAGED, DTYPES, Entry, read_index
from elmo.weights.tf_table import TABLE_MAGIC

log = logging.getLogger(__name__)

_MAX_TOTAL_BYTES = 32 << 30

# bilm-tf's variable -> the published dataset. A net of one layer has no multi_rnn_cell level and one of one direction
# has no RNN_k level; both get the full published path, as Cell0 and RNN_0.
_LSTM_PARTS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
_PLAIN_NAME = re.compile(
    r"lm/(char_embed|embedding|CNN/[Wb]_cnn_\d+|CNN_high_\d+/[Wb]_(?:carry|transform)|CNN_proj/[Wb]_proj|softmax/[Wb])"
)
_LSTM_NAME = re.compile(
    r"lm/(?:RNN_(?P<direction>\d+)/)?rnn/(?:multi_rnn_cell/cell_(?P<layer>\d+)/)?lstm_cell/"
    r"(?P<part>kernel|bias|projection/kernel)"
)
# What optimizers and averages keep beside a variable.
_SLOT_NAME = re.compile(r".*/(Adagrad|Adam|Adam_1|Momentum|RMSProp|RMSProp_1|ExponentialMovingAverage)(_\d+)?")


def find_prefix(path: str | Path) -> Path:
    """PREFIX such that PREFIX.index exists, from a folder, its `checkpoint` file, any of its files, or PREFIX itself.

    In a folder the `checkpoint` file decides; without one, the highest step does. Only that folder is ever looked into,
    whatever path the `checkpoint` file names: it is often the path on the machine that trained.
    """
    path = Path(path)
    if path.is_dir() or path.name == "checkpoint" and path.is_file():
        return _latest(path if path.is_dir() else path.parent)
    match = re.fullmatch(r"(.+)\.(index|meta|data-\d+-of-\d+)", path.name)
    prefix = path.with_name(match[1]) if match else path
    return _checked(prefix)


def list_tf_checkpoint(prefix: str | Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type name and shape of every tensor in a checkpoint, from its index alone."""
    _, _, entries = read_index(_index_path(find_prefix(prefix)))
    return {name: (entry.type_name, entry.shape) for name, entry in entries.items()}


def read_tf_checkpoint(prefix: str | Path, wanted: Callable[[str], bool] | None = None) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint under TensorFlow's own names; `wanted` picks by name and the rest is not read.

    Without `wanted`, tensors that are not numbers (the graph of an object-based checkpoint) are left out.
    """
    prefix = find_prefix(prefix)
    num_shards, byte_order, entries = read_index(_index_path(prefix))
    chosen: dict[str, Entry] = {}
    for name, entry in entries.items():
        if wanted is not None and not wanted(name):
            continue
        if entry.type_number not in DTYPES:
            if wanted is not None:
                raise WeightsError(
                    f"{_index_path(prefix)}: '{name}' has {entry.type_name}, which is not a number type."
                )
            log.info("%s: left out '%s', which does not hold numbers", prefix, name)
            continue
        if entry.sliced:
            raise WeightsError(
                f"{_index_path(prefix)}: '{name}' was saved in slices by a partitioner, which is not read here.",
                "Restore it in TensorFlow without a partitioner and save it again.",
            )
        chosen[name] = entry
    _check_extents(prefix, num_shards, chosen)
    return {name: _read_tensor(prefix, num_shards, byte_order, name, entry) for name, entry in chosen.items()}


def is_bilm_variable(name: str) -> bool:
    """Whether a TensorFlow name is a weight of a bilm-tf model: as `wanted`, it skips the optimizer's slots."""
    return published_name(name) is not None


def published_name(name: str) -> str | None:
    """The published dataset of a bilm-tf variable, or None for one that is no weight of the model."""
    if match := _PLAIN_NAME.fullmatch(name):
        return match[1]
    if match := _LSTM_NAME.fullmatch(name):
        direction, layer = int(match["direction"] or 0), int(match["layer"] or 0)
        return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/{_LSTM_PARTS[match['part']]}"
    return None


def published_names(raw: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """bilm-tf's variables under the names of the published HDF5 layout, with `softmax/W` and `softmax/b` kept.

    Optimizer slots, averages, the step and everything outside `lm/` are left out; another `lm/` variable is warned of.
    """
    found: dict[str, np.ndarray] = {}
    for name in sorted(raw):
        target = published_name(name)
        if target is None:
            if name.startswith("lm/") and not _SLOT_NAME.fullmatch(name):
                log.warning("'%s' is no known part of a bilm-tf model and was left out", name)
        elif target in found:
            raise WeightsError(f"Two variables of the checkpoint are both '{target}', the second is '{name}'.", DAMAGED)
        else:
            found[target] = raw[name]
    has_tokens = "char_embed" in found or "embedding" in found
    if not has_tokens or not any(name.endswith("/LSTMCell/W_0") for name in found):
        some = ", ".join(sorted(raw)[:5]) or "nothing"
        raise WeightsError(
            f"The checkpoint holds no bilm-tf model: expected lm/char_embed and lm/RNN_0/rnn/..., found {some}.",
            "Name the checkpoint that bilm-tf's training wrote (model.ckpt-N).",
        )
    return found


def _index_path(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".index")


def _checked(prefix: Path) -> Path:
    """The prefix if its index exists, otherwise the error that says what is there instead."""
    if _index_path(prefix).is_file():
        return prefix
    if prefix.is_file() and _tail(prefix, len(TABLE_MAGIC)) == TABLE_MAGIC:
        raise WeightsError(
            f"{prefix} is a TensorFlow V1 checkpoint; only V2 (PREFIX.index and PREFIX.data-...) is read.",
            "Restore it in TensorFlow and save it again: tf.compat.v1.train.Saver writes V2 by default.",
        )
    raise WeightsError(
        f"{_index_path(prefix)} does not exist.", "Name a checkpoint's prefix, such as model.ckpt-935588."
    )


def _tail(path: Path, num_bytes: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - num_bytes))
            return file.read(num_bytes)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error}).") from error


def _latest(folder: Path) -> Path:
    note = folder / "checkpoint"
    if note.is_file():
        text = _tail(note, 1 << 20).decode("utf-8", "replace")
        match = re.search(r'^\s*model_checkpoint_path:\s*"([^"\n]+)"', text, re.MULTILINE)
        if match is None:
            raise WeightsError(f"{note} names no model_checkpoint_path.", "Name the checkpoint's prefix itself.")
        return _checked(folder / (re.split(r"[/\\]", match[1])[-1].strip(".") or "checkpoint"))
    prefixes = [path.with_suffix("") for path in folder.glob("*.index")]
    if not prefixes:
        raise WeightsError(f"{folder} holds no TensorFlow checkpoint (no file ends in .index).")
    latest = max(prefixes, key=lambda prefix: (_step(prefix), prefix.name))
    if len(prefixes) > 1:
        log.warning("%s holds %d checkpoints and no 'checkpoint' file: took %s", folder, len(prefixes), latest.name)
    return latest


def _step(prefix: Path) -> int:
    match = re.search(r"-(\d{1,18})$", prefix.name)
    return int(match[1]) if match else -1


def _shard_path(prefix: Path, shard: int, num_shards: int) -> Path:
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{num_shards:05d}")


def _check_extents(prefix: Path, num_shards: int, entries: Mapping[str, Entry]) -> None:
    """Every tensor lies inside its data file and no two share bytes: never is more read than the files hold."""
    floors: dict[int, int] = {}
    total = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].shard, item[1].offset, item[1].size)):
        path = _shard_path(prefix, entry.shard, num_shards)
        if entry.shard not in floors and not path.is_file():
            raise WeightsError(f"{path} is missing ('{name}' lies in it).", DAMAGED)
        if entry.offset + entry.size > path.stat().st_size:
            reach = f"{entry.offset}..{entry.offset + entry.size}"
            raise WeightsError(f"{path} has {path.stat().st_size} bytes, '{name}' should lie at {reach}.", DAMAGED)
        if entry.size and entry.offset < floors.get(entry.shard, 0):
            raise WeightsError(f"{_index_path(prefix)}: '{name}' overlaps another tensor.", DAMAGED)
        floors[entry.shard] = max(floors.get(entry.shard, 0), entry.offset + entry.size)
        total += entry.size
    if total > _MAX_TOTAL_BYTES:
        raise WeightsError(f"{prefix}: {total / 1e9:.1f} GB of tensors, at most {_MAX_TOTAL_BYTES / 1e9:.1f} are read.")


def _read_tensor(prefix: Path, num_shards: int, byte_order: Literal["<", ">"], name: str, entry: Entry) -> np.ndarray:
    path = _shard_path(prefix, entry.shard, num_shards)
    try:
        buffer = np.empty(entry.size, dtype=np.uint8)
        with open(path, "rb") as file:
            file.seek(entry.offset)
            count = file.readinto(buffer.data)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except MemoryError as error:
        raise WeightsError(f"{path}: no memory for the {entry.size:,} bytes of '{name}'.") from error
    if count != entry.size:
        raise WeightsError(f"{path} ended inside '{name}'.", DAMAGED)
    if masked_crc32c(buffer) != entry.checksum:
        raise WeightsError(f"{path}: '{name}' does not match its checksum.", DAMAGED)
    type_name, code = DTYPES[entry.type_number]
    array = buffer.view(np.dtype(code).newbyteorder(byte_order)).astype(np.dtype(code), copy=False)
    if type_name == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.reshape(entry.shape)
