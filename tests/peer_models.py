"""Tiny random models in the layouts of AllenNLP and ELMoForManyLangs, written from their formats.

A model is drawn by the oracle (published names), converted here to a peer's names and layout with numpy and torch.save
only, and its expected vectors are computed by the oracle. No code of the elmo package is used.
"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import torch

PREFIX = "text_field_embedder.token_embedder_elmo._elmo._elmo_lstm."
SENTENCES = [["The", "cat", "sat", "."], ["a", "ünï", "unheard-of", "mat", "x" * 60], ["."]]
CHARS = [*"abcdefghijklmnopqrstuvwxyz.-", "ü", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
WORDS = ["<oov>", "<bos>", "<eos>", "<pad>", "the", "cat", "abcdefgh"]

# every coincidence of sizes from which a reader could draw a false conclusion
COINCIDENCES: dict[str, dict[str, Any]] = {
    "no coincidence": {"dim": 12},
    "dim = projection_dim": {"dim": 4},
    "filters = projection_dim": {"dim": 12, "filters": [[1, 1], [3, 3]]},
    "dim = filters = projection_dim": {"dim": 4, "filters": [[1, 1], [3, 3]]},
    "one layer": {"dim": 4, "n_layers": 1},
    "one filter width": {"dim": 12, "filters": [[2, 4]]},
    "no highways": {"dim": 4, "n_highway": 0, "filters": [[1, 1], [3, 3]]},
    "char_dim = projection_dim": {"dim": 12, "char_dim": 4},
}


def random_model(seed: int = 0, **choices: Any) -> tuple[oracle.Options, oracle.Weights]:
    """A model with both projections, as all AllenNLP and ELMoForManyLangs models have."""
    settings = {"projection_dim": 4, "n_layers": 2, "n_highway": 1, "skip": True, "cell_clip": 3.0, "proj_clip": 3.0}
    settings |= {"max_chars": 50, "activation": "relu", "char_dim": 3, "filters": [[1, 3], [2, 5]]}
    return oracle.random_model(
        np.random.default_rng(seed), **{**settings, **choices}, char_input=True, always_projects=True
    )


def allennlp_state(options: oracle.Options, weights: oracle.Weights, prefix: str = PREFIX) -> dict[str, torch.Tensor]:
    """The state dict of AllenNLP's `_ElmoBiLm` (modules/elmo.py, elmo_lstm.py) for a model under published names."""
    state = {"_token_embedder._char_embedding_weights": np.pad(weights["char_embed"], ((1, 0), (0, 0)))}
    state |= _convolutions(options, weights, "_token_embedder.char_conv_", "_token_embedder._highways._layers.")
    if "CNN_proj/W_proj" in weights:
        state["_token_embedder._projection.weight"] = weights["CNN_proj/W_proj"].T
        state["_token_embedder._projection.bias"] = weights["CNN_proj/b_proj"]
    state |= _lstms(options, weights, "_elmo_lstm.")
    return {prefix + name: torch.from_numpy(np.array(array, order="C")) for name, array in state.items()}


def write_archive(path: Path, options: oracle.Options, state: dict[str, torch.Tensor]) -> Path:
    """A model.tar.gz with weights.th and the ELMo's options, as `allennlp train` packs it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    members = {
        "config.json": b"{}",
        "weights.th": buffer.getvalue(),
        "fta/model.text_field_embedder.token_embedders.elmo.options_file": json.dumps(options).encode(),
    }
    return write_tar(path, members)


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    """A model.tar.gz with the given members."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def random_manylangs(
    seed: int = 0, *, words: bool = True, chars: bool = True, **choices: Any
) -> tuple[oracle.Options, oracle.Weights]:
    """A model with tables of `WORDS` ("word_embed") and `CHARS` ("char_embed"); their features are concatenated."""
    rng = np.random.default_rng(seed)
    options, weights = random_model(seed, **{"max_chars": 10, **choices})
    E, P = options["char_cnn"]["embedding"]["dim"], options["lstm"]["projection_dim"]
    if chars:
        weights["char_embed"] = rng.standard_normal((len(CHARS), E)).astype(np.float32)
    else:
        weights = {name: array for name, array in weights.items() if not name.startswith(("char", "CNN/", "CNN_h"))}
    features = sum(count for _, count in options["char_cnn"]["filters"]) if chars else 0
    if words:
        weights["word_embed"] = rng.standard_normal((len(WORDS), P if not chars else 3)).astype(np.float32)
        features += weights["word_embed"].shape[1]
    weights["CNN_proj/W_proj"] = (rng.standard_normal((features, P)) / features**0.5).astype(np.float32)
    return options, weights


def write_manylangs(folder: Path, options: oracle.Options, weights: oracle.Weights) -> Path:
    """A folder of ELMoForManyLangs: config.json, sizes.json, char.dic, word.dic, token_embedder.pkl, encoder.pkl."""
    folder.mkdir(parents=True, exist_ok=True)
    embedder: dict[str, np.ndarray] = {
        "projection.weight": weights["CNN_proj/W_proj"].T,
        "projection.bias": weights["CNN_proj/b_proj"],
    }
    if "char_embed" in weights:
        embedder["char_emb_layer.embedding.weight"] = weights["char_embed"]
        embedder |= _convolutions(options, weights, "convolutions.", "highways._layers.")
    if "word_embed" in weights:
        embedder["word_emb_layer.embedding.weight"] = weights["word_embed"]
    for name, arrays in (("token_embedder.pkl", embedder), ("encoder.pkl", _lstms(options, weights, ""))):
        torch.save({key: torch.from_numpy(np.array(array, order="C")) for key, array in arrays.items()}, folder / name)
    for name, symbols in (("char.dic", CHARS), ("word.dic", WORDS)):
        lines = [f"{symbol}\t{number}\n" for number, symbol in enumerate(symbols)]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    lstm, cnn = options["lstm"], options["char_cnn"]
    sizes = {key: lstm[key] for key in ("dim", "projection_dim", "n_layers", "cell_clip", "proj_clip")}
    settings = {
        "encoder": {"name": "elmo", **sizes},
        "token_embedder": {
            "name": "cnn",
            "activation": cnn["activation"],
            "filters": cnn["filters"],
            "n_highway": cnn["n_highway"],
            "char_dim": weights["char_embed"].shape[1] if "char_embed" in weights else 0,
            "word_dim": weights["word_embed"].shape[1] if "word_embed" in weights else 0,
            "max_characters_per_token": cnn["max_characters_per_token"],
        },
        "dropout": 0.1,
    }
    if "char_embed" not in weights:  # a word-only model states no filters
        del settings["token_embedder"]["filters"], settings["token_embedder"]["n_highway"]  # type: ignore[index]
    (folder / "config.json").write_text(json.dumps({"config_path": "/home/someone/sizes.json"}))
    (folder / "sizes.json").write_text(json.dumps(settings))
    return folder


def manylangs_layers(options: oracle.Options, weights: oracle.Weights, tokens: list[str]) -> np.ndarray:
    """All layers (L+1, n, 2P) of one sentence: frontend.py's ids, then the oracle's token layer and LSTMs.

    Words are cut to max_characters_per_token - 2 characters before both lookups (elmo.py, `read_list`); the begin and
    end marks of a word are interchanged (frontend.py, `create_one_batch`).
    """
    cnn, width = options["char_cnn"], options["char_cnn"]["max_characters_per_token"]
    words = ["<bos>", *(token[: width - 2] for token in tokens), "<eos>"]
    features = []
    if "word_embed" in weights:
        numbers = [WORDS.index(word) if word in WORDS else WORDS.index("<oov>") for word in words]
        features.append(weights["word_embed"].astype(np.float64)[numbers])
    if "char_embed" in weights:
        rows = []
        for word in words:
            symbols = [word] if word in ("<bos>", "<eos>") else list(word)
            row = ["<eow>", *(s if s in CHARS else "<oov>" for s in symbols), "<bow>"]
            rows.append([CHARS.index(s) + 1 for s in row + ["<pad>"] * (width - len(row))])
        unprojected = {name: array for name, array in weights.items() if not name.startswith("CNN_proj")}
        features.append(oracle.token_vectors({**options, "char_cnn": cnn}, unprojected, np.array(rows)))
    x = np.concatenate(features, axis=1) @ weights["CNN_proj/W_proj"].astype(np.float64) + weights["CNN_proj/b_proj"]
    state = oracle.zero_state(options)
    forward, _ = oracle.lstm_stack(options, weights, 0, x, state[0])
    backward, _ = oracle.lstm_stack(options, weights, 1, x[::-1], state[1])
    layers = [np.concatenate([x, x], axis=1)]
    layers += [np.concatenate([f, b[::-1]], axis=1) for f, b in zip(forward, backward, strict=True)]
    return np.array(layers)[:, 1:-1]


def _convolutions(options: oracle.Options, weights: oracle.Weights, conv: str, highway: str) -> dict[str, np.ndarray]:
    state: dict[str, np.ndarray] = {}
    for i in range(len(options["char_cnn"]["filters"])):
        state[f"{conv}{i}.weight"] = weights[f"CNN/W_cnn_{i}"][0].transpose(2, 1, 0)  # (count, E, width)
        state[f"{conv}{i}.bias"] = weights[f"CNN/b_cnn_{i}"]
    for k in range(options["char_cnn"]["n_highway"]):
        layer = {name: weights[f"CNN_high_{k}/{name}"] for name in oracle.HIGHWAY}
        state[f"{highway}{k}.weight"] = np.vstack([layer["W_transform"].T, -layer["W_carry"].T])
        state[f"{highway}{k}.bias"] = np.hstack([layer["b_transform"], -layer["b_carry"]])
    return state


def _lstms(options: oracle.Options, weights: oracle.Weights, prefix: str) -> dict[str, np.ndarray]:
    """Gates in the order i, f, g, o, and the forget bias of 1 included in the bias."""
    state: dict[str, np.ndarray] = {}
    P = options["lstm"]["projection_dim"]
    for direction, word in enumerate(("forward", "backward")):
        for number in range(options["lstm"]["n_layers"]):
            kernel, bias, projection = oracle.cell_arrays(options, weights, direction, number)
            assert kernel is not None
            assert bias is not None
            i, g, f, o = np.split(kernel, 4, axis=1)
            bias_i, bias_g, bias_f, bias_o = np.split(bias, 4)
            rows = np.hstack([i, f, g, o]).T  # (4H, 2P)
            key = f"{prefix}{word}_layer_{number}."
            state[key + "input_linearity.weight"], state[key + "state_linearity.weight"] = rows[:, :P], rows[:, P:]
            state[key + "state_linearity.bias"] = np.hstack([bias_i, bias_f + np.float32(1), bias_g, bias_o])
            if projection is not None:
                state[key + "state_projection.weight"] = projection.T
    return state
