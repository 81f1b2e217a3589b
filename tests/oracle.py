"""The oracle: a slow, simple biLM in NumPy float64, with which the fast code is compared.

It shares no code with the elmo package and uses only the published file layout. One sentence is one row, without
padding and batching; every recurrence is an explicit loop. Arrays have their published names in a flat dict, for
example "char_embed", "CNN/W_cnn_0" or "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0". Options are the published
options.json.

    options, weights = load("options.json", "weights.hdf5")
    layers, state = run(options, weights, [["The", "cat", "sat", "."]])     # layers[0]: (L+1, 4 + 2, 2P)

It is one long file so that it is self-contained: files, ids, the network, the layer mix and the language model, and
random models for tests. Letters in shapes: T tokens with boundaries, C characters per token, E character vector,
F filters, P projection, H cell, L layers, D = 2P (P when unidirectional), V vocabulary, n tokens without boundaries.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Options = dict[str, Any]
Weights = dict[str, np.ndarray]
RowState = list[list[tuple[np.ndarray, np.ndarray]]]  # [direction][layer] = (h (P,), c (H,)); direction 0 is forward

PARTS, TF_PARTS = ("W_0", "B", "W_P_0"), ("kernel", "bias", "projection/kernel")  # arrays of one LSTM cell
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 256, 257, 258, 259, 260  # before the +1 shift


# ---- files ----


def load(options_path: str | Path, weights_path: str | Path) -> tuple[Options, Weights]:
    """Options and every dataset of the weights file under its full name."""
    options = json.loads(Path(options_path).read_text(encoding="utf-8"))
    weights: Weights = {}

    def store(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset):
            weights[name] = item[...]

    with h5py.File(weights_path, "r") as file:
        file.visititems(store)
    return options, weights


def write(folder: str | Path, options: Options, weights: Weights) -> tuple[Path, Path]:
    """Writes options.json and weights.hdf5 (float32) to an existing folder and returns their paths."""
    options_path, weights_path = Path(folder) / "options.json", Path(folder) / "weights.hdf5"
    options_path.write_text(json.dumps(options, indent=2), encoding="utf-8")
    with h5py.File(weights_path, "w") as file:
        for name, array in weights.items():
            file.create_dataset(name, data=array, dtype="float32")
    return options_path, weights_path


# ---- ids ----


def char_ids(tokens: list[str], max_chars: int) -> np.ndarray:
    """Character ids (n+2, max_chars): a row for <S>, one per token, a row for </S>. Shifted by +1, 0 = padding.

    The tokens "<S>" and "</S>" also become boundary rows. Tokens are cut to max_chars - 2 UTF-8 bytes.
    """
    rows = []
    for token in ["<S>", *tokens, "</S>"]:
        if token == "<S>":
            characters = [BEGIN_SENTENCE]
        elif token == "</S>":
            characters = [END_SENTENCE]
        else:
            characters = list(token.encode("utf-8", "ignore")[: max_chars - 2])
        row = [BEGIN_WORD, *characters, END_WORD]
        row += [PADDING] * (max_chars - len(row))
        rows.append([i + 1 for i in row])
    return np.array(rows, dtype=np.int64)


def vocab_ids(tokens: list[str], vocab: list[str]) -> np.ndarray:
    """Line numbers (n+2,) of <S>, the tokens and </S> in the vocabulary, not shifted: the softmax targets.

    A word outside the vocabulary is <UNK>; -1 if <S>, </S> or <UNK> itself is missing.
    """
    number = {word: k for k, word in enumerate(vocab)}
    unknown = number.get("<UNK>", -1)
    inner = [number.get(token, unknown) for token in tokens]
    return np.array([number.get("<S>", -1), *inner, number.get("</S>", -1)], dtype=np.int64)


def input_ids(options: Options, tokens: list[str], vocab: list[str] | None) -> np.ndarray:
    """The input of the token encoder: (n+2, C) characters or (n+2,) words, both shifted by +1."""
    if "char_cnn" in options:
        return char_ids(tokens, options["char_cnn"]["max_characters_per_token"])
    if vocab is None:
        raise ValueError("a word-input model needs vocab")
    return vocab_ids(tokens, vocab) + 1


# ---- token layer ----


def token_vectors(options: Options, weights: Weights, ids: np.ndarray) -> np.ndarray:
    """Context-independent vectors (T, P) of shifted ids: (T, C) characters, or (T,) words if there is no char_cnn.

    Padding characters are ordinary characters here. A row of zeros has zero vectors, so its features are act(bias).
    """
    if "char_cnn" not in options:
        table = weights["embedding"].astype(np.float64)  # (V, P)
        return np.vstack([np.zeros((1, table.shape[1])), table])[ids]  # (T, P)

    cnn = options["char_cnn"]
    table = weights["char_embed"].astype(np.float64)  # (261, E)
    chars = np.vstack([np.zeros((1, table.shape[1])), table])[ids]  # (T, C, E)

    pooled = []
    for k, (width, _) in enumerate(cnn["filters"]):
        kernel = weights[f"CNN/W_cnn_{k}"].astype(np.float64)[0]  # (width, E, n)
        bias = weights[f"CNN/b_cnn_{k}"].astype(np.float64)  # (n,)
        windows = []
        for start in range(chars.shape[1] - width + 1):
            value = bias
            for j in range(width):
                value = value + chars[:, start + j] @ kernel[j]
            windows.append(value)  # (T, n)
        pooled.append(np.max(windows, axis=0))
    x = np.concatenate(pooled, axis=1)  # (T, F)
    if cnn["activation"] not in ("relu", "tanh"):
        raise ValueError(f"activation is {cnn['activation']!r}, expected relu or tanh")
    x = relu(x) if cnn["activation"] == "relu" else np.tanh(x)

    for k in range(cnn.get("n_highway") or 0):
        w = {name: weights[f"CNN_high_{k}/{name}"].astype(np.float64) for name in HIGHWAY}
        gate = sigmoid(x @ w["W_carry"] + w["b_carry"])  # "carry" in the file is the weight of the new value
        x = gate * relu(x @ w["W_transform"] + w["b_transform"]) + (1.0 - gate) * x

    if "CNN_proj/W_proj" in weights:  # AllenNLP stores a projection even if the sizes are equal, bilm-tf does not
        x = x @ weights["CNN_proj/W_proj"].astype(np.float64) + weights["CNN_proj/b_proj"].astype(np.float64)  # (T, P)
    return x


# ---- LSTM stacks ----


def num_directions(options: Options) -> int:
    return 2 if options.get("bidirectional", True) else 1


def num_layers(options: Options) -> int:
    return options["lstm"].get("n_layers", 1)


def cell_arrays(options: Options, weights: Weights, direction: int, layer: int) -> list[np.ndarray | None]:
    """Kernel, bias and projection (None: there is none) of one LSTM cell.

    A dump with one layer or one direction has one level less for each, and one direction has TensorFlow's names.
    """
    cells = [f"MultiRNNCell/Cell{layer}/LSTMCell"] + (["LSTMCell"] if num_layers(options) == 1 else [])
    names = [(f"RNN_{direction}/RNN/{cell}", PARTS) for cell in cells]
    if num_directions(options) == 1:
        names += [(f"RNN/{cell}", PARTS) for cell in cells] + [(f"rnn/{cell}", TF_PARTS) for cell in cells]
    for prefix, parts in names:
        if f"{prefix}/{parts[0]}" in weights:
            return [weights.get(f"{prefix}/{part}") for part in parts]
    raise KeyError(f"no LSTM kernel under any of {names}")


def lstm_layer(
    options: Options, weights: Weights, direction: int, layer: int, x: np.ndarray, state: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Outputs (T, P), with the residual, and last (h, c) of one layer over x (T, P) in the given order."""
    lstm = options["lstm"]
    kernel, bias, projection = (
        None if array is None else array.astype(np.float64) for array in cell_arrays(options, weights, direction, layer)
    )  # (P + P, 4H): input rows first, columns i, j, f, o; (4H,); (H, P)
    assert kernel is not None
    assert bias is not None
    h, c = state
    outputs = []
    for x_t in x:
        i, j, f, o = np.split(np.concatenate([x_t, h]) @ kernel + bias, 4)
        c = sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j)  # (H,) the +1.0 is not in the file
        c = clip(c, lstm.get("cell_clip"))
        h = sigmoid(o) * np.tanh(c)
        if projection is not None:  # AllenNLP stores one even if the sizes are equal, bilm-tf does not
            h = h @ projection  # (P,)
            h = clip(h, lstm.get("proj_clip"))  # without a projection, h is not clipped
        residual = layer > 0 and lstm.get("use_skip_connections", False)
        outputs.append(h + x_t if residual else h)  # the recurrent h does not include the residual
    return np.array(outputs), (h, c)


def lstm_stack(
    options: Options, weights: Weights, direction: int, x: np.ndarray, state: list[tuple[np.ndarray, np.ndarray]]
) -> tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]]]:
    """Outputs [(T, P)] and last states of all layers of one direction, over x (T, P) from first row to last."""
    outputs, last = [], []
    for layer in range(num_layers(options)):
        x, layer_state = lstm_layer(options, weights, direction, layer, x, state[layer])
        outputs.append(x)
        last.append(layer_state)
    return outputs, last


def zero_state(options: Options) -> RowState:
    """The state of a row before its first token."""
    lstm = options["lstm"]
    return [
        [(np.zeros(lstm["projection_dim"]), np.zeros(lstm["dim"])) for _ in range(num_layers(options))]
        for _ in range(num_directions(options))
    ]


def run_ids(
    options: Options, weights: Weights, ids: np.ndarray, state: RowState | None = None
) -> tuple[np.ndarray, RowState]:
    """All layers (L+1, T, D) and last state of one row of shifted ids that include the boundaries."""
    state = zero_state(options) if state is None else state
    x = token_vectors(options, weights, ids)  # (T, P)
    forward, last = lstm_stack(options, weights, 0, x, state[0])
    if num_directions(options) == 1:
        return np.array([x, *forward]), [last]
    backward, backward_last = lstm_stack(options, weights, 1, x[::-1], state[1])
    layers = [np.concatenate([x, x], axis=1)]  # (T, D)
    for forward_layer, backward_layer in zip(forward, backward, strict=True):
        layers.append(np.concatenate([forward_layer, backward_layer[::-1]], axis=1))
    return np.array(layers), [last, backward_last]


def run(
    options: Options,
    weights: Weights,
    sentences: list[list[str]],
    state: list[RowState] | None = None,
    vocab: list[str] | None = None,
) -> tuple[list[np.ndarray], list[RowState]]:
    """Layers (L+1, n+2, D) of each sentence, boundary positions included, and the state of every row.

    Sentence k starts from state[k] (zeros if there is none). The argument `state` is not changed; rows without a
    sentence are returned as they are. The forward state is that after </S>, the backward state that after <S>.
    """
    rows = list(state or [])
    rows += [zero_state(options) for _ in range(len(sentences) - len(rows))]
    outputs = []
    for k, tokens in enumerate(sentences):
        layers, rows[k] = run_ids(options, weights, input_ids(options, tokens, vocab), rows[k])
        outputs.append(layers)
    return outputs, rows


# ---- layer mix and language model ----


def mix(
    layers: np.ndarray,
    mask: np.ndarray,
    w: np.ndarray | None,
    gamma: float,
    layer_norm: str | None = None,
    top_only: bool = False,
    eps: float = 1e-12,
) -> np.ndarray:
    """gamma * sum_l softmax(w)_l * layers_l for layers (L+1, ..., D) and a mask (...) of true positions.

    layer_norm="batch": one mean and variance per layer over all true positions and features, applied to masked
    positions as well. top_only: gamma * layers[-1], without w and without layer norm.
    """
    layers = np.asarray(layers, dtype=np.float64)
    if top_only:
        return gamma * layers[-1]
    if layer_norm not in (None, "batch"):
        raise ValueError(f"layer_norm={layer_norm!r}, expected None or 'batch'")
    w = np.asarray(w, dtype=np.float64)
    mix_weights = np.exp(w - w.max()) / np.exp(w - w.max()).sum()  # (L+1,)
    total = np.zeros(layers.shape[1:])
    for weight, layer in zip(mix_weights, layers, strict=True):
        if layer_norm == "batch":
            valid = layer[np.asarray(mask, dtype=bool)]  # (true positions, D)
            layer = (layer - valid.mean()) / np.sqrt(valid.var() + eps)
        total += weight * layer
    return gamma * total


def lm_log_probs(
    options: Options,
    weights: Weights,
    tokens: list[str],
    vocab: list[str],
    softmax_w: np.ndarray,
    softmax_b: np.ndarray,
    state: RowState | None = None,
) -> tuple[np.ndarray, np.ndarray | None, RowState]:
    """Log-probabilities (nats) of one sentence, forward (n+1,) and backward (n+1,), and the state for the next one.

    With <S> at position 0 and </S> at n+1: forward[k] is log p(token k+1 | tokens 0..k), backward[k] is
    log p(token k | tokens k+1..n+1), k = 0..n. As in training, </S> is never a forward input nor <S> a backward one, so
    the returned state differs from that of `run`. An unknown word is read by its characters and predicted as <UNK>.
    """
    state = zero_state(options) if state is None else state
    targets = vocab_ids(tokens, vocab)  # (n+2,)
    if (targets < 0).any():
        raise ValueError("the vocabulary lacks <S>, </S> or <UNK>")
    x = token_vectors(options, weights, input_ids(options, tokens, vocab))  # (n+2, P)

    def target_log_probs(top: np.ndarray, ids: np.ndarray) -> np.ndarray:
        logits = top @ softmax_w.astype(np.float64).T + softmax_b.astype(np.float64)  # (n+1, V)
        logits = logits - logits.max(axis=1, keepdims=True)
        return logits[np.arange(len(ids)), ids] - np.log(np.exp(logits).sum(axis=1))

    outputs, last = lstm_stack(options, weights, 0, x[:-1], state[0])
    forward = target_log_probs(outputs[-1], targets[1:])
    if num_directions(options) == 1:
        return forward, None, [last]
    outputs, backward_last = lstm_stack(options, weights, 1, x[:0:-1], state[1])  # positions n+1, n, ..., 1
    backward = target_log_probs(outputs[-1], targets[-2::-1])[::-1]
    return forward, backward, [last, backward_last]


# ---- elementary functions ----

HIGHWAY = ("W_carry", "b_carry", "W_transform", "b_transform")


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # the same function, without overflow


def clip(x: np.ndarray, limit: float | None) -> np.ndarray:
    return x if limit is None else np.clip(x, -limit, limit)


# ---- random models ----


def random_model(rng: np.random.Generator, **choices: Any) -> tuple[Options, Weights]:
    """Options and float32 weights (published names); what is not in `choices` is drawn at random.

    Drawn: char_input, max_chars, char_dim, filters, activation, n_highway, cnn_projection (False: F == P; not used when
    filters are chosen), projection_dim, lstm_projection (False: H == P), dim, n_layers, skip, cell_clip, proj_clip.
    Not drawn: bidirectional (True), vocab_size (11: rows of "embedding" for word input and of the softmax), softmax
    (False; True adds "softmax/W" (V, P) and "softmax/b" (V,)), dumped_names (False; True: the names of a training dump,
    without MultiRNNCell for one layer; for one direction without RNN_k and with TensorFlow's names of the arrays), tied
    (False; True: the softmax of a word-input model reuses "embedding", so there is no "softmax/W"), always_projects
    (False; True: both projections exist even if the sizes are equal, as in AllenNLP).
    """
    unknown = set(choices) - CHOICES
    if unknown:
        raise TypeError(f"unknown choices: {sorted(unknown)}")

    def choose(name: str, *values: Any) -> Any:
        drawn = values[rng.integers(len(values))]  # always drawn, so that a choice does not change the other draws
        return choices.get(name, drawn)

    projection_dim = choose("projection_dim", 2, 4, 6)
    factor = 3 if choose("lstm_projection", True, True, False) else 1
    options: Options = {
        "bidirectional": choices.get("bidirectional", True),
        "lstm": {
            "dim": choices.get("dim", projection_dim * factor),
            "projection_dim": projection_dim,
            "n_layers": choose("n_layers", 1, 2, 3),
            "use_skip_connections": choose("skip", True, False),
            "cell_clip": choose("cell_clip", None, 0.6, 1.5, 3.0),
            "proj_clip": choose("proj_clip", None, 0.2, 0.6, 3.0),
        },
    }
    if choose("char_input", True, True, True, False):
        max_chars = choose("max_chars", 8, 12, 50)
        filters = choose("filters", [[1, 3], [2, 5]], [[3, 8]], [[1, 2], [2, 3], [5, 4]])
        cnn_projection = choose("cnn_projection", True, True, False)
        if "filters" not in choices and not cnn_projection:
            filters = [[1, 1], [4, projection_dim - 1]]
        elif "filters" not in choices:
            filters = [*filters, [2, projection_dim]]  # the format requires F > P if there is a projection
        options["char_cnn"] = {
            "activation": choose("activation", "relu", "tanh"),
            "embedding": {"dim": choose("char_dim", 3, 4)},
            "filters": [list(pair) for pair in filters],
            "max_characters_per_token": max_chars,
            "n_characters": 262,
            "n_highway": choose("n_highway", 0, 1, 2),
        }
    vocab_size = choices.get("vocab_size", 11)
    if "char_cnn" not in options:
        options["n_tokens_vocab"] = vocab_size
        options["share_embedding_softmax"] = choices.get("tied", False)

    shapes = weight_shapes(
        options,
        vocab_size,
        choices.get("softmax", False),
        choices.get("dumped_names", False),
        choices.get("always_projects", False),
    )
    return options, {name: random_array(rng, name, shape) for name, shape in shapes.items()}


def weight_shapes(
    options: Options,
    vocab_size: int = 0,
    softmax: bool = False,
    dumped_names: bool = False,
    always_projects: bool = False,
) -> dict[str, tuple[int, ...]]:
    """name -> shape of every dataset in the published layout for these options."""
    lstm = options["lstm"]
    dim, projection_dim, n_layers = lstm["dim"], lstm["projection_dim"], lstm["n_layers"]
    shapes: dict[str, tuple[int, ...]] = {}
    if "char_cnn" in options:
        cnn = options["char_cnn"]
        shapes["char_embed"] = (261, cnn["embedding"]["dim"])
        for k, (width, n) in enumerate(cnn["filters"]):
            shapes[f"CNN/W_cnn_{k}"] = (1, width, cnn["embedding"]["dim"], n)
            shapes[f"CNN/b_cnn_{k}"] = (n,)
        n_filters = sum(n for _, n in cnn["filters"])
        for k in range(cnn["n_highway"]):
            for gate in ("carry", "transform"):
                shapes[f"CNN_high_{k}/W_{gate}"] = (n_filters, n_filters)
                shapes[f"CNN_high_{k}/b_{gate}"] = (n_filters,)
        if n_filters != projection_dim or always_projects:
            shapes["CNN_proj/W_proj"] = (n_filters, projection_dim)
            shapes["CNN_proj/b_proj"] = (projection_dim,)
    else:
        shapes["embedding"] = (vocab_size, projection_dim)
    bidirectional = options.get("bidirectional", True)
    for direction in range(2 if bidirectional else 1):
        for layer in range(n_layers):
            # bilm-tf's dump renames what follows a slash, and "rnn" is first in the names of one direction
            start = "rnn" if dumped_names and not bidirectional else f"RNN_{direction}/RNN"
            middle = "" if dumped_names and n_layers == 1 else f"/MultiRNNCell/Cell{layer}"
            cell = f"{start}{middle}/LSTMCell"
            kernel, bias, projection = TF_PARTS if start == "rnn" else PARTS
            shapes[f"{cell}/{kernel}"] = (2 * projection_dim, 4 * dim)
            shapes[f"{cell}/{bias}"] = (4 * dim,)
            if dim != projection_dim or always_projects:
                shapes[f"{cell}/{projection}"] = (dim, projection_dim)
    if softmax:
        if not options.get("share_embedding_softmax", False):
            shapes["softmax/W"] = (vocab_size, projection_dim)
        shapes["softmax/b"] = (vocab_size,)
    return shapes


def random_array(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """float32 values of a size that keeps activations near 1, so that gates vary and clips take effect."""
    values = rng.standard_normal(shape)
    if name.endswith("/b_carry"):
        values = values - 1.0
    elif len(shape) == 1:
        values = 0.5 * values
    elif name.startswith("CNN/W_cnn"):
        values = values / np.sqrt(shape[1] * shape[2])
    elif name.startswith(("CNN_high", "CNN_proj")):
        values = values / np.sqrt(shape[0])
    elif name.endswith(("/W_0", "/W_P_0", "/kernel")):
        values = 1.2 * values / np.sqrt(shape[0])
    return values.astype(np.float32)


CHOICES = {
    "char_input", "max_chars", "char_dim", "filters", "activation", "n_highway", "cnn_projection", "lstm_projection",
    "projection_dim", "dim", "n_layers", "skip", "cell_clip", "proj_clip", "bidirectional", "vocab_size", "softmax",
    "dumped_names", "tied", "always_projects",
}  # fmt: skip
