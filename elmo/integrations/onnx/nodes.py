"""A small builder of ONNX graphs: nodes with generated names, and weights in float32, float16 or int8."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from elmo.files import require_extra
from elmo.weights.quantize import SCALE, output_dim

onnx: Any = require_extra("onnx", "onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper


class Graph:
    """A graph that grows node by node. Every method that adds a value returns its name.

    `tensors` are the model's weights by name, in float32 or as `elmo.weights.quantize.pack` has them. Nodes
    that depend on no input convert the latter to float32; a runtime computes them once, when it loads the file.
    """

    def __init__(self, tensors: dict[str, Tensor], prefix: str = "", parent: Graph | None = None) -> None:
        self.tensors = tensors
        self.inputs: list[str] = []
        self.weight_bytes = 0
        self._prefix, self._parent = prefix, parent
        self._nodes: list[Any] = []
        self._initializers: dict[str, Any] = {}
        self._input_infos: list[Any] = []
        self._output_infos: list[Any] = []

    def input(self, name: str, dtype: Any, shape: list[int | str]) -> None:
        self.inputs.append(f"{self._prefix}{name}")
        self._input_infos.append(helper.make_tensor_value_info(self.inputs[-1], _onnx_type(dtype), shape))

    def output(self, name: str, dtype: Any, shape: list[int | str]) -> None:
        self._output_infos.append(helper.make_tensor_value_info(name, _onnx_type(dtype), shape))

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """One node with one output; an attribute `to` is a numpy type."""
        name = output or f"{self._prefix}{operator.lower()}_{len(self._nodes)}"
        if "to" in attributes:
            attributes["to"] = _onnx_type(attributes["to"])
        self._nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def split(self, x: str, sizes: list[int]) -> list[str]:
        """The parts of a value along its last axis."""
        names = [f"{self._prefix}split_{len(self._nodes)}_{part}" for part in range(len(sizes))]
        node = helper.make_node("Split", [x, self.constant(sizes)], names, name=names[0], axis=-1)
        self._nodes.append(node)
        return names

    def constant(self, values: Any, name: str = "") -> str:
        """A constant; a list of whole numbers is int64, and equal small constants are stored once."""
        array = np.asarray(values)
        root = self._root
        name = (
            name
            or f"{array.dtype}_{array.shape}_{array.tobytes().hex() if array.size < 8 else len(root._initializers)}"
        )
        if name not in root._initializers:
            root._initializers[name] = numpy_helper.from_array(array, name)
            root.weight_bytes += array.nbytes
        return name

    def weight(self, name: str) -> str:
        """A weight of any shape that is stored in float32 or float16."""
        stored = self.constant(self.tensors[name].numpy(), name)
        return stored if self.tensors[name].dtype.itemsize == 4 else self.node("Cast", stored, to=np.float32)

    def matrix(self, name: str, rows: slice = slice(None), columns: np.ndarray | slice = slice(None)) -> str:
        """The matrix (inputs, outputs) of a weight, or a part of it."""
        transposed = output_dim(name) == 0
        stored = self.tensors[name].numpy()
        values = (stored.T if transposed else stored)[rows, columns]
        part = f"{name}{'' if rows.start is None else f'.{rows.start}'}"
        value = self.constant(values, part)
        if name + SCALE not in self.tensors:
            return value
        scale = self.constant(self.tensors[name + SCALE].numpy()[columns], name + SCALE)
        return self.node("Mul", self.node("Cast", value, to=np.float32), scale)

    def linear(self, name: str, x: str) -> str:
        """x (N, inputs) times a weight (outputs, inputs), plus its bias: (N, outputs)."""
        return self.node("Gemm", x, self.matrix(f"{name}.weight"), self.weight(f"{name}.bias"))

    def lookup(self, name: str, ids: str) -> str:
        """The rows of a table with a row of zeros before it, in float32."""
        table = self.tensors[name].numpy()
        rows = self.node("Gather", self.constant(np.pad(table, ((1, 0), (0, 0))), name), ids)
        if table.dtype != np.float32:
            rows = self.node("Cast", rows, to=np.float32)
        if name + SCALE not in self.tensors:
            return rows
        scales = np.pad(self.tensors[name + SCALE].numpy(), (1, 0))[:, None]  # (V + 1, 1)
        return self.node("Mul", rows, self.node("Gather", self.constant(scales, name + SCALE), ids))

    def body(self, name: str) -> Graph:
        """An empty graph for the body of a scan; its constants are stored in this graph."""
        return Graph(self.tensors, f"{name}.", self)

    def scan(self, body: Graph, states: list[str], scanned: list[str], *, backward: bool) -> str:
        """The stacked last output of `body`, run over the first axis of `scanned`, from its end with `backward`."""
        name = f"{body._prefix}scan"
        outputs = [f"{name}_{part}" for part in ("h", "c", "outputs")]
        node = helper.make_node(
            "Scan",
            [*states, *scanned],
            outputs,
            name=name,
            body=body.proto(),
            num_scan_inputs=len(scanned),
            scan_input_directions=[int(backward)] * len(scanned),
            scan_output_directions=[int(backward)],
        )
        self._nodes.append(node)
        return outputs[-1]

    def proto(self) -> Any:
        name = self._prefix.rstrip(".") or "bilm"
        return helper.make_graph(
            self._nodes, name, self._input_infos, self._output_infos, list(self._initializers.values())
        )

    @property
    def _root(self) -> Graph:
        return self if self._parent is None else self._parent._root


def _onnx_type(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
