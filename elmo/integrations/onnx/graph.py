"""The biLM as an ONNX graph: rows of ids to all layers, with any batch size and any number of tokens.

ONNX's own LSTM has neither a projection nor clips of the cell, so each layer and direction is a Scan over time, whose
body is one step of `elmo.model.lstm`; the backward direction scans from the last token. As in the model, the input part
of the gates is one product before the scan. Shapes: B rows, T tokens, W ids per token, P projection, H cell, D vectors.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from elmo.integrations.onnx.nodes import Graph
from elmo.model.config import BiLMConfig, CharConfig, LSTMConfig

INPUT, LAYERS, MASK = "ids", "layers", "mask"
OPSET, IR_VERSION = 17, 8  # onnxruntime 1.12 and newer read them; later opsets have nothing that is needed here


def bilm_graph(config: BiLMConfig, tensors: dict[str, Tensor]) -> Graph:
    """The graph of a model; tensors have the names of `BiLM`, in float32 or as `elmo.weights.quantize.pack` has them.

    Input `ids` (B, T, W) int32 with boundary rows, padded with rows of zeros; outputs `layers` (L+1, B, T, D) float32,
    zero at the padding, and `mask` (B, T) bool, false at the padding. The state starts from zero.
    """
    graph = Graph(tensors)
    rows: list[int | str] = ["rows", "tokens"]
    graph.input(INPUT, np.int32, [*rows, config.row_width])
    ids = graph.node("Abs", INPUT)
    valid = graph.node("ReduceMax", ids, axes=[2], keepdims=1)  # (B, T, 1)
    valid = graph.node("Greater", valid, graph.constant(np.int32(0)))
    graph.node("Squeeze", valid, graph.constant([2]), output=MASK)  # (B, T)
    valid = graph.node("Transpose", valid, perm=[1, 0, 2])  # (T, B, 1)
    valid_float = graph.node("Cast", valid, to=np.float32)
    flat_ids = graph.node("Transpose", INPUT, perm=[1, 0, 2])  # (T, B, W): the first axis is the one that is scanned
    flat_ids = graph.node("Reshape", flat_ids, graph.constant([-1, config.row_width]))  # (T*B, W)
    x = _token_encoder(graph, config, flat_ids)  # (T*B, P)
    time_and_rows = graph.node("Slice", graph.node("Shape", valid), *_ends(graph, 0, 2))
    shape = graph.node("Concat", time_and_rows, graph.constant([config.lstm.proj_dim]), axis=0)
    x = graph.node("Mul", graph.node("Reshape", x, shape), valid_float)  # (T, B, P)
    num_rows = graph.node("Slice", time_and_rows, *_ends(graph, 1, 2))
    directions = [
        _stack(graph, config.lstm, f"stacks.{r}", x, valid, valid_float, num_rows, backward=r == 1)
        for r in range(config.num_directions)
    ]
    layers = [
        graph.node("Unsqueeze", graph.node("Concat", *outputs, axis=2), graph.constant([0]))  # (1, T, B, D)
        for outputs in zip(*directions, strict=True)
    ]
    graph.node("Transpose", graph.node("Concat", *layers, axis=0), perm=[0, 2, 1, 3], output=LAYERS)  # (L+1, B, T, D)
    graph.output(LAYERS, np.float32, [config.num_layers, *rows, config.dim])
    graph.output(MASK, np.bool_, rows)
    return graph


def _token_encoder(graph: Graph, config: BiLMConfig, ids: str) -> str:
    """Token vectors (N, P) of rows of ids (N, W)."""
    features = []
    if config.words is not None:
        words = graph.node("Gather", ids, graph.constant(np.int64(config.row_width - 1)), axis=1)  # (N,)
        words = _checked(graph, words, config.words.num_words + 1)
        features.append(graph.lookup("token_encoder.words", words))  # (N, word_dim)
    if config.chars is not None:
        characters = ids
        if config.words is not None:
            characters = graph.node("Slice", ids, *_ends(graph, 0, config.chars.max_chars, axis=1))
        features.append(_char_cnn(graph, config.chars, characters))  # (N, F)
    x = graph.node("Concat", *features, axis=1) if len(features) > 1 else features[0]
    return graph.linear("token_encoder.project", x) if config.projects_tokens else x


def _char_cnn(graph: Graph, config: CharConfig, ids: str) -> str:
    """Features (N, F) of rows of character ids (N, C)."""
    prefix = "token_encoder.chars"
    ids = _checked(graph, _used_columns(graph, config, ids), config.num_chars + 1)
    x = graph.node("Transpose", graph.lookup(f"{prefix}.table", ids), perm=[0, 2, 1])  # (N, E, C)
    pooled = []
    for number in range(len(config.filters)):
        weight, bias = (graph.weight(f"{prefix}.convolutions.{number}.{part}") for part in ("weight", "bias"))
        pooled.append(graph.node("ReduceMax", graph.node("Conv", x, weight, bias), axes=[2], keepdims=0))
    x = graph.node("Concat", *pooled, axis=1)  # (N, F)
    x = graph.node("Relu" if config.activation == "relu" else "Tanh", x)
    for number in range(config.num_highways):
        highway = f"{prefix}.highways.{number}"
        gate = graph.node("Sigmoid", graph.linear(f"{highway}.carry", x))
        new = graph.node("Relu", graph.linear(f"{highway}.transform", x))
        x = graph.node("Add", x, graph.node("Mul", gate, graph.node("Sub", new, x)))
    return x


def _used_columns(graph: Graph, config: CharConfig, ids: str) -> str:
    """Columns up to the end of the longest token and one window of padding; later windows are equal to that one."""
    last = graph.node("Slice", ids, *_ends(graph, config.max_chars - 1, config.max_chars, axis=1))  # (N, 1)
    varies = graph.node("Cast", graph.node("Not", graph.node("Equal", ids, last)), to=np.int32)  # (N, C)
    numbers = graph.constant(np.arange(1, config.max_chars + 1, dtype=np.int32))
    used = graph.node("ReduceMax", graph.node("Mul", varies, numbers), keepdims=0)
    end = graph.node("Add", used, graph.constant(np.int32(max(width for width, _ in config.filters))))
    end = graph.node("Unsqueeze", graph.node("Cast", end, to=np.int64), graph.constant([0]))  # (1,)
    return graph.node("Slice", ids, graph.constant([0]), end, graph.constant([1]))


def _checked(graph: Graph, ids: str, num_rows: int) -> str:
    """The ids, with one that no table has instead of negative ones: Gather would count those from the end."""
    negative = graph.node("Less", ids, graph.constant(np.int32(0)))
    return graph.node("Where", negative, graph.constant(np.int32(num_rows)), ids)


def _stack(
    graph: Graph,
    config: LSTMConfig,
    prefix: str,
    x: str,
    valid: str,
    valid_float: str,
    num_rows: str,
    *,
    backward: bool,
) -> list[str]:
    """The token layer and the output of every LSTM layer of one direction, (T, B, P) each."""
    outputs = [x]
    for number in range(config.num_layers):
        name = f"{prefix}.layers.{number}"
        from_input = graph.node(
            "Add", graph.node("MatMul", x, _kernel(graph, config, name, 0)), _bias(graph, config, name)
        )
        body = _step(graph, config, name)
        state = [
            graph.node(
                "Expand", graph.constant(np.float32(0)), graph.node("Concat", num_rows, graph.constant([dim]), axis=0)
            )
            for dim in (config.proj_dim, config.cell_dim)
        ]  # (B, P), (B, H)
        out = graph.scan(body, state, [from_input, valid], backward=backward)  # (T, B, P)
        out = graph.node("Mul", out, valid_float)
        x = graph.node("Add", out, x) if config.skip and number > 0 else out
        outputs.append(x)
    return outputs


def _step(graph: Graph, config: LSTMConfig, name: str) -> Graph:
    """The body of a scan: h (B, P), c (B, H), gates of the input (B, 4H) and valid (B, 1) to h, c and the output."""
    recurrent = _kernel(graph, config, name, config.proj_dim)
    projection = graph.matrix(f"{name}.projection") if config.projects else None
    body = graph.body(name)
    for value, dtype, dim in (("h", np.float32, config.proj_dim), ("c", np.float32, config.cell_dim)):
        body.input(value, dtype, ["rows", dim])
    body.input("from_input", np.float32, ["rows", 4 * config.cell_dim])
    body.input("valid", np.bool_, ["rows", 1])
    h, c, from_input, valid = body.inputs
    gates = body.node("Gemm", h, recurrent, from_input)  # (B, 4H)
    H = config.cell_dim
    sigmoids, candidate = body.split(gates, [3 * H, H])
    i, f, o = body.split(body.node("Sigmoid", sigmoids), [H, H, H])
    new_c = body.node("Add", body.node("Mul", f, c), body.node("Mul", i, body.node("Tanh", candidate)))
    new_c = _clip(body, new_c, config.cell_clip)
    new_h = body.node("Mul", o, body.node("Tanh", new_c))  # (B, H)
    if projection is not None:
        new_h = _clip(body, body.node("MatMul", new_h, projection), config.proj_clip)  # (B, P)
    h = body.node("Where", valid, new_h, h)
    body.output(h, np.float32, ["rows", config.proj_dim])
    body.output(body.node("Where", valid, new_c, c), np.float32, ["rows", config.cell_dim])
    body.output(body.node("Identity", h), np.float32, ["rows", config.proj_dim])
    return body


def _kernel(graph: Graph, config: LSTMConfig, name: str, first_row: int) -> str:
    """One half of a layer's kernel, (P, 4H), with the gates in the order of `_step`."""
    return graph.matrix(f"{name}.kernel", slice(first_row, first_row + config.proj_dim), _gate_order(config))


def _bias(graph: Graph, config: LSTMConfig, name: str) -> str:
    """The bias (4H,) with the forget bias, in the order of `_step`."""
    bias = graph.tensors[f"{name}.bias"].numpy().copy()
    bias[2 * config.cell_dim : 3 * config.cell_dim] += np.float32(config.forget_bias)
    return graph.constant(bias[_gate_order(config)], f"{name}.bias")


def _gate_order(config: LSTMConfig) -> np.ndarray:
    """Columns of the published order (input, candidate, forget, output) so that the three sigmoids are neighbours."""
    i, j, f, o = np.arange(4 * config.cell_dim).reshape(4, -1)
    return np.concatenate([i, f, o, j])


def _clip(graph: Graph, x: str, limit: float | None) -> str:
    if limit is None:
        return x
    return graph.node("Clip", x, graph.constant(np.float32(-limit)), graph.constant(np.float32(limit)))


def _ends(graph: Graph, start: int, end: int, axis: int = 0) -> list[str]:
    """The inputs start, end and axis of a Slice."""
    return [graph.constant([start]), graph.constant([end]), graph.constant([axis])]
