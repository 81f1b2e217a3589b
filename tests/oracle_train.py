"""One training step of a biLM in NumPy float64 with derivatives written by hand: the reference for pretraining tests.

It shares no code with the elmo package. Each part is a pair of functions: `x_forward` returns its output and a cache
for the derivative; `x_backward` adds to `grads` and returns the derivative with respect to its input. There is no
dropout and only one device. It is one file, so that a step can be read from end to end.

    total loss    mean of the directions' losses; a direction's loss is the mean NLL over its B * T positions
    gradient      of total loss * unroll_steps, truncated at the initial states
    clipping      by the global norm over all weights
    update        Adagrad without epsilon: a += g * g, w -= learning_rate * g / sqrt(a); a starts at 1

Weights have the published names (with the MultiRNNCell level) plus "softmax/W" (V, P) and "softmax/b" (V,). With
options["share_embedding_softmax"] there is no "softmax/W": the word vectors are used instead. Ids are those of
training and NOT shifted: a character id 0..260 is a row of "char_embed", a word id is a row of "embedding" (subtract 1
from shifted ids).

Letters in shapes: B rows, T steps, C characters, E character vector, F filters, P projection, H cell, V vocabulary,
S sampled words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Options = dict[str, Any]
Weights = dict[str, np.ndarray]
LayerState = tuple[np.ndarray, np.ndarray]  # h (B, P), c (B, H)
States = list[list[LayerState]]  # [direction][layer]; direction 0 is forward


@dataclass(frozen=True, kw_only=True)
class Negatives:
    ids: np.ndarray  # (S,) sampled words, shared by all positions of the batch
    expected: np.ndarray  # (S,) expected count of each word among the samples
    true_expected: np.ndarray  # (B, T) the same for the targets


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The batch of one direction. The backward batch is already reversed, so it is also read from step 0 to T - 1."""

    ids: np.ndarray  # (B, T, C) characters or (B, T) words
    targets: np.ndarray  # (B, T) words
    negatives: Negatives | None = None  # None: full softmax


@dataclass(frozen=True, kw_only=True)
class Step:
    weights: Weights
    accumulators: Weights
    losses: list[float]  # per direction
    states: States
    grad_norm: float  # before clipping, unroll_steps included


def train_step(
    options: Options,
    weights: Weights,
    accumulators: Weights,
    batches: list[Batch],
    states: States | None = None,
    *,
    unroll_steps: int | None = None,
    clip_norm: float | None = 10.0,
    learning_rate: float = 0.2,
) -> Step:
    """Makes one update; batches are [forward, backward], or [forward] for one direction.

    unroll_steps defaults to T. The arguments are not changed; all returned arrays are float64.
    """
    losses, grads, states = losses_and_gradients(options, weights, batches, states, unroll_steps)
    grad_norm = float(np.sqrt(sum((grad**2).sum() for grad in grads.values())))
    scale = 1.0 if clip_norm is None else clip_norm / max(grad_norm, clip_norm)
    new_weights, new_accumulators = {}, {}
    for name, grad in grads.items():
        clipped = scale * grad
        new_accumulators[name] = accumulators[name] + clipped**2
        new_weights[name] = weights[name] - learning_rate * clipped / np.sqrt(new_accumulators[name])
    return Step(weights=new_weights, accumulators=new_accumulators, losses=losses, states=states, grad_norm=grad_norm)


def initial_accumulators(weights: Weights) -> Weights:
    return {name: np.ones(array.shape) for name, array in weights.items()}


def zero_states(options: Options, num_rows: int, num_directions: int = 2) -> States:
    lstm = options["lstm"]
    return [
        [(np.zeros((num_rows, lstm["projection_dim"])), np.zeros((num_rows, lstm["dim"])))] * lstm["n_layers"]
        for _ in range(num_directions)
    ]


def log_uniform_expected(ids: np.ndarray, num_tries: int, vocab_size: int) -> np.ndarray:
    """Expected counts of ids after num_tries draws of the log-uniform sampler without repetition."""
    probability = np.log((ids + 2.0) / (ids + 1.0)) / np.log(vocab_size + 1.0)
    return -np.expm1(num_tries * np.log1p(-probability))


def losses_and_gradients(
    options: Options,
    weights: Weights,
    batches: list[Batch],
    states: States | None = None,
    unroll_steps: int | None = None,
) -> tuple[list[float], Weights, States]:
    """Losses per direction, gradients of (mean of losses) * unroll_steps by name, and the final states."""
    num_rows, num_steps = batches[0].targets.shape
    unroll_steps = num_steps if unroll_steps is None else unroll_steps
    states = zero_states(options, num_rows, len(batches)) if states is None else states
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    grads = {name: np.zeros(array.shape) for name, array in weights.items()}
    losses, final_states = [], []
    for direction, batch in enumerate(batches):
        x, token_cache = tokens_forward(options, w, batch.ids)
        layer_caches, layer_states = [], []
        for layer in range(options["lstm"]["n_layers"]):
            x, state, cache = lstm_forward(options, w, direction, layer, x, states[direction][layer])
            layer_caches.append(cache)
            layer_states.append(state)
        loss, d_x = softmax_loss(options, w, x, batch, unroll_steps / len(batches), grads)
        for layer in reversed(range(options["lstm"]["n_layers"])):
            d_x = lstm_backward(options, w, direction, layer, d_x, layer_caches[layer], grads)
        tokens_backward(options, w, d_x, token_cache, grads)
        losses.append(loss)
        final_states.append(layer_states)
    return losses, grads, final_states


# ---- softmax ----


def softmax_loss(
    options: Options, w: Weights, x: np.ndarray, batch: Batch, factor: float, grads: Weights
) -> tuple[float, np.ndarray]:
    """Mean NLL of the targets given x (B, T, P), and the derivative of factor * loss with respect to x."""
    table = "embedding" if options.get("share_embedding_softmax", False) else "softmax/W"
    flat, targets = x.reshape(-1, x.shape[-1]), batch.targets.reshape(-1)  # (N, P), (N,) with N = B * T
    rows = np.arange(len(targets))
    if batch.negatives is None:
        logits = flat @ w[table].T + w["softmax/b"]  # (N, V)
        true_column = targets
    else:
        sampled = batch.negatives.ids  # (S,)
        true_logits = (flat * w[table][targets]).sum(axis=1) + w["softmax/b"][targets]  # (N,)
        true_logits = true_logits - np.log(batch.negatives.true_expected.reshape(-1))
        sampled_logits = flat @ w[table][sampled].T + w["softmax/b"][sampled]  # (N, S)
        sampled_logits = sampled_logits - np.log(batch.negatives.expected)
        accidental_hit = sampled == targets[:, None]  # (N, S)
        sampled_logits = np.where(accidental_hit, -np.inf, sampled_logits)
        logits = np.concatenate([true_logits[:, None], sampled_logits], axis=1)  # (N, 1 + S)
        true_column = np.zeros_like(targets)

    logits = logits - logits.max(axis=1, keepdims=True)
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    loss = -log_probs[rows, true_column].mean()

    d_logits = np.exp(log_probs)
    d_logits[rows, true_column] -= 1.0
    d_logits *= factor / len(targets)
    if batch.negatives is None:
        grads[table] += d_logits.T @ flat
        grads["softmax/b"] += d_logits.sum(axis=0)
        d_flat = d_logits @ w[table]
    else:
        d_true, d_sampled = d_logits[:, 0], d_logits[:, 1:]
        np.add.at(grads[table], targets, d_true[:, None] * flat)
        np.add.at(grads[table], sampled, d_sampled.T @ flat)
        np.add.at(grads["softmax/b"], targets, d_true)
        np.add.at(grads["softmax/b"], sampled, d_sampled.sum(axis=0))
        d_flat = d_true[:, None] * w[table][targets] + d_sampled @ w[table][sampled]
    return float(loss), d_flat.reshape(x.shape)


# ---- LSTM ----


def cell_name(direction: int, layer: int) -> str:
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def lstm_forward(
    options: Options, w: Weights, direction: int, layer: int, x: np.ndarray, state: LayerState
) -> tuple[np.ndarray, LayerState, list[dict[str, np.ndarray]]]:
    """Outputs (B, T, P) of one layer over x (B, T, P), its final state, and one dict of cached values per step."""
    lstm, cell = options["lstm"], cell_name(direction, layer)
    h, c = state
    outputs, steps = [], []
    for t in range(x.shape[1]):
        x_and_h = np.concatenate([x[:, t], h], axis=1)  # (B, 2P)
        i, j, f, o = np.split(x_and_h @ w[f"{cell}/W_0"] + w[f"{cell}/B"], 4, axis=1)  # (B, H) each
        i, j, f, o = sigmoid(i), np.tanh(j), sigmoid(f + 1.0), sigmoid(o)
        c_before, c_raw = c, f * c + i * j
        c = clip(c_raw, lstm.get("cell_clip"))
        m = o * np.tanh(c)  # (B, H)
        h_raw = h = m
        if has_projection(options):
            h_raw = m @ w[f"{cell}/W_P_0"]  # (B, P)
            h = clip(h_raw, lstm.get("proj_clip"))
        outputs.append(h + x[:, t] if has_residual(options, layer) else h)
        gates = {"i": i, "j": j, "f": f, "o": o}
        steps.append(
            {**gates, "x_and_h": x_and_h, "c_before": c_before, "c_raw": c_raw, "c": c, "m": m, "h_raw": h_raw}
        )
    return np.stack(outputs, axis=1), (h, c), steps


def lstm_backward(
    options: Options,
    w: Weights,
    direction: int,
    layer: int,
    d_out: np.ndarray,
    steps: list[dict[str, np.ndarray]],
    grads: Weights,
) -> np.ndarray:
    """The derivative with respect to the layer's input (B, T, P), computed backwards in time.

    No derivative is computed for the initial state.
    """
    lstm, cell = options["lstm"], cell_name(direction, layer)
    d_x = np.zeros(d_out.shape)
    d_h_later = np.zeros(d_out[:, 0].shape)  # (B, P) derivative with respect to h from later steps
    d_c_later = np.zeros(steps[0]["c"].shape)  # (B, H) the same for c
    for t in reversed(range(d_out.shape[1])):
        s = steps[t]
        if has_residual(options, layer):
            d_x[:, t] += d_out[:, t]
        d_m = d_out[:, t] + d_h_later
        if has_projection(options):
            d_h_raw = d_m * inside(s["h_raw"], lstm.get("proj_clip"))
            grads[f"{cell}/W_P_0"] += s["m"].T @ d_h_raw
            d_m = d_h_raw @ w[f"{cell}/W_P_0"].T  # (B, H)
        tanh_c = np.tanh(s["c"])
        d_c = d_c_later + d_m * s["o"] * (1.0 - tanh_c**2)
        d_c_raw = d_c * inside(s["c_raw"], lstm.get("cell_clip"))
        d_gates = np.concatenate(
            [
                d_c_raw * s["j"] * s["i"] * (1.0 - s["i"]),
                d_c_raw * s["i"] * (1.0 - s["j"] ** 2),
                d_c_raw * s["c_before"] * s["f"] * (1.0 - s["f"]),
                d_m * tanh_c * s["o"] * (1.0 - s["o"]),
            ],
            axis=1,
        )  # (B, 4H)
        grads[f"{cell}/W_0"] += s["x_and_h"].T @ d_gates
        grads[f"{cell}/B"] += d_gates.sum(axis=0)
        d_input, d_h_later = np.split(d_gates @ w[f"{cell}/W_0"].T, 2, axis=1)
        d_x[:, t] += d_input
        d_c_later = d_c_raw * s["f"]
    return d_x


def has_projection(options: Options) -> bool:
    return options["lstm"]["dim"] != options["lstm"]["projection_dim"]


def has_residual(options: Options, layer: int) -> bool:
    return layer > 0 and options["lstm"].get("use_skip_connections", False)


# ---- token layer ----


def tokens_forward(options: Options, w: Weights, ids: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """Token vectors (B, T, P) of unshifted ids, (B, T, C) or (B, T)."""
    if "char_cnn" not in options:
        return w["embedding"][ids], {"ids": ids}
    cnn = options["char_cnn"]
    flat = ids.reshape(-1, ids.shape[-1])  # (N, C) with N = B * T
    chars = w["char_embed"][flat]  # (N, C, E)
    pooled, winners = [], []
    for k, (width, _) in enumerate(cnn["filters"]):
        kernel = w[f"CNN/W_cnn_{k}"][0]  # (width, E, n)
        num_windows = chars.shape[1] - width + 1
        values = sum(chars[:, j : j + num_windows] @ kernel[j] for j in range(width)) + w[f"CNN/b_cnn_{k}"]
        winners.append(values.argmax(axis=1))  # (N, n) the best window; equal windows have equal derivatives
        pooled.append(values.max(axis=1))  # (N, n)
    raw = np.concatenate(pooled, axis=1)  # (N, F)
    x = np.tanh(raw) if cnn["activation"] == "tanh" else np.maximum(raw, 0.0)
    highways = []
    for k in range(cnn["n_highway"]):
        gate = sigmoid(x @ w[f"CNN_high_{k}/W_carry"] + w[f"CNN_high_{k}/b_carry"])
        new = np.maximum(x @ w[f"CNN_high_{k}/W_transform"] + w[f"CNN_high_{k}/b_transform"], 0.0)
        highways.append({"x": x, "gate": gate, "new": new})
        x = gate * new + (1.0 - gate) * x
    cache = {"ids": flat, "chars": chars, "winners": winners, "raw": raw, "highways": highways, "features": x}
    if "CNN_proj/W_proj" in w:
        x = x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"]  # (N, P)
    return x.reshape(*ids.shape[:2], -1), cache


def tokens_backward(options: Options, w: Weights, d_out: np.ndarray, cache: dict[str, Any], grads: Weights) -> None:
    if "char_cnn" not in options:
        np.add.at(grads["embedding"], cache["ids"], d_out)
        return
    cnn = options["char_cnn"]
    d_x = d_out.reshape(-1, d_out.shape[-1])  # (N, P)
    if "CNN_proj/W_proj" in w:
        grads["CNN_proj/W_proj"] += cache["features"].T @ d_x
        grads["CNN_proj/b_proj"] += d_x.sum(axis=0)
        d_x = d_x @ w["CNN_proj/W_proj"].T  # (N, F)
    for k in reversed(range(cnn["n_highway"])):
        x, gate, new = (cache["highways"][k][name] for name in ("x", "gate", "new"))
        d_gate = d_x * (new - x) * gate * (1.0 - gate)
        d_new = d_x * gate * (new > 0.0)
        d_x = d_x * (1.0 - gate)
        for name, d_value in (("carry", d_gate), ("transform", d_new)):
            grads[f"CNN_high_{k}/W_{name}"] += x.T @ d_value
            grads[f"CNN_high_{k}/b_{name}"] += d_value.sum(axis=0)
            d_x = d_x + d_value @ w[f"CNN_high_{k}/W_{name}"].T
    d_raw = d_x * (1.0 - np.tanh(cache["raw"]) ** 2 if cnn["activation"] == "tanh" else cache["raw"] > 0.0)

    d_chars = np.zeros(cache["chars"].shape)  # (N, C, E)
    token = np.arange(len(d_raw))[:, None]  # (N, 1)
    start = 0
    for k, (width, n) in enumerate(cnn["filters"]):
        d_filter = d_raw[:, start : start + n]  # (N, n)
        start += n
        grads[f"CNN/b_cnn_{k}"] += d_filter.sum(axis=0)
        for j in range(width):
            position = cache["winners"][k] + j  # (N, n) the character that column j of the winning window read
            read = cache["chars"][token, position]  # (N, n, E)
            grads[f"CNN/W_cnn_{k}"][0, j] += np.einsum("tn,tne->en", d_filter, read)
            np.add.at(d_chars, (token, position), d_filter[:, :, None] * w[f"CNN/W_cnn_{k}"][0, j].T)
    np.add.at(grads["char_embed"], cache["ids"], d_chars)


# ---- small functions ----


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def clip(x: np.ndarray, limit: float | None) -> np.ndarray:
    return x if limit is None else np.clip(x, -limit, limit)


def inside(x: np.ndarray, limit: float | None) -> np.ndarray:
    """The derivative of clip: 1 where |x| <= limit, else 0."""
    return np.ones(x.shape) if limit is None else (np.abs(x) <= limit).astype(np.float64)
