"""The C interface of the compiled CPU kernels in ctypes: functions, structures field by field, packed matrices.

`build` makes the library that this module loads; `native` fills the structures.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Iterable
from ctypes import POINTER, Structure, c_float, c_int, c_int64, c_void_p

import torch
from torch import Tensor

from elmo.kernels.cpu.build import library

DTYPES = {"float32": 0, "bfloat16": 1, "int8": 2}
LONG_CALL_ROWS = 1000  # words or tokens; a call with more may take a second
STATUS = {1: "out of memory", 2: "the dtype is not in this build", 3: "an unexpected failure", 4: "interrupted"}
OUT_OF_RANGE = 5


def load() -> ctypes.CDLL:
    """The compiled library, with the types of its functions."""
    kernels = library()
    kernels.elmo_panel.restype = c_int64
    kernels.elmo_pack.restype = c_void_p
    kernels.elmo_pack.argtypes = [c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int64]
    kernels.elmo_drop.argtypes = [c_void_p]
    kernels.elmo_bytes.restype = c_int64
    kernels.elmo_bytes.argtypes = [c_void_p]
    kernels.elmo_product.argtypes = [c_void_p, c_void_p, c_int64, c_void_p, c_int64]
    return kernels


def has_dtype(dtype: str) -> bool:
    """Whether the processor multiplies in this dtype."""
    return bool(library().elmo_supports() & (1 << DTYPES[dtype]))


class PackedMatrix:
    """One matrix in the library's memory, of weight (outputs, inputs) and bias (outputs,); freed with the object."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: int, gates: bool = False) -> None:
        weight = floats(weight)
        bias = None if bias is None else floats(bias)
        outputs, inputs = weight.shape
        self._library = load()
        bias_pointer = None if bias is None else bias.data_ptr()
        self.pointer: int = self._library.elmo_pack(weight.data_ptr(), inputs, outputs, bias_pointer, dtype, int(gates))
        if not self.pointer:
            raise MemoryError(f"no memory for a packed matrix of {outputs} x {inputs}")

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._library.elmo_drop(self.pointer)

    def multiply(self, rows: Tensor, out: Tensor, repeats: int = 1) -> None:
        """Writes rows (M, inputs) times the matrix to out (M, outputs rounded up to whole panels), `repeats` times."""
        check(self._library.elmo_product(self.pointer, rows.data_ptr(), len(rows), out.data_ptr(), repeats))


class LayerWeights(Structure):
    """`LayerWeights` of task.h, field by field."""

    _fields_ = [(name, c_void_p) for name in ("input", "recurrent", "projection")]


class Convolution(Structure):
    """`Convolution` of encoder.h, field by field."""

    _fields_ = [
        *((name, c_void_p) for name in ("responses", "weights", "bias")),
        ("width", c_int64), ("count", c_int64),
    ]  # fmt: skip


class Task(Structure):
    """`Task` of task.h, field by field."""

    _fields_ = [
        ("layers", POINTER(LayerWeights)),
        *((name, c_int64) for name in ("num_directions", "num_layers", "proj_dim", "cell_dim", "dtype")),
        ("cell_clip", c_float), ("proj_clip", c_float), ("skip", c_int64),
        ("table", c_void_p), ("num_words", c_int64),
        *((name, c_void_p) for name in ("tokens", "offsets", "places")), ("num_sentences", c_int64),
        ("initial_h", c_void_p), ("initial_c", c_void_p), ("initial_rows", c_int64),
        ("final_h", c_void_p), ("final_c", c_void_p),
        ("mix", c_void_p), ("num_mixes", c_int64), ("out", c_void_p), ("out_rows", c_int64),
        *((name, c_int64) for name in ("num_slots", "input_rows", "num_threads")), ("stop", POINTER(c_int)),
    ]  # fmt: skip


class Words(Structure):
    """`Words` of encoder.h, field by field."""

    _fields_ = [
        ("ids", c_void_p), ("num_words", c_int64), ("columns", c_int64),
        ("features", c_void_p), ("feature_dim", c_int64),
        ("char_table", c_void_p), ("num_chars", c_int64), ("char_dim", c_int64),
        ("convolutions", POINTER(Convolution)), ("num_convolutions", c_int64), ("num_filters", c_int64),
        ("tanh", c_int64), ("highways", POINTER(c_void_p)), ("num_highways", c_int64),
        ("projection", c_void_p), ("out_dim", c_int64), ("out", c_void_p), ("num_threads", c_int64),
        ("stop", POINTER(c_int)),
    ]  # fmt: skip


def floats(tensor: Tensor) -> Tensor:
    """The tensor in the layout that the library reads: float32 on the CPU, contiguous."""
    return tensor.detach().float().cpu().contiguous()


def empty(*shape: int) -> Tensor:
    """A tensor for the library to write to: float32 on the CPU, whatever torch's defaults are."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def call(function: Callable[..., int], task: Structure, num_rows: int, *owners: object) -> None:
    """Runs a kernel. A long call runs in a second thread, so that Ctrl-C reaches the main thread and ends it early.

    `owners` are the objects whose memory the task points to. The second thread holds references to them, because a
    signal may unwind the main thread at any line, even before it knows that the second thread has started.
    """
    if num_rows < LONG_CALL_ROWS or threading.current_thread() is not threading.main_thread():
        check(function(ctypes.byref(task)))
        return
    stop = c_int(0)
    task.stop = ctypes.pointer(stop)
    statuses: list[int] = []
    finished = threading.Event()

    def run(*_: object) -> None:
        try:
            statuses.append(function(ctypes.byref(task)))
        finally:
            finished.set()

    try:
        threading.Thread(target=run, args=(stop, *owners)).start()  # not a daemon: the interpreter waits for it
        finished.wait()
    except BaseException:
        stop.value = 1
        raise
    check(statuses[0] if statuses else 3)


def clip_limit(clip: float | None) -> float:
    """The clip value that the library expects: None, which means no clipping, becomes infinity."""
    return math.inf if clip is None else clip


def why_not_trainable(parameters: Iterable[Tensor]) -> str | None:
    """Why the kernels cannot train these weights; None: they can, because all of them are float32."""
    if all(parameter.dtype == torch.float32 for parameter in parameters):
        return None
    return "the compiled kernels train weights in float32, and this model has others"


def check(status: int) -> None:
    """Raises the exception for a status that the library returned."""
    if status == OUT_OF_RANGE:
        raise IndexError("ids that the model does not have, an id that is given twice, or sizes that do not fit")
    if status:
        raise MemoryError(STATUS[1]) if status == 1 else RuntimeError(f"the CPU kernels stopped: {STATUS[status]}")
