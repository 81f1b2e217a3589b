"""Reads TensorFlow checkpoints of bilm-tf without TensorFlow.

A V2 checkpoint consists of `PREFIX.index` (a sorted table: variable name -> type, shape and position of its bytes) and
`PREFIX.data-0000i-of-0000n` (the bytes). `read_tf_arrays` returns arrays under TensorFlow's names, `published_names`
renames them to the datasets of the published HDF5 layout, and `read_tf_checkpoint` makes a model of them.
The checksums of every index block and of every tensor read are verified. A checkpoint is the only file that contains a
softmax trained by bilm-tf, because bilm-tf's HDF5 dump omits it.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from elmo.errors import WeightsError
from elmo.files import read_json
from elmo.model.config import HeadConfig
from elmo.weights.crc32c import masked_crc32c
from elmo.weights.memory_bound import claim, memory_bound
from elmo.weights.model_parts import ModelParts
from elmo.weights.names import TF_PARTS, from_arrays, refuse_extra
from elmo.weights.options import config_from_options
from elmo.weights.published import read_vocab
from elmo.weights.tf_index import DAMAGED, DTYPES, IndexEntry, read_index
from elmo.weights.tf_table import TABLE_MAGIC

log = logging.getLogger(__name__)

_MAX_TOTAL_BYTES = 32 << 30

# bilm-tf's variable -> the published dataset. A one-layer network has no multi_rnn_cell level and a one-directional
# network has no RNN_k level; both get the full published path, as Cell0 and RNN_0.
_LSTM_PARTS = {tf_part: part for part, tf_part in TF_PARTS.items()}
_NON_LSTM_NAME = re.compile(
    r"lm/(char_embed|embedding|CNN/[Wb]_cnn_\d+|CNN_high_\d+/[Wb]_(?:carry|transform)|CNN_proj/[Wb]_proj|softmax/[Wb])"
)
_LSTM_NAME = re.compile(
    r"lm/(?:RNN_(?P<direction>\d+)/)?rnn/(?:multi_rnn_cell/cell_(?P<layer>\d+)/)?lstm_cell/"
    r"(?P<part>kernel|bias|projection/kernel)"
)
# variables that optimizers and moving averages store in addition to a variable
_SLOT_NAME = re.compile(r".*/(Adagrad|Adam|Adam_1|Momentum|RMSProp|RMSProp_1|ExponentialMovingAverage)(_\d+)?")


def read_tf_checkpoint(path: str | Path) -> ModelParts:
    """The model of a bilm-tf checkpoint (any path that `find_prefix` takes) and the one options file in its folder.

    The softmax and a vocabulary file in the same folder are included.
    """
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    prefix = find_prefix(path)
    options_paths = [p for p in sorted(folder.glob("*.json")) if "options" in p.name]
    if len(options_paths) != 1:
        raise WeightsError(f"{folder}: {len(options_paths)} options files next to the checkpoint; expected one.")
    refuse_extra(str(prefix), filter(_is_unknown, read_index(_index_path(prefix))[2]))
    arrays = published_names(read_tf_arrays(prefix, is_bilm_variable))
    options = read_json(options_paths[0], error=WeightsError)
    num_words = len(arrays["embedding"]) if "embedding" in arrays else None
    config = config_from_options(options, str(options_paths[0]), num_words=num_words, names=arrays)
    if "softmax/b" in arrays:
        if "softmax/W" not in arrays and "embedding" in arrays:  # share_embedding_softmax: one table for both
            arrays["softmax/W"] = arrays["embedding"]
        config = dataclasses.replace(config, head=HeadConfig(vocab_size=len(arrays["softmax/b"])))
    return ModelParts(
        config=config,
        tensors=from_arrays(config, arrays, str(prefix)),
        vocab=read_vocab(folder, config),
        about={"format": "tensorflow", "source": prefix.name},
        format="tensorflow",
        source=str(prefix),
    )


def find_prefix(path: str | Path) -> Path:
    """PREFIX such that PREFIX.index exists, from a folder, its `checkpoint` file, any of its files, or PREFIX itself.

    In a folder the `checkpoint` file names the prefix; without that file, the highest step is taken. Only this folder
    is searched, even if the `checkpoint` file names another path: it is often the path on the training machine.
    """
    path = Path(path)
    if path.is_dir() or path.name == "checkpoint" and path.is_file():
        return _latest(path if path.is_dir() else path.parent)
    match = re.fullmatch(r"(.+)\.(index|meta|data-\d+-of-\d+)", path.name)
    prefix = path.with_name(match[1]) if match else path
    return _check_prefix(prefix)


def read_tf_arrays(prefix: str | Path, select: Callable[[str], bool] | None = None) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint under TensorFlow's own names; with `select`, only the names it accepts are read.

    Without `select`, tensors that are not numeric (the graph of an object-based checkpoint) are left out.
    """
    prefix = find_prefix(prefix)
    num_shards, byte_order, entries = read_index(_index_path(prefix))
    selected: dict[str, IndexEntry] = {}
    for name, entry in entries.items():
        if select is not None and not select(name):
            continue
        if entry.type_number not in DTYPES:
            if select is not None:
                raise WeightsError(f"{_index_path(prefix)}: '{name}' has {entry.type_name}, which is not numeric.")
            log.info("%s: '%s' is left out because it is not numeric", prefix, name)
            continue
        if entry.sliced:
            raise WeightsError(
                f"{_index_path(prefix)}: '{name}' was saved in slices by a partitioner, which is not supported.",
                "Restore it in TensorFlow without a partitioner and save it again.",
            )
        selected[name] = entry
    _check_extents(prefix, num_shards, selected)
    with memory_bound(*{_shard_path(prefix, entry.shard, num_shards) for entry in selected.values()}, prefix):
        claim(sum(_memory_of(entry) for entry in selected.values()), prefix)
    return {name: _read_tensor(prefix, num_shards, byte_order, name, entry) for name, entry in selected.items()}


def is_bilm_variable(name: str) -> bool:
    """Whether a TensorFlow name is a weight of a bilm-tf model, and not, for example, an optimizer slot."""
    return published_name(name) is not None


def published_name(name: str) -> str | None:
    """The published dataset name of a bilm-tf variable, or None if it is not a weight of the model."""
    if match := _NON_LSTM_NAME.fullmatch(name):
        return match[1]
    if match := _LSTM_NAME.fullmatch(name):
        direction, layer = int(match["direction"] or 0), int(match["layer"] or 0)
        return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/{_LSTM_PARTS[match['part']]}"
    return None


def published_names(raw: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """bilm-tf's variables under the names of the published HDF5 layout, including `softmax/W` and `softmax/b`.

    Optimizer slots, averages, the step and everything outside `lm/` are left out; any other unknown `lm/` variable is
    an error.
    """
    refuse_extra("The checkpoint", filter(_is_unknown, raw))
    arrays: dict[str, np.ndarray] = {}
    for name in sorted(raw):
        target = published_name(name)
        if target is None:
            continue
        if target in arrays:
            raise WeightsError(f"Two variables of the checkpoint are both '{target}', the second is '{name}'.", DAMAGED)
        arrays[target] = raw[name]
    has_tokens = "char_embed" in arrays or "embedding" in arrays
    if not has_tokens or not any(name.endswith("/LSTMCell/W_0") for name in arrays):
        names = ", ".join(sorted(raw)[:5]) or "nothing"
        raise WeightsError(
            f"The checkpoint holds no bilm-tf model: expected lm/char_embed and lm/RNN_0/rnn/..., but it has {names}.",
            "Name the checkpoint that bilm-tf's training wrote (model.ckpt-N).",
        )
    return arrays


def _is_unknown(name: str) -> bool:
    """Whether a variable of the language model is neither one of its weights nor an optimizer's copy of one."""
    return name.startswith("lm/") and published_name(name) is None and _SLOT_NAME.fullmatch(name) is None


def _index_path(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".index")


def _check_prefix(prefix: Path) -> Path:
    """The prefix if its index exists; otherwise an error that says what is at this path."""
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
    state_path = folder / "checkpoint"
    if state_path.is_file():
        text = _tail(state_path, 1 << 20).decode("utf-8", "replace")
        match = re.search(r'^\s*model_checkpoint_path:\s*"([^"\n]+)"', text, re.MULTILINE)
        if match is None:
            raise WeightsError(f"{state_path} names no model_checkpoint_path.", "Name the checkpoint's prefix itself.")
        return _check_prefix(folder / (re.split(r"[/\\]", match[1])[-1].strip(".") or "checkpoint"))
    prefixes = [path.with_suffix("") for path in folder.glob("*.index")]
    if not prefixes:
        raise WeightsError(f"{folder} holds no TensorFlow checkpoint (no file ends in .index).")
    latest = max(prefixes, key=lambda prefix: (_step(prefix), prefix.name))
    if len(prefixes) > 1:
        log.warning("%s holds %d checkpoints and no 'checkpoint' file: uses %s", folder, len(prefixes), latest.name)
    return latest


def _step(prefix: Path) -> int:
    match = re.search(r"-(\d{1,18})$", prefix.name)
    return int(match[1]) if match else -1


def _shard_path(prefix: Path, shard: int, num_shards: int) -> Path:
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{num_shards:05d}")


def _check_extents(prefix: Path, num_shards: int, entries: Mapping[str, IndexEntry]) -> None:
    """Checks that every tensor is inside its data file and that no two overlap, so reads are bounded by the files."""
    ends: dict[int, int] = {}  # shard -> end of the tensors checked so far
    total = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].shard, item[1].offset, item[1].size)):
        path = _shard_path(prefix, entry.shard, num_shards)
        if entry.shard not in ends and not path.is_file():
            raise WeightsError(f"{path} is missing (it holds '{name}').", DAMAGED)
        if entry.offset + entry.size > path.stat().st_size:
            extent = f"{entry.offset}..{entry.offset + entry.size}"
            raise WeightsError(f"{path} has {path.stat().st_size} bytes, '{name}' should be at {extent}.", DAMAGED)
        if entry.size and entry.offset < ends.get(entry.shard, 0):
            raise WeightsError(f"{_index_path(prefix)}: '{name}' overlaps another tensor.", DAMAGED)
        ends[entry.shard] = max(ends.get(entry.shard, 0), entry.offset + entry.size)
        total += entry.size
    if total > _MAX_TOTAL_BYTES:
        raise WeightsError(
            f"{prefix}: {total / 1e9:.1f} GB of tensors; expected at most {_MAX_TOTAL_BYTES / 1e9:.1f} GB."
        )


def _memory_of(entry: IndexEntry) -> int:
    return entry.size * (2 if DTYPES[entry.type_number][0] == "bfloat16" else 1)  # it is read as float32


def _read_tensor(
    prefix: Path, num_shards: int, byte_order: Literal["<", ">"], name: str, entry: IndexEntry
) -> np.ndarray:
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
        raise WeightsError(f"{path} ends inside '{name}'.", DAMAGED)
    if masked_crc32c(buffer) != entry.checksum:
        raise WeightsError(f"{path}: '{name}' does not match its checksum.", DAMAGED)
    type_name, code = DTYPES[entry.type_number]
    array = buffer.view(np.dtype(code).newbyteorder(byte_order)).astype(np.dtype(code), copy=False)
    if type_name == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.reshape(entry.shape)
