"""From the parameters of AllenNLP's modules to the published layout; ELMoForManyLangs uses copies of the same modules.

Three things differ from the published HDF5 datasets: linear maps are stored [out, in]; a highway is one matrix
[transform; gate] whose gate keeps the input where the published one lets the new value in, so its sign turns; LSTM
gates come as i, f, g, o instead of i, g, f, o, and the forget gate's bias already holds the 1 that TensorFlow adds when
it runs. That bias is left as it is: whoever builds the model sets its forget_bias to 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from elmo.errors import WeightsError

Tensors = Mapping[str, np.ndarray]


def take(state: Tensors, key: str, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """state[key] after its shape was found right; None in `shape` is any size above zero."""
    if key not in state:
        raise WeightsError(f"{name} has no '{key}'.", "The file is cut short or is not an ELMo of this kind.")
    array = state[key]
    fits = len(array.shape) == len(shape) and all(
        size == want or want is None and size > 0 for size, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = str(tuple("any" if size is None else size for size in shape)).replace("'", "")
        raise WeightsError(f"{name}: '{key}' has shape {array.shape}, expected {wanted}.")
    return array


def count(state: Tensors, pattern: str, name: str) -> int:
    """How many numbered parameters match `pattern`, whose one group is the number; they must run 0, 1, 2, ..."""
    numbers = sorted({int(match[1]) for key in state if (match := re.fullmatch(pattern, key))})
    if numbers != list(range(len(numbers))):
        raise WeightsError(f"{name}: parameters like {pattern} are numbered {numbers}, expected 0, 1, 2, ...")
    return len(numbers)


def char_cnn(state: Tensors, conv: str, highway: str, char_dim: int, name: str) -> dict[str, np.ndarray]:
    """CNN/... and CNN_high_k/... from `{conv}{i}.weight` and `{highway}{k}.weight` with their biases."""
    published: dict[str, np.ndarray] = {}
    num_filters = 0
    for i in range(count(state, re.escape(conv) + r"(\d{1,4})\.weight", name)):
        weight = take(state, f"{conv}{i}.weight", name, (None, char_dim, None))  # (filters, E, width)
        published[f"CNN/W_cnn_{i}"] = weight.transpose(2, 1, 0)[None]  # (1, width, E, filters)
        published[f"CNN/b_cnn_{i}"] = take(state, f"{conv}{i}.bias", name, (weight.shape[0],))
        num_filters += weight.shape[0]
    if not num_filters:
        raise WeightsError(f"{name} has no '{conv}0.weight'.", "The file is cut short or is not an ELMo of this kind.")
    for k in range(count(state, re.escape(highway) + r"(\d{1,4})\.weight", name)):
        weight = take(state, f"{highway}{k}.weight", name, (2 * num_filters, num_filters))
        bias = take(state, f"{highway}{k}.bias", name, (2 * num_filters,))
        published[f"CNN_high_{k}/W_transform"] = weight[:num_filters].T
        published[f"CNN_high_{k}/b_transform"] = bias[:num_filters]
        published[f"CNN_high_{k}/W_carry"] = -weight[num_filters:].T
        published[f"CNN_high_{k}/b_carry"] = -bias[num_filters:]
    return published


def projection(state: Tensors, key: str, input_dim: int, name: str) -> dict[str, np.ndarray]:
    """CNN_proj/W_proj (in, out) and b_proj from a linear layer."""
    weight = take(state, f"{key}.weight", name, (None, input_dim))
    bias = take(state, f"{key}.bias", name, (weight.shape[0],))
    return {"CNN_proj/W_proj": weight.T, "CNN_proj/b_proj": bias}


def lstm(state: Tensors, prefix: str, proj_dim: int, name: str) -> dict[str, np.ndarray]:
    """RNN_k/... from `{prefix}forward_layer_0.input_linearity.weight` and its kin, both directions."""
    published: dict[str, np.ndarray] = {}
    layers = count(state, re.escape(prefix) + r"forward_layer_(\d{1,4})\.input_linearity\.weight", name)
    backward = count(state, re.escape(prefix) + r"backward_layer_(\d{1,4})\.input_linearity\.weight", name)
    if not layers or layers != backward:
        raise WeightsError(f"{name} has {layers} forward and {backward} backward LSTM layers, expected equally many.")
    cell_dim: int | None = None
    for direction, word in enumerate(("forward", "backward")):
        for layer in range(layers):
            key = f"{prefix}{word}_layer_{layer}."
            project = take(state, key + "state_projection.weight", name, (proj_dim, cell_dim))  # (P, H)
            cell_dim = project.shape[1]
            from_input = take(state, key + "input_linearity.weight", name, (4 * cell_dim, proj_dim))
            from_state = take(state, key + "state_linearity.weight", name, (4 * cell_dim, proj_dim))
            bias = take(state, key + "state_linearity.bias", name, (4 * cell_dim,))
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
            both = np.concatenate([from_input, from_state], axis=1)  # (4H, P + P)
            published[cell + "W_0"] = _swap_gates(both).T  # (P + P, 4H)
            published[cell + "B"] = _swap_gates(bias)
            published[cell + "W_P_0"] = project.T  # (H, P)
    return published


def _swap_gates(rows: np.ndarray) -> np.ndarray:
    """Rows of four gates i, f, g, o in the order i, g, f, o."""
    first, forget, candidate, last = np.split(rows, 4)
    return np.concatenate([first, candidate, forget, last])
