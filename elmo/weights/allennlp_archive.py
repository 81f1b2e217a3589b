"""AllenNLP models that contain an ELMo: `.th` state dicts, serialization folders and model.tar.gz archives.

A tagger or reader trained with AllenNLP carries its whole biLM, fine-tuned or not, and the mix weights it learned. This
takes both out, under the published dataset names. An ELMo's parameters have the same names in every model; only what
stands before them changes.
"""

from __future__ import annotations

import gzip
import json
import logging
import re
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import numpy as np

from elmo.errors import WeightsError
from elmo.weights import torch_layout
from elmo.weights.torch_pickle import read_state_dict

log = logging.getLogger(__name__)

_MAX_TOTAL_BYTES = 16 << 30
_MAX_JSON_BYTES = 1 << 20
_MAX_MEMBERS = 100_000
_ANCHOR = "_token_embedder._char_embedding_weights"  # every ELMo has exactly one
_PARAMETER = re.compile(
    r"(.*\.)?(_token_embedder\.(_char_embedding_weights|(char_conv_\d+|_highways\._layers\.\d+|_projection)\.(weight|bias))"
    r"|_elmo_lstm\.(forward|backward)_layer_\d+\.(input_linearity|state_linearity|state_projection)\.(weight|bias)"
    r"|scalar_mix_\d+\.(gamma|scalar_parameters\.\d+))"
)
_WEIGHTS_NAMES = ("weights.th", "best.th")


@dataclass(frozen=True, kw_only=True)
class AllenNLPModel:
    """One ELMo taken out of an AllenNLP model."""

    options: dict[str, Any]  # as a published options.json
    tensors: dict[str, np.ndarray]  # by published dataset name
    forget_bias_included: bool  # the LSTM biases already hold TensorFlow's forget bias of 1
    mixes: list[tuple[np.ndarray, float]]  # weights before the softmax, lowest layer first, and gamma
    prefix: str  # what stood before its parameters, to tell several ELMos of one model apart


@dataclass(kw_only=True)
class _Parts:
    """What was found in an archive or folder."""

    weights: IO[bytes] | Path | None = None
    weights_name: str = ""
    configs: list[tuple[str, bytes]] = field(default_factory=list)  # name, JSON text


def read_allennlp(path: str | Path, prefix: str | None = None) -> AllenNLPModel:
    """The ELMo in an AllenNLP `.th` file, model.tar.gz or serialization folder; `prefix` chooses one of several.

    Sizes come from the tensors. Clips, activation and characters a word come from an options file kept in the
    archive; without one they are the released models' values (3, 3, relu, 50). Skip connections are on: AllenNLP knows
    nothing else.
    """
    path = Path(path)
    parts = _Parts(weights=path, weights_name=str(path))
    if path.is_dir():
        parts = _folder_parts(path)
    elif not path.is_file():
        raise WeightsError(f"{path} does not exist.")
    elif is_tar(path):
        parts = _archive_parts(path)
    if parts.weights is None:
        raise WeightsError(f"{path} holds neither {' nor '.join(_WEIGHTS_NAMES)}.", "Is it an AllenNLP model?")
    with nullcontext(parts.weights) if isinstance(parts.weights, Path) else parts.weights as weights:
        state = read_state_dict(weights, parts.weights_name, _is_elmo)
    chosen = _choose(state, prefix, str(path))
    tensors = _published(state, chosen, parts.weights_name)
    options = _options(tensors, parts.configs, str(path))
    layers = options["lstm"]["n_layers"] + 1
    return AllenNLPModel(
        options=options,
        tensors={name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()},
        forget_bias_included=True,
        mixes=_mixes(state, chosen, layers, parts.weights_name),
        prefix=chosen,
    )


def is_tar(path: Path) -> bool:
    """Whether a file begins like a gzip or a tar rather than like a pickle."""
    try:
        with open(path, "rb") as file:
            head = file.read(512)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error}).") from error
    return head[:2] == b"\x1f\x8b" or head[257:262] == b"ustar"


def _is_elmo(key: str) -> bool:
    return _PARAMETER.fullmatch(key) is not None


def _folder_parts(path: Path) -> _Parts:
    parts = _Parts()
    for name in _WEIGHTS_NAMES:
        if parts.weights is None and (path / name).is_file():
            parts.weights, parts.weights_name = path / name, str(path / name)
    for name in ("options.json", "config.json"):
        if (path / name).is_file():
            with open(path / name, "rb") as file:
                parts.configs.append((str(path / name), file.read(_MAX_JSON_BYTES + 1)))
    return parts


class _Limited:
    """A stream that refuses to give more than `limit` bytes: a small archive must not unpack without end."""

    def __init__(self, file: IO[bytes], limit: int, name: str) -> None:
        self.file, self.left, self.name = file, limit, name

    def read(self, size: int) -> bytes:
        data = self.file.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise WeightsError(f"{self.name} unpacks to far more than its size, like a decompression bomb.")
        return data


def _archive_parts(path: Path) -> _Parts:
    size = path.stat().st_size
    limit = min(_MAX_TOTAL_BYTES, max(64 << 20, 50 * size))
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw
        try:
            return _walk(_Limited(stream, limit, str(path)), limit, str(path))
        except WeightsError:
            raise
        except Exception as error:  # tarfile and zlib answer damage with many kinds
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            raise WeightsError(f"{path} cannot be unpacked ({reason}).", "It is cut short or damaged.") from error


def _walk(stream: _Limited, limit: int, name: str) -> _Parts:
    """Looks at every member once, in order, and keeps the weights and the options; nothing is extracted by its name."""
    parts = _Parts()
    total = 0
    with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as archive:
        for number, member in enumerate(archive):
            total += member.size
            _check_member(member, name)
            if number >= _MAX_MEMBERS or total > limit:
                raise WeightsError(f"{name} has more than {_MAX_MEMBERS:,} members or claims {total:,} bytes.")
            base = PurePosixPath(member.name).name
            if not member.isfile():
                continue
            content = cast(IO[bytes], archive.extractfile(member))
            if base in _WEIGHTS_NAMES:
                if parts.weights is not None:
                    raise WeightsError(f"{name} holds more than one file of weights.")
                parts.weights, parts.weights_name = _copy(content, member.size, name), f"{name}/{member.name}"
            elif base in ("config.json", "options.json") or base.endswith("options_file"):
                parts.configs.append((f"{name}/{member.name}", content.read(_MAX_JSON_BYTES + 1)))
    return parts


def _check_member(member: tarfile.TarInfo, name: str) -> None:
    inside = PurePosixPath(member.name)
    if inside.is_absolute() or ".." in inside.parts or "\\" in member.name or re.match(r"[A-Za-z]:", member.name):
        raise WeightsError(f"{name} has a member named {member.name!r}, which leads outside of it.")
    if not (member.isfile() or member.isdir()):
        raise WeightsError(f"{name} has a member {member.name!r} that is a link or device; only files are read.")


def _copy(content: IO[bytes], size: int, name: str) -> IO[bytes]:
    """The member in an unnamed temporary file, since torch needs to seek; it is gone once closed."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    done = 0
    while block := content.read(1 << 20):
        done += copy.write(block)
    if done != size:
        copy.close()
        raise WeightsError(f"{name} ends inside its weights.", "The archive is cut short: copy it again.")
    return copy


def _choose(state: Mapping[str, np.ndarray], prefix: str | None, name: str) -> str:
    """The prefix of the ELMo that was asked for, or of the only one; modules shared under two names count once."""
    prefixes = sorted(key[: -len(_ANCHOR)] for key in state if key.endswith(_ANCHOR))
    if prefix is not None:
        if prefix not in prefixes:
            raise WeightsError(f"{name} has no ELMo under '{prefix}'.", f"It has: {', '.join(prefixes) or 'none'}.")
        return prefix
    if not prefixes:
        raise WeightsError(f"{name} contains no ELMo: no parameter ends in '{_ANCHOR}'.")
    for other in prefixes[1:]:
        if any(not _equal(state.get(prefixes[0] + key), array) for key, array in _under(state, other).items()):
            raise WeightsError(f"{name} contains several different ELMos.", f"Choose one: {', '.join(prefixes)}.")
    return prefixes[0]


def _equal(first: np.ndarray | None, second: np.ndarray) -> bool:
    return first is not None and np.array_equal(first, second)


def _under(state: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {key[len(prefix) :]: array for key, array in state.items() if key.startswith(prefix)}


def _published(state: Mapping[str, np.ndarray], prefix: str, name: str) -> dict[str, np.ndarray]:
    encoder = prefix + "_token_embedder."
    chars = torch_layout.take(state, prefix + _ANCHOR, name, (None, None))  # (262, E)
    if np.any(chars[0]):
        log.warning("%s: the character vector for padding is not zero; it is never used and was left out", name)
    tensors = {"char_embed": chars[1:]}
    conv, highway = encoder + "char_conv_", encoder + "_highways._layers."
    tensors |= torch_layout.char_cnn(state, conv, highway, chars.shape[1], name)
    num_filters = sum(tensor.shape[0] for key, tensor in tensors.items() if key.startswith("CNN/b_"))
    tensors |= torch_layout.projection(state, encoder + "_projection", num_filters, name)
    tensors |= torch_layout.lstm(state, prefix + "_elmo_lstm.", tensors["CNN_proj/b_proj"].shape[0], name)
    return tensors


def _mixes(state: Mapping[str, np.ndarray], prefix: str, layers: int, name: str) -> list[tuple[np.ndarray, float]]:
    """Every scalar_mix_k beside the biLM; a bare biLM without the module around it has none."""
    outer = prefix.removesuffix("_elmo_lstm.") + "scalar_mix_"
    mixes = []
    for k in range(torch_layout.count(state, re.escape(outer) + r"(\d{1,4})\.gamma", name)):
        key = f"{outer}{k}."
        weights = [torch_layout.take(state, f"{key}scalar_parameters.{i}", name, (1,))[0] for i in range(layers)]
        gamma = float(torch_layout.take(state, key + "gamma", name, (1,))[0])
        mixes.append((np.array(weights), gamma))
    return mixes


def _options(tensors: Mapping[str, np.ndarray], configs: list[tuple[str, bytes]], name: str) -> dict[str, Any]:
    """What the shapes say, completed by an options file from the archive that does not contradict them."""
    filters: list[list[int]] = []
    while (weight := tensors.get(f"CNN/W_cnn_{len(filters)}")) is not None:
        filters.append([weight.shape[1], weight.shape[3]])
    cell_dim, proj_dim = tensors["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0"].shape
    shapes: dict[str, dict[str, Any]] = {
        "lstm": {
            "dim": cell_dim,
            "projection_dim": proj_dim,
            "n_layers": sum(key.startswith("RNN_0/") and key.endswith("/B") for key in tensors),
        },
        "char_cnn": {
            "embedding": {"dim": tensors["char_embed"].shape[1]},
            "filters": filters,
            "n_highway": sum(key.endswith("/b_carry") for key in tensors),
        },
    }
    defaults = {
        "lstm": {"cell_clip": 3, "proj_clip": 3, "use_skip_connections": True},
        "char_cnn": {
            "activation": "relu",
            "max_characters_per_token": 50,
            "n_characters": tensors["char_embed"].shape[0] + 1,
        },
    }
    found = [options for source, text in configs for options in _find_options(source, text)]
    fitting = [options for options in found if _fits(options, shapes)]
    if found and not fitting:
        raise WeightsError(f"{name}: the options file in it does not fit its weights, whose sizes are {shapes}.")
    if not fitting:
        log.warning("%s has no ELMo options in it: took clips of 3, relu and 50 characters a word", name)
    given = fitting[0] if fitting else {}
    return {part: {**defaults[part], **given.get(part, {}), **shapes[part]} for part in ("lstm", "char_cnn")}


def _find_options(source: str, text: bytes) -> list[dict[str, Any]]:
    """Every object in a JSON file that looks like ELMo options, wherever it is nested."""
    if len(text) > _MAX_JSON_BYTES:
        raise WeightsError(f"{source} is larger than {_MAX_JSON_BYTES:,} bytes.")
    try:
        waiting: list[Any] = [json.loads(text)]
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{source} is not JSON ({type(error).__name__}).") from error
    found = []
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if isinstance(value.get("lstm"), dict) and isinstance(value.get("char_cnn"), dict):
                found.append(value)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


def _fits(options: dict[str, Any], shapes: Mapping[str, Mapping[str, Any]]) -> bool:
    return all(options[part].get(key, size) == size for part, sizes in shapes.items() for key, size in sizes.items())
