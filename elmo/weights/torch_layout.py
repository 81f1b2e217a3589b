"""Converts the parameters of AllenNLP's modules to the published layout; ELMoForManyLangs uses copies of these modules.

Three things differ from the published HDF5 datasets:
- linear layers are stored as (out, in);
- a highway layer is one matrix [transform; gate], and its gate keeps the input where the published gate admits the new
  value, so the sign of the gate changes;
- LSTM gates are ordered i, f, g, o instead of i, g, f, o, and the forget gate's bias already includes the 1 that
  TensorFlow adds at run time. The bias is not changed here: the reader sets the model's forget_bias to 0.

`state` is always a state dict as arrays, and `source` names its file in errors.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from elmo.errors import WeightsError

log = logging.getLogger(__name__)

Arrays = Mapping[str, np.ndarray]
# under an ELMo's prefix, but not weights: rows of ids, which are constant, and a cache of token vectors
NOT_WEIGHTS = (
    "_token_embedder._beginning_of_sentence_characters",
    "_token_embedder._end_of_sentence_characters",
    "_word_embedding.weight",
)
CHAR_TABLE = "_token_embedder._char_embedding_weights"  # each ELMo in an AllenNLP model has exactly one


@dataclass(frozen=True, kw_only=True)
class NetworkSizes:
    """The sizes of a model, read from the shapes of its arrays."""

    filters: list[list[int]]  # pairs [width, count]
    num_highways: int
    num_layers: int
    cell_dim: int
    proj_dim: int


class TrackedArrays(Mapping[str, np.ndarray]):
    """The arrays of a file, which record which of them were read."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._read: set[str] = set()

    def __getitem__(self, key: str) -> np.ndarray:
        self._read.add(key)
        return self._arrays[key]

    def __contains__(self, key: object) -> bool:
        return key in self._arrays  # a question reads nothing

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def unread(self) -> set[str]:
        """The names of all arrays that were not read."""
        return set(self._arrays) - self._read


def take(state: Arrays, key: str, source: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """state[key] after a check of its shape; None in `shape` allows any size above zero."""
    if key not in state:
        raise WeightsError(f"{source} has no '{key}'.", "The file is truncated or is not an ELMo of this kind.")
    array = state[key]
    fits = len(array.shape) == len(shape) and all(
        size == expected or expected is None and size > 0 for size, expected in zip(array.shape, shape, strict=True)
    )
    if not fits:
        expected_shape = str(tuple("any" if size is None else size for size in shape)).replace("'", "")
        raise WeightsError(f"{source}: '{key}' has shape {array.shape}, expected {expected_shape}.")
    return array


def count_numbered(state: Arrays, pattern: str, source: str) -> int:
    """How many numbered parameters match `pattern`, whose one group is the number; numbers must be 0, 1, 2, ..."""
    numbers = sorted({int(match[1]) for key in state if (match := re.fullmatch(pattern, key))})
    if numbers != list(range(len(numbers))):
        raise WeightsError(f"{source}: parameters like {pattern} are numbered {numbers}, expected 0, 1, 2, ...")
    return len(numbers)


def allennlp_bilm(state: Arrays, prefix: str, source: str) -> dict[str, np.ndarray]:
    """All published arrays of AllenNLP's `_ElmoBiLm` whose parameter names start with `prefix`."""
    encoder = prefix + "_token_embedder."
    chars = take(state, prefix + CHAR_TABLE, source, (None, None))  # (262, E)
    if np.any(chars[0]):
        log.warning("%s: the character vector for padding is not zero; it is never used and is left out", source)
    arrays = {"char_embed": chars[1:]}
    arrays |= char_cnn(state, encoder + "char_conv_", encoder + "_highways._layers.", chars.shape[1], source)
    num_filters = sum(array.shape[0] for name, array in arrays.items() if name.startswith("CNN/b_"))
    arrays |= projection(state, encoder + "_projection", num_filters, source)
    arrays |= lstm(state, prefix + "_elmo_lstm.", arrays["CNN_proj/b_proj"].shape[0], source)
    return arrays


def char_cnn(state: Arrays, conv: str, highway: str, char_dim: int, source: str) -> dict[str, np.ndarray]:
    """CNN/... and CNN_high_k/... from `{conv}{i}.weight` and `{highway}{k}.weight` with their biases."""
    published: dict[str, np.ndarray] = {}
    F = 0
    for i in range(count_numbered(state, re.escape(conv) + r"(\d{1,4})\.weight", source)):
        weight = take(state, f"{conv}{i}.weight", source, (None, char_dim, None))  # (count, E, width)
        published[f"CNN/W_cnn_{i}"] = weight.transpose(2, 1, 0)[None]  # (1, width, E, count)
        published[f"CNN/b_cnn_{i}"] = take(state, f"{conv}{i}.bias", source, (weight.shape[0],))
        F += weight.shape[0]
    if not F:
        raise WeightsError(
            f"{source} has no '{conv}0.weight'.", "The file is truncated or is not an ELMo of this kind."
        )
    for k in range(count_numbered(state, re.escape(highway) + r"(\d{1,4})\.weight", source)):
        weight = take(state, f"{highway}{k}.weight", source, (2 * F, F))
        bias = take(state, f"{highway}{k}.bias", source, (2 * F,))
        published[f"CNN_high_{k}/W_transform"] = weight[:F].T
        published[f"CNN_high_{k}/b_transform"] = bias[:F]
        published[f"CNN_high_{k}/W_carry"] = -weight[F:].T
        published[f"CNN_high_{k}/b_carry"] = -bias[F:]
    return published


def projection(state: Arrays, key: str, input_dim: int, source: str) -> dict[str, np.ndarray]:
    """CNN_proj/W_proj (in, out) and CNN_proj/b_proj from a linear layer."""
    weight = take(state, f"{key}.weight", source, (None, input_dim))
    bias = take(state, f"{key}.bias", source, (weight.shape[0],))
    return {"CNN_proj/W_proj": weight.T, "CNN_proj/b_proj": bias}


def lstm(state: Arrays, prefix: str, proj_dim: int, source: str) -> dict[str, np.ndarray]:
    """RNN_k/... of both directions from `{prefix}forward_layer_0.input_linearity.weight` and the other parameters."""
    published: dict[str, np.ndarray] = {}
    num_layers = count_numbered(state, re.escape(prefix) + r"forward_layer_(\d{1,4})\.input_linearity\.weight", source)
    backward = count_numbered(state, re.escape(prefix) + r"backward_layer_(\d{1,4})\.input_linearity\.weight", source)
    if not num_layers or num_layers != backward:
        raise WeightsError(
            f"{source} has {num_layers} forward and {backward} backward LSTM layers, expected the same number."
        )
    cell_dim: int | None = None
    for direction, direction_name in enumerate(("forward", "backward")):
        for layer in range(num_layers):
            key = f"{prefix}{direction_name}_layer_{layer}."
            project = take(state, key + "state_projection.weight", source, (proj_dim, cell_dim))  # (P, H)
            cell_dim = project.shape[1]
            from_input = take(state, key + "input_linearity.weight", source, (4 * cell_dim, proj_dim))
            from_state = take(state, key + "state_linearity.weight", source, (4 * cell_dim, proj_dim))
            bias = take(state, key + "state_linearity.bias", source, (4 * cell_dim,))
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
            kernel = np.concatenate([from_input, from_state], axis=1)  # (4H, P + P)
            published[cell + "W_0"] = _reorder_gates(kernel).T  # (P + P, 4H)
            published[cell + "B"] = _reorder_gates(bias)
            published[cell + "W_P_0"] = project.T  # (H, P)
    return published


def network_sizes(arrays: Arrays) -> NetworkSizes:
    """The sizes of the model that published arrays with an LSTM projection belong to."""
    filters: list[list[int]] = []
    while (kernel := arrays.get(f"CNN/W_cnn_{len(filters)}")) is not None:
        filters.append([kernel.shape[1], kernel.shape[3]])
    cell_dim, proj_dim = arrays["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0"].shape
    return NetworkSizes(
        filters=filters,
        num_highways=sum(name.endswith("/b_carry") for name in arrays),
        num_layers=sum(name.startswith("RNN_0/") and name.endswith("/B") for name in arrays),
        cell_dim=cell_dim,
        proj_dim=proj_dim,
    )


def _reorder_gates(rows: np.ndarray) -> np.ndarray:
    """Rows of the four gates i, f, g, o in the order i, g, f, o."""
    input_gate, forget, candidate, output = np.split(rows, 4)
    return np.concatenate([input_gate, candidate, forget, output])
