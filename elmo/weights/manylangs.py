"""Reads ELMoForManyLangs folders: config.json, char.dic, word.dic, token_embedder.pkl, encoder.pkl.

The network is a copy of AllenNLP's with another input layer: characters are Unicode characters numbered by char.dic
instead of bytes, and a word vector from word.dic may precede the character filters, [word; characters] -> projection.
The arrays get the published names, plus `word_embed`. A token indexer makes the ids from the two lexicons.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import ConfigError, WeightsError
from elmo.files import read_json
from elmo.model.config import BiLMConfig, CharConfig, LSTMConfig, WordConfig
from elmo.weights import torch_layout
from elmo.weights.memory_bound import claim, memory_bound
from elmo.weights.model_parts import CHAR_SYMBOLS, WORD_SYMBOLS, Lexicon, ModelParts, check_lexicon_table
from elmo.weights.names import from_arrays, refuse_extra
from elmo.weights.torch_pickle import read_state_dict

log = logging.getLogger(__name__)

_MAX_TEXT_BYTES = 256 << 20
_BYTES_PER_ENTRY = 10  # of memory, per byte of a lexicon whose words are short


@dataclass(frozen=True, kw_only=True)
class ManyLangsArrays:
    """An ELMoForManyLangs model as stored. Its LSTM biases already include the forget bias.

    `arrays` has "word_embed" and "char_embed" only if the model uses them.
    """

    settings: dict[str, Any]  # encoder, token_embedder, dropout, ... as in its configs/*.json
    char_lexicon: dict[str, int] | None  # character or symbol -> row of char_embed; None: no characters
    word_lexicon: dict[str, int] | None  # word or symbol -> row of word_embed; None: no word vectors
    arrays: dict[str, np.ndarray]  # by published dataset name


def read_manylangs(folder: str | Path) -> ModelParts:
    """The model in an ELMoForManyLangs folder, with its lexicons."""
    folder = Path(folder)
    model = read_manylangs_arrays(folder)
    try:
        config = _config(model.settings, model.arrays)
    except ConfigError as error:
        raise WeightsError(f"{folder}: its settings are impossible: {error.message}", error.hint) from error
    return ModelParts(
        config=config,
        tensors=from_arrays(config, model.arrays, str(folder)),
        lexicon=Lexicon(
            chars=model.char_lexicon,
            words=model.word_lexicon,
            max_chars=model.settings["token_embedder"]["max_characters_per_token"],
        ),
        about={"format": "manylangs", "source": folder.name},
        format="manylangs",
        source=str(folder),
    )


def read_manylangs_arrays(folder: str | Path) -> ManyLangsArrays:
    """The files of a folder; sizes come from the tensors and must agree with the settings file if there is one.

    config.json names that file by a path on its author's machine: only its base name is used, in the folder or in
    its configs/. Without that file, what shapes cannot tell has the values of cnn_50_100_512_4096_sample.json,
    the sample configuration that ELMoForManyLangs ships.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise WeightsError(f"{folder} is not a folder.")
    embedder_path, encoder_path = folder / "token_embedder.pkl", folder / "encoder.pkl"
    for path in (embedder_path, encoder_path):
        if not path.is_file():
            raise WeightsError(f"{path} does not exist.", "An ELMoForManyLangs folder has one.")
    with memory_bound(folder):
        return _read_arrays(folder, embedder_path, encoder_path)


def _read_arrays(folder: Path, embedder_path: Path, encoder_path: Path) -> ManyLangsArrays:
    settings = _read_settings(folder)
    embedder = torch_layout.TrackedArrays(read_state_dict(embedder_path, str(embedder_path)))
    encoder = torch_layout.TrackedArrays(read_state_dict(encoder_path, str(encoder_path)))
    arrays = _token_arrays(embedder, str(embedder_path))
    if any(key.startswith("encoder.weight_ih_l") for key in encoder):
        raise WeightsError(f"{encoder_path} is of the kind 'lstm', only 'elmo' encoders are read.")
    arrays |= torch_layout.lstm(encoder, "", arrays["CNN_proj/b_proj"].shape[0], str(encoder_path))
    for path, state in ((embedder_path, embedder), (encoder_path, encoder)):
        refuse_extra(str(path), state.unread())
    return ManyLangsArrays(
        settings=_complete(settings, arrays, folder),
        char_lexicon=_read_lexicon(folder / "char.dic", arrays.get("char_embed"), CHAR_SYMBOLS),
        word_lexicon=_read_lexicon(folder / "word.dic", arrays.get("word_embed"), WORD_SYMBOLS),
        arrays={name: np.ascontiguousarray(array) for name, array in arrays.items()},
    )


def _config(settings: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> BiLMConfig:
    encoder, tokens = settings["encoder"], settings["token_embedder"]
    chars, words = None, None
    if "char_embed" in arrays:
        chars = CharConfig(
            num_chars=len(arrays["char_embed"]),
            char_dim=arrays["char_embed"].shape[1],
            max_chars=tokens.get("max_characters_per_token", 50),
            filters=tuple((width, count) for width, count in tokens["filters"]),
            activation=tokens.get("activation", "relu"),
            num_highways=tokens.get("n_highway", 0),
        )
    if "word_embed" in arrays:
        words = WordConfig(num_words=len(arrays["word_embed"]), word_dim=arrays["word_embed"].shape[1])
    lstm = LSTMConfig(
        num_layers=encoder["n_layers"],
        cell_dim=encoder["dim"],
        proj_dim=encoder["projection_dim"],
        project=True,  # always, also between equal sizes
        cell_clip=encoder.get("cell_clip") or None,  # ELMoForManyLangs tests `if clip:`, so that 0 is off
        proj_clip=encoder.get("proj_clip") or None,
        skip=True,
        forget_bias=0.0,  # it is in the biases
    )
    return BiLMConfig(chars=chars, words=words, lstm=lstm, project_tokens=True)


def _token_arrays(state: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    if any(key.startswith("char_lstm.") for key in state):
        raise WeightsError(f"{name} reads characters with an LSTM, only the 'cnn' kind is read.")
    arrays: dict[str, np.ndarray] = {}
    input_dim = 0
    if "word_emb_layer.embedding.weight" in state:
        arrays["word_embed"] = torch_layout.take(state, "word_emb_layer.embedding.weight", name, (None, None))
        input_dim += arrays["word_embed"].shape[1]
    if "char_emb_layer.embedding.weight" in state:
        chars = torch_layout.take(state, "char_emb_layer.embedding.weight", name, (None, None))
        arrays["char_embed"] = chars
        arrays |= torch_layout.char_cnn(state, "convolutions.", "highways._layers.", chars.shape[1], name)
        input_dim += sum(array.shape[0] for key, array in arrays.items() if key.startswith("CNN/b_"))
    if not input_dim:
        raise WeightsError(f"{name} has neither word nor character vectors.", "Is it from ELMoForManyLangs?")
    return arrays | torch_layout.projection(state, "projection", input_dim, name)  # [word; characters] -> P


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_TEXT_BYTES:
            raise WeightsError(f"{path} has {path.stat().st_size:,} bytes; expected at most {_MAX_TEXT_BYTES:,}.")
        claim(_BYTES_PER_ENTRY * path.stat().st_size, path)
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except UnicodeDecodeError as error:
        raise WeightsError(f"{path} is not UTF-8 (byte {error.start}).") from error


def _read_settings(folder: Path) -> dict[str, Any]:
    """The settings in the file that config.json names, or in config.json itself; empty if there are none."""
    path = folder / "config.json"
    config = read_json(path, error=WeightsError) if path.is_file() else {}
    if "encoder" in config or "token_embedder" in config:
        return config
    base = re.split(r"[/\\]", str(config.get("config_path", "")))[-1]
    for candidate in (folder / base, folder / "configs" / base):
        if base and candidate != path and candidate.is_file():
            return read_json(candidate, error=WeightsError)
    log.warning("%s: no settings file %r: uses clips of 3, relu and 50 characters per word", folder, base)
    return {}


def _complete(settings: dict[str, Any], arrays: Mapping[str, np.ndarray], folder: Path) -> dict[str, Any]:
    """The settings with every size filled in; a size in the settings that the arrays contradict is an error."""
    network = torch_layout.network_sizes(arrays)
    from_shapes: dict[str, dict[str, Any]] = {
        "encoder": {
            "name": "elmo",
            "projection_dim": network.proj_dim,
            "dim": network.cell_dim,
            "n_layers": network.num_layers,
        },
        "token_embedder": {
            "name": "cnn",
            "word_dim": arrays["word_embed"].shape[1] if "word_embed" in arrays else 0,
            "char_dim": arrays["char_embed"].shape[1] if "char_embed" in arrays else 0,
        },
    }
    if network.filters:
        from_shapes["token_embedder"] |= {"filters": network.filters, "n_highway": network.num_highways}
    defaults: dict[str, dict[str, Any]] = {
        "encoder": {"cell_clip": 3, "proj_clip": 3},
        "token_embedder": {"activation": "relu", "max_characters_per_token": 50, "filters": [], "n_highway": 0},
    }
    complete = {"dropout": 0.1, **settings}
    for part, sizes in from_shapes.items():
        section = settings.get(part, {})
        if not isinstance(section, dict):
            raise WeightsError(f"{folder}: '{part}' in its settings is not an object.")
        for key, size in sizes.items():
            value = section.get(key, size)
            if value != size and not (key == "name" and str(value).lower() == size):
                raise WeightsError(f"{folder}: its settings say {part}.{key} = {value!r}, its weights say {size!r}.")
        complete[part] = {**defaults[part], **section, **sizes}
    return complete


def _read_lexicon(path: Path, vectors: np.ndarray | None, symbols: tuple[str, ...]) -> dict[str, int] | None:
    """entry -> id from lines of `entry TAB id`; None if the model has no `vectors` for these entries.

    An empty entry is U+3000, which ELMoForManyLangs' own reader strips. A word.dic always exists, for the softmax.
    """
    if vectors is None:
        return None
    if not path.is_file():
        raise WeightsError(f"{path} does not exist, but the model has vectors that it numbers.")
    lexicon: dict[str, int] = {}
    # split at newlines only, because other line separators occur as entries
    for number, line in enumerate(_read_text(path).split("\n"), 1):
        if not line.strip("\r"):
            continue
        entry, _, digits = line.rstrip("\r").rpartition("\t")
        if re.fullmatch(r"[0-9]{1,9}", digits) is None:
            raise WeightsError(
                f"{path}:{number}: expected an entry, a tab and a number, but the line is {line[:80]!r}."
            )
        lexicon[entry or "\u3000"] = int(digits)
    check_lexicon_table(lexicon, vectors.shape[0], symbols, str(path))
    return lexicon
