"""Reads AllenNLP models that contain an ELMo: `.th` state dicts, serialization folders and model.tar.gz archives.

A tagger or reader trained with AllenNLP contains its complete biLM, fine-tuned or not, and the mix weights it learned.
This module extracts both, under the published dataset names. The parameters of an ELMo have the same names in every
model; only their prefix differs.
"""

from __future__ import annotations

import dataclasses
import gzip
import logging
import re
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import numpy as np

from elmo.errors import WeightsError
from elmo.weights import torch_layout
from elmo.weights.allennlp_options import MAX_JSON_BYTES, complete_options
from elmo.weights.memory_bound import check_unpacked, memory_bound, unpacked_limit
from elmo.weights.model_parts import ModelParts
from elmo.weights.names import from_arrays, refuse_extra
from elmo.weights.options import config_from_options
from elmo.weights.torch_pickle import read_state_dict

log = logging.getLogger(__name__)

_MAX_TOTAL_BYTES = 16 << 30
_MAX_MEMBERS = 100_000
_PARAMETER = re.compile(
    r"(.*\.)?(_token_embedder\.(_char_embedding_weights|(char_conv_\d+|_highways\._layers\.\d+|_projection)\.(weight|bias))"
    r"|_elmo_lstm\.(forward|backward)_layer_\d+\.(input_linearity|state_linearity|state_projection)\.(weight|bias)"
    r"|scalar_mix_\d+\.(gamma|scalar_parameters\.\d+))"
)
_WEIGHTS_NAMES = ("weights.th", "best.th")


@dataclass(frozen=True, kw_only=True)
class AllenNLPArrays:
    """One ELMo of an AllenNLP model. Its LSTM biases already include TensorFlow's forget bias of 1."""

    options: dict[str, Any]  # as a published options.json
    arrays: dict[str, np.ndarray]  # by published dataset name
    mixes: list[tuple[np.ndarray, float]]  # weights before the softmax, lowest layer first, and gamma
    prefix: str  # of its parameters' names; distinguishes several ELMos of one model


@dataclass(kw_only=True)
class _Files:
    """The files of a model that matter here."""

    weights: IO[bytes] | Path | None = None
    weights_name: str = ""
    configs: list[tuple[str, bytes]] = field(default_factory=list)  # name, JSON text


def read_allennlp(path: str | Path) -> ModelParts:
    """The ELMo in an AllenNLP `.th` file, model.tar.gz or serialization folder, with the mixes learned for it."""
    path = Path(path)
    if path.is_dir():
        candidates = [path / name for name in ("model.tar.gz", *_WEIGHTS_NAMES)]
        path = next((candidate for candidate in candidates if candidate.exists()), path)
    model = read_allennlp_arrays(path)
    config = config_from_options(model.options, str(path), names=model.arrays)
    config = dataclasses.replace(config, lstm=dataclasses.replace(config.lstm, forget_bias=0.0))  # it is in the biases
    return ModelParts(
        config=config,
        tensors=from_arrays(config, model.arrays, str(path)),
        mixes=tuple((tuple(map(float, weights)), float(gamma)) for weights, gamma in model.mixes),
        about={"format": "allennlp", "source": path.name},
        format="allennlp",
        source=str(path),
    )


def read_allennlp_arrays(path: str | Path, prefix: str | None = None) -> AllenNLPArrays:
    """The ELMo in an AllenNLP `.th` file or model.tar.gz; `prefix` selects one of several.

    Sizes come from the tensors. Clips, activation and characters per word come from an options file in the archive;
    without one they are the released models' values (3, 3, relu, 50). Skip connections are on, because AllenNLP
    supports nothing else.
    """
    path = Path(path)
    if path.is_dir():
        raise WeightsError(f"{path} holds neither {' nor '.join(_WEIGHTS_NAMES)}.", "Is it an AllenNLP model?")
    if not path.is_file():
        raise WeightsError(f"{path} does not exist.")
    with memory_bound(path):
        return _read_arrays(path, prefix)


def _read_arrays(path: Path, prefix: str | None) -> AllenNLPArrays:
    files = _archive_files(path) if _is_tar(path) else _Files(weights=path, weights_name=str(path))
    if files.weights is None:
        raise WeightsError(f"{path} holds neither {' nor '.join(_WEIGHTS_NAMES)}.", "Is it an AllenNLP model?")
    names: list[str] = []  # of all parameters, those of the task as well

    def select(name: str) -> bool:
        names.append(name)
        return _PARAMETER.fullmatch(name) is not None

    with nullcontext(files.weights) if isinstance(files.weights, Path) else files.weights as weights:
        state = read_state_dict(weights, files.weights_name, select)
    prefix = _choose_prefix(state, names, prefix, str(path))
    tracked = torch_layout.TrackedArrays(state)
    arrays = torch_layout.allennlp_bilm(tracked, prefix, files.weights_name)
    options = complete_options(arrays, files.configs, str(path))
    mixes = _mixes(tracked, prefix, options["lstm"]["n_layers"] + 1, files.weights_name)
    _refuse_unread(names, set(state) - tracked.unread(), prefix, files.weights_name)
    return AllenNLPArrays(
        options=options,
        arrays={name: np.ascontiguousarray(array) for name, array in arrays.items()},
        mixes=mixes,
        prefix=prefix,
    )


def _refuse_unread(names: Iterable[str], read: set[str], prefix: str, source: str) -> None:
    """Refuses parameters of the ELMo or its mixes that were not read; those of the task's other modules are its own."""
    own = (prefix, prefix.removesuffix("_elmo_lstm.") + "scalar_mix_")
    not_weights = {prefix + name for name in torch_layout.NOT_WEIGHTS}
    refuse_extra(source, {name for name in names if name.startswith(own)} - read - not_weights)
    if prefix + "_word_embedding.weight" in names:
        log.warning("%s: its cache of word vectors is left out; they are computed from characters", source)


def _is_tar(path: Path) -> bool:
    """Whether a file begins like a gzip or a tar file, and not like a pickle."""
    try:
        with open(path, "rb") as file:
            head = file.read(512)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error}).") from error
    return head[:2] == b"\x1f\x8b" or head[257:262] == b"ustar"


class _LimitedStream:
    """A stream that returns at most `limit` bytes, so that a small archive cannot unpack without end."""

    def __init__(self, file: IO[bytes], limit: int, name: str) -> None:
        self.file, self.limit, self.left, self.name = file, limit, limit, name

    def read(self, size: int) -> bytes:
        data = self.file.read(size)
        self.left -= len(data)
        if self.left < 0:
            check_unpacked(self.limit - self.left, self.name)
            raise WeightsError(
                f"{self.name} unpacks to more than {self.limit:,} bytes, which is the most that is read."
            )
        return data


def _archive_files(path: Path) -> _Files:
    limit = min(_MAX_TOTAL_BYTES, unpacked_limit())
    with open(path, "rb") as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if is_gzip else raw
        try:
            return _scan_members(_LimitedStream(stream, limit, str(path)), limit, str(path))
        except WeightsError:
            raise
        except Exception as error:  # tarfile and zlib raise many kinds of exceptions for damaged files
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            raise WeightsError(f"{path} cannot be unpacked ({reason}).", "It is truncated or damaged.") from error


def _scan_members(stream: _LimitedStream, limit: int, name: str) -> _Files:
    """Visits each member once, in order, and reads the weights and the options; no member is written under its name."""
    files = _Files()
    total = 0
    with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as archive:
        for number, member in enumerate(archive):
            total += member.size
            _check_member(member, name)
            check_unpacked(total, name)
            if number >= _MAX_MEMBERS or total > limit:
                raise WeightsError(f"{name} has more than {_MAX_MEMBERS:,} members or claims {total:,} bytes.")
            base = PurePosixPath(member.name).name
            if not member.isfile():
                continue
            content = cast(IO[bytes], archive.extractfile(member))
            if base in _WEIGHTS_NAMES:
                if files.weights is not None:
                    raise WeightsError(f"{name} holds more than one file of weights.")
                files.weights, files.weights_name = _copy(content, member.size, name), f"{name}/{member.name}"
            elif base in ("config.json", "options.json") or base.endswith("options_file"):
                files.configs.append((f"{name}/{member.name}", content.read(MAX_JSON_BYTES + 1)))
    return files


def _check_member(member: tarfile.TarInfo, name: str) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or re.match(r"[A-Za-z]:", member.name):
        raise WeightsError(f"{name} has a member named {member.name!r}, which leads outside of it.")
    if not (member.isfile() or member.isdir()):
        raise WeightsError(f"{name} has a member {member.name!r} that is a link or device; only files are read.")


def _copy(content: IO[bytes], size: int, name: str) -> IO[bytes]:
    """The member in an unnamed temporary file, because torch needs to seek; the file is deleted when it is closed."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    num_bytes = 0
    while block := content.read(1 << 20):
        num_bytes += copy.write(block)
    if num_bytes != size:
        copy.close()
        raise WeightsError(f"{name} ends inside its weights.", "The archive is truncated: copy it again.")
    return copy


def _choose_prefix(state: Mapping[str, np.ndarray], names: Iterable[str], prefix: str | None, name: str) -> str:
    """The requested prefix, or that of the only ELMo; modules shared under two names count once."""
    table = torch_layout.CHAR_TABLE
    prefixes = sorted(key[: -len(table)] for key in state if key.endswith(table))
    if prefix is not None:
        if prefix not in prefixes:
            raise WeightsError(f"{name} has no ELMo under '{prefix}'.", f"It has: {', '.join(prefixes) or 'none'}.")
        return prefix
    if not prefixes:
        transformer = next((key for key in names if "transformer" in key.lower()), None)
        if transformer is not None:
            raise WeightsError(
                f"{name} is a transformer language model (it has '{transformer[:200]}'); only LSTM models are read."
            )
        raise WeightsError(f"{name} contains no ELMo: no parameter ends in '{table}'.")
    for other in prefixes[1:]:
        if any(not _equal(state.get(prefixes[0] + key), array) for key, array in _under(state, other).items()):
            raise WeightsError(f"{name} contains several different ELMos.", f"Choose one: {', '.join(prefixes)}.")
    return prefixes[0]


def _equal(first: np.ndarray | None, second: np.ndarray) -> bool:
    return first is not None and np.array_equal(first, second)


def _under(state: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {key[len(prefix) :]: array for key, array in state.items() if key.startswith(prefix)}


def _mixes(state: Mapping[str, np.ndarray], prefix: str, num_layers: int, name: str) -> list[tuple[np.ndarray, float]]:
    """Every scalar_mix_k of the module around the biLM; a biLM that was saved alone has none."""
    outer = prefix.removesuffix("_elmo_lstm.") + "scalar_mix_"
    mixes = []
    for k in range(torch_layout.count_numbered(state, re.escape(outer) + r"(\d{1,4})\.gamma", name)):
        key = f"{outer}{k}."
        weights = [torch_layout.take(state, f"{key}scalar_parameters.{i}", name, (1,))[0] for i in range(num_layers)]
        gamma = float(torch_layout.take(state, key + "gamma", name, (1,))[0])
        mixes.append((np.array(weights), gamma))
    return mixes
