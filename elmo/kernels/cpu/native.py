"""The biLM on the CPU through the compiled kernels (cpu/*.h): packed weights, and the two calls embedding needs.

Twin of `token_encoder` and of the LSTM stacks in `elmo.model`, for inference. Sentences are streamed through slots
without padding, and a token's numbers depend on its own sentence alone, bit for bit: every row is a fixed chain of
operations, whatever is computed beside it and however many threads there are.
"""

from __future__ import annotations

import math
from ctypes import c_void_p
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmo.kernels.cpu.abi import (
    DTYPES,
    Convolution,
    LayerWeights,
    PackedMatrix,
    Task,
    Words,
    call,
    floats,
    has_dtype,
    load,
)
from elmo.kernels.cpu.request import CpuRequest, CpuResult, StateArrays
from elmo.model.bilm import BiLM

NUM_SLOTS = 60  # sentences of a thread that advance together: a multiple of the kernels' tile
INPUT_PRODUCT_BYTES = 64 << 20  # of words whose first product is remembered, a direction
ANSWER_BYTES = 64 << 20  # of the convolutions' answers to single characters; 13 MB for the published models


class NativeBiLM:
    """A biLM's weights packed for the kernels. They are copies: later changes of the model are not seen.

    `dtype` is that of the products: float32, bfloat16, or int8 (LSTM products in 8 bits, highways in bfloat16 where the
    processor has it). Convolutions, gates, cells and results are float32 always. A pickled copy packs anew.
    """

    def __init__(self, model: Any, dtype: str = "float32") -> None:  # a BiLM; its package may import us, not we it
        self.model = model
        self.dtype = dtype
        self._matrices: list[PackedMatrix] = []
        self._kept: list[Tensor] = []  # memory that the kernels point into
        self._library = load()
        config = self.model.config
        self._lstm, self._directions = config.lstm, config.num_directions
        self._layers = (LayerWeights * (self._directions * self._lstm.num_layers))()
        for d, stack in enumerate(self.model.stacks):
            for number, layer in enumerate(stack.layers):
                self._layers[d * self._lstm.num_layers + number] = self._pack_layer(layer)
        shape = (self._directions, self._lstm.num_layers, 1)
        self._zero = StateArrays(
            h=np.zeros((*shape, self._lstm.proj_dim), np.float32), c=np.zeros((*shape, self._lstm.cell_dim), np.float32)
        )
        # what every call has in common: a call copies it and adds its own
        self._stacks = Task(
            layers=self._layers, num_directions=self._directions, num_layers=self._lstm.num_layers,
            proj_dim=self._lstm.proj_dim, cell_dim=self._lstm.cell_dim, dtype=DTYPES[self.dtype],
            cell_clip=_limit(self._lstm.cell_clip), proj_clip=_limit(self._lstm.proj_clip), skip=self._lstm.skip,
            initial_h=self._zero.h.ctypes.data, initial_c=self._zero.c.ctypes.data, initial_rows=1, num_slots=NUM_SLOTS,
        )  # fmt: skip
        self._pack_encoder(self.model.token_encoder)

    def __reduce__(self) -> tuple[type, tuple[Any, str]]:
        return type(self), (self.model, self.dtype)

    @staticmethod
    def supports(model: BiLM) -> str | None:
        """Why the kernels cannot compute this model; None: they can."""
        chars = model.token_encoder.chars
        if chars is None or chars.activation in (torch.relu, torch.tanh):
            return None
        name = getattr(chars.activation, "__name__", repr(chars.activation))
        return f"the compiled kernels have the activations relu and tanh, and this model has {name}"

    @property
    def num_bytes(self) -> int:
        """Memory of the packed weights."""
        return sum(self._library.elmo_bytes(matrix.pointer) for matrix in self._matrices)

    def encode_rows(self, rows: np.ndarray) -> np.ndarray:
        """Rows of ids (N, W) to token vectors (N, P), float32."""
        ids = np.ascontiguousarray(rows, dtype=np.int32)
        out = np.empty((len(ids), self._lstm.proj_dim), dtype=np.float32)  # (N, P)
        features = None
        if self._words is not None:
            features = self._word_features(ids[:, -1])  # (N, word_dim)
            ids = np.ascontiguousarray(ids[:, :-1])
        task = Words.from_buffer_copy(self._encoder)
        task.ids, task.num_words, task.columns = ids.ctypes.data, len(ids), ids.shape[1]
        if features is not None:
            task.features, task.feature_dim = features.ctypes.data, features.shape[1]
        task.out, task.num_threads = out.ctypes.data, torch.get_num_threads()
        try:
            call(self._library.elmo_encode, task, len(ids), self, ids, features, out)
        except IndexError as error:
            seen = f"character ids from {ids.min()} to {ids.max()}; the model has 0 to {self._encoder.num_chars - 1}"
            raise IndexError(seen) from error
        return out

    def contextualize(self, work: CpuRequest) -> CpuResult:
        """The wanted mixes of layers of every token of `work`, and, if asked for, the memory after each sentence."""
        work.check(self._lstm.num_layers, self._lstm.proj_dim)
        out = work.result(self._directions * self._lstm.proj_dim)  # (K, N, D)
        initial = work.initial or self._zero
        final = self._empty_state(work.num_sentences) if work.want_state else None
        row_bytes = 4 * self._lstm.cell_dim * 4
        threads = torch.get_num_threads()
        task = Task.from_buffer_copy(self._stacks)
        task.table, task.num_words = work.table.ctypes.data, len(work.table)
        task.tokens, task.offsets, task.places = (a.ctypes.data for a in (work.tokens, work.offsets, work.places))
        task.num_sentences = work.num_sentences
        if initial is not self._zero:
            task.initial_h, task.initial_c = initial.h.ctypes.data, initial.c.ctypes.data
            task.initial_rows = initial.h.shape[2]
        if final is not None:
            task.final_h, task.final_c = final.h.ctypes.data, final.c.ctypes.data
        task.mix, task.num_mixes = work.mix.ctypes.data, len(work.mix)
        task.out, task.out_rows = out.ctypes.data, out.shape[1]
        task.input_rows = INPUT_PRODUCT_BYTES // row_bytes // max(1, threads // self._directions)
        task.num_threads = threads
        call(self._library.elmo_contextualize, task, len(work.tokens), self, work, initial, final, out)
        return CpuResult(out=out, state=final)

    def _pack_layer(self, layer: Any) -> LayerWeights:
        P = self._lstm.proj_dim
        kernel = floats(layer.kernel)  # (2P, 4H)
        bias = floats(layer.bias).clone()  # (4H,)
        bias[2 * self._lstm.cell_dim : 3 * self._lstm.cell_dim] += layer.forget_bias
        dtype = DTYPES[self.dtype]
        return LayerWeights(
            input=self._pack(kernel[:P].T, bias, dtype, gates=True),
            recurrent=self._pack(kernel[P:].T, None, dtype, gates=True),
            projection=None if layer.projection is None else self._pack(floats(layer.projection).T, None, dtype),
        )

    def _pack_encoder(self, encoder: Any) -> None:
        dtype = DTYPES[self.dtype]
        if self.dtype == "int8":  # highways feel 8 bits more than the LSTMs do
            dtype = DTYPES["bfloat16"] if has_dtype("bfloat16") else DTYPES["float32"]
        self._words: Tensor | None = encoder.words
        self._char_table: np.ndarray | None = None
        fields: dict[str, Any] = {"char_table": None, "num_filters": 0}
        if encoder.chars is not None:
            chars = encoder.chars
            table = nn.functional.pad(floats(chars.table), (0, 0, 1, 0))  # (V + 1, E)
            self._char_table = None if self._answers_fit(chars) else table.numpy()
            self._convolutions = (Convolution * len(chars.convolutions))()
            for i, convolution in enumerate(chars.convolutions):
                self._convolutions[i] = self._pack_convolution(convolution, table)
            self._highways = (c_void_p * len(chars.highways))(*(self._pack_highway(h, dtype) for h in chars.highways))
            fields = {
                "char_table": None if self._char_table is None else self._char_table.ctypes.data,
                "num_chars": len(table), "char_dim": table.shape[1],
                "convolutions": self._convolutions, "num_convolutions": len(self._convolutions),
                "num_filters": sum(c.out_channels for c in chars.convolutions),
                "tanh": int(chars.activation is torch.tanh),
                "highways": self._highways, "num_highways": len(self._highways),
            }  # fmt: skip
        if encoder.project is not None:
            fields["projection"] = self._pack(encoder.project.weight, encoder.project.bias, dtype)
        self._encoder = Words(out_dim=self._lstm.proj_dim, **fields)

    def _answers_fit(self, chars: Any) -> bool:
        weights = [convolution.weight for convolution in chars.convolutions]
        return 4 * (len(chars.table) + 1) * sum(w.shape[0] * w.shape[2] for w in weights) <= ANSWER_BYTES

    def _pack_convolution(self, convolution: Any, table: Tensor) -> Convolution:
        weight, panel = floats(convolution.weight), self._library.elmo_panel()
        count, _, width = weight.shape  # (count, E, width)
        padding = -count % panel
        bias = nn.functional.pad(floats(convolution.bias), (0, padding))
        self._kept.append(bias)
        packed = Convolution(bias=bias.data_ptr(), width=width, count=count)
        if self._char_table is None:
            answers = torch.einsum("ve,cew->wvc", table, weight)  # (width, V + 1, count)
            answers = nn.functional.pad(answers, (0, padding)).unflatten(2, (-1, panel))
            answers = answers.permute(2, 0, 1, 3).contiguous()  # (panels, width, V + 1, panel)
            self._kept.append(answers)
            packed.answers = answers.data_ptr()
        else:
            packed.weights = self._pack(weight.transpose(1, 2).flatten(1), None, DTYPES["float32"])
        return packed

    def _pack_highway(self, highway: Any, dtype: int) -> int:
        F = highway.transform.out_features
        padding = -F % self._library.elmo_panel()  # so that the carry begins at a panel of its own
        weight = torch.cat([floats(highway.transform.weight), torch.zeros(padding, F), floats(highway.carry.weight)])
        bias = torch.cat([floats(highway.transform.bias), torch.zeros(padding), floats(highway.carry.bias)])
        return self._pack(weight, bias, dtype)

    def _pack(self, weight: Tensor, bias: Tensor | None, dtype: int, gates: bool = False) -> int:
        packed = PackedMatrix(weight, bias, dtype, gates)
        self._matrices.append(packed)
        return packed.pointer

    def _word_features(self, ids: np.ndarray) -> np.ndarray:
        assert self._words is not None
        known = torch.from_numpy(ids.astype(np.int64))
        # id 0 is nothing
        vectors = floats(self._words)[(known - 1).clamp(min=0)] * (known > 0)[:, None]  # (N, word_dim)
        return vectors.contiguous().numpy()

    def _empty_state(self, num_sentences: int) -> StateArrays:
        # of sentences without tokens, too: zero, and nobody's business
        return StateArrays(*(np.repeat(part, num_sentences, axis=2) for part in (self._zero.h, self._zero.c)))


def _limit(clip: float | None) -> float:
    return math.inf if clip is None else clip
