"""ELMoForManyLangs folders: config.json, char.dic, word.dic, token_embedder.pkl, encoder.pkl.

Its network is a copy of AllenNLP's with another front: characters are Unicode characters numbered by char.dic instead
of bytes, and a word vector from word.dic may stand before the character filters, [word; characters] -> projection. The
tensors get the published names, plus `word_embed`. Ids are made by a token indexer from the two lexicons.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import WeightsError
from elmo.weights import torch_layout
from elmo.weights.torch_pickle import read_state_dict

log = logging.getLogger(__name__)

_MAX_TEXT_BYTES = 256 << 20
CHAR_SYMBOLS = ("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>")
WORD_SYMBOLS = ("<oov>", "<pad>")


@dataclass(frozen=True, kw_only=True)
class ManyLangsModel:
    """An ELMoForManyLangs model; `tensors` has "word_embed" and "char_embed" only where the model uses them."""

    config: dict[str, Any]  # encoder, token_embedder, dropout, ... as in its configs/*.json
    char_lexicon: dict[str, int] | None  # character or symbol -> row of char_embed; None: no characters
    word_lexicon: dict[str, int] | None  # word or symbol -> row of word_embed; None: no word vectors
    tensors: dict[str, np.ndarray]  # by published dataset name
    forget_bias_included: bool  # the LSTM biases already hold the forget bias


def read_manylangs(folder: str | Path) -> ManyLangsModel:
    """The model in a folder; sizes come from the tensors and must agree with the config file where there is one.

    config.json names that file by a path on its author's machine: only its base name is used, in the folder or in
    its configs/. Where it is not found, what shapes cannot tell takes the values of cnn_50_100_512_4096_sample.json,
    the sample configuration that ELMoForManyLangs ships.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise WeightsError(f"{folder} is not a folder.")
    embedder_path, encoder_path = folder / "token_embedder.pkl", folder / "encoder.pkl"
    for path in (embedder_path, encoder_path):
        if not path.is_file():
            raise WeightsError(f"{path} does not exist.", "An ELMoForManyLangs folder has one.")
    config = _read_config(folder)
    embedder = read_state_dict(embedder_path, str(embedder_path))
    encoder = read_state_dict(encoder_path, str(encoder_path))
    tensors = _token_tensors(embedder, str(embedder_path))
    if any(key.startswith("encoder.weight_ih_l") for key in encoder):
        raise WeightsError(f"{encoder_path} is of the kind 'lstm', only 'elmo' encoders are read.")
    tensors |= torch_layout.lstm(encoder, "", tensors["CNN_proj/b_proj"].shape[0], str(encoder_path))
    return ManyLangsModel(
        config=_complete(config, tensors, folder),
        char_lexicon=_lexicon(folder / "char.dic", tensors.get("char_embed"), CHAR_SYMBOLS),
        word_lexicon=_lexicon(folder / "word.dic", tensors.get("word_embed"), WORD_SYMBOLS),
        tensors={name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()},
        forget_bias_included=True,
    )


def _token_tensors(state: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    if any(key.startswith("char_lstm.") for key in state):
        raise WeightsError(f"{name} reads characters with an LSTM, only the 'cnn' kind is read.")
    tensors: dict[str, np.ndarray] = {}
    input_dim = 0
    if "word_emb_layer.embedding.weight" in state:
        tensors["word_embed"] = torch_layout.take(state, "word_emb_layer.embedding.weight", name, (None, None))
        input_dim += tensors["word_embed"].shape[1]
    if "char_emb_layer.embedding.weight" in state:
        chars = torch_layout.take(state, "char_emb_layer.embedding.weight", name, (None, None))
        tensors["char_embed"] = chars
        tensors |= torch_layout.char_cnn(state, "convolutions.", "highways._layers.", chars.shape[1], name)
        input_dim += sum(tensor.shape[0] for key, tensor in tensors.items() if key.startswith("CNN/b_"))
    if not input_dim:
        raise WeightsError(f"{name} has neither word nor character vectors.", "Is it from ELMoForManyLangs?")
    return tensors | torch_layout.projection(state, "projection", input_dim, name)  # [word; characters] -> P


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is not JSON ({type(error).__name__}).") from error
    if not isinstance(value, dict):
        raise WeightsError(f"{path} holds {type(value).__name__}, an object was expected.")
    return value


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_TEXT_BYTES:
            raise WeightsError(f"{path} has {path.stat().st_size:,} bytes, at most {_MAX_TEXT_BYTES:,} make sense.")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except UnicodeDecodeError as error:
        raise WeightsError(f"{path} is not UTF-8 (byte {error.start}).") from error


def _read_config(folder: Path) -> dict[str, Any]:
    """The file config.json points to, config.json itself where someone put the settings there, or nothing."""
    path = folder / "config.json"
    config = _read_json(path) if path.is_file() else {}
    if "encoder" in config or "token_embedder" in config:
        return config
    base = re.split(r"[/\\]", str(config.get("config_path", "")))[-1]
    for candidate in (folder / base, folder / "configs" / base):
        if base and candidate != path and candidate.is_file():
            return _read_json(candidate)
    log.warning("%s: the settings file %r is not there; took clips of 3, relu and 50 characters a word", folder, base)
    return {}


def _complete(config: dict[str, Any], tensors: Mapping[str, np.ndarray], folder: Path) -> dict[str, Any]:
    """The config with every size in it, after each one given was found to agree with the tensors."""
    filters: list[list[int]] = []
    while (weight := tensors.get(f"CNN/W_cnn_{len(filters)}")) is not None:
        filters.append([weight.shape[1], weight.shape[3]])
    cell_dim, proj_dim = tensors["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0"].shape
    shapes: dict[str, dict[str, Any]] = {
        "encoder": {
            "name": "elmo",
            "projection_dim": proj_dim,
            "dim": cell_dim,
            "n_layers": sum(key.startswith("RNN_0/") and key.endswith("/B") for key in tensors),
        },
        "token_embedder": {
            "name": "cnn",
            "word_dim": tensors["word_embed"].shape[1] if "word_embed" in tensors else 0,
            "char_dim": tensors["char_embed"].shape[1] if "char_embed" in tensors else 0,
        },
    }
    if filters:
        highways = sum(key.endswith("/b_carry") for key in tensors)
        shapes["token_embedder"] |= {"filters": filters, "n_highway": highways}
    defaults: dict[str, dict[str, Any]] = {
        "encoder": {"cell_clip": 3, "proj_clip": 3},
        "token_embedder": {"activation": "relu", "max_characters_per_token": 50, "filters": [], "n_highway": 0},
    }
    complete = {"dropout": 0.1, **config}
    for part, sizes in shapes.items():
        given = config.get(part, {})
        if not isinstance(given, dict):
            raise WeightsError(f"{folder}: '{part}' in its settings is not an object.")
        for key, size in sizes.items():
            said = given.get(key, size)
            if said != size and not (key == "name" and str(said).lower() == size):
                raise WeightsError(f"{folder}: its settings say {part}.{key} = {said!r}, its weights say {size!r}.")
        complete[part] = {**defaults[part], **given, **sizes}
    return complete


def _lexicon(path: Path, vectors: np.ndarray | None, symbols: tuple[str, ...]) -> dict[str, int] | None:
    """entry -> id from lines of `entry TAB id`; an empty entry is U+3000, which ELMoForManyLangs' own reader strips.

    None where the model has no vectors that it numbers: a word.dic is always written, for the softmax.
    """
    if vectors is None:
        return None
    if not path.is_file():
        raise WeightsError(f"{path} does not exist, but the model has vectors numbered by it.")
    lexicon: dict[str, int] = {}
    # Split at newlines only: other line separators occur as entries.
    for number, line in enumerate(_read_text(path).split("\n"), 1):
        if not line.strip("\r"):
            continue
        entry, _, digits = line.rstrip("\r").rpartition("\t")
        if re.fullmatch(r"[0-9]{1,9}", digits) is None:
            raise WeightsError(f"{path}:{number}: expected an entry, a tab and a number, found {line[:80]!r}.")
        lexicon[entry or "\u3000"] = int(digits)
    for symbol in symbols:
        if symbol not in lexicon:
            raise WeightsError(f"{path} has no {symbol}.", "Every ELMoForManyLangs lexicon has one.")
    highest = max(lexicon.values())
    if highest >= vectors.shape[0]:
        raise WeightsError(f"{path} numbers up to {highest}, the model has vectors for 0..{vectors.shape[0] - 1}.")
    return lexicon
