"""The biLM on the CPU through the compiled kernels (*.h in this folder): packed weights and two calls for inference.

It replaces `token_encoder` and the LSTM stacks of `elmo.model`. Sentences run in slots without padding. The values of a
token depend on its own sentence only, bit for bit: each row is computed by a fixed sequence of operations, independent
of the other rows and of the number of threads.
"""

from __future__ import annotations

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
    clip_limit,
    floats,
    has_dtype,
    load,
)
from elmo.kernels.cpu.request import CpuRequest, CpuResult, StateArrays
from elmo.model.bilm import BiLM
from elmo.model.lstm import LSTMStack, ProjectedLSTM
from elmo.model.token_encoder import CharCNN, Highway, TokenEncoder

NUM_SLOTS = 60  # sentences per thread that advance together: a multiple of the kernels' tile
INPUT_PRODUCT_BYTES = 64 << 20  # of the cached first-layer input products of words, per direction
RESPONSE_BYTES = 64 << 20  # most memory for the filters' responses to single characters; published models need 13 MB


class NativeBiLM:
    """A biLM's weights, packed for the kernels. The weights are copies: later changes of the model have no effect.

    `dtype` is that of the matrix products: float32, bfloat16, or int8 (8-bit products in the LSTMs, bfloat16 in the
    highways if the processor has it). Convolutions, gates, cells and results are always float32. A pickled copy packs
    the weights again.
    """

    def __init__(self, model: BiLM, dtype: str = "float32") -> None:
        self.model = model
        self.dtype = dtype
        self._matrices: list[PackedMatrix] = []
        self._buffers: list[Tensor] = []  # memory that the kernels have pointers to
        self._library = load()
        config = self.model.config
        self._lstm, self._directions = config.lstm, config.num_directions
        self._layers = (LayerWeights * (self._directions * self._lstm.num_layers))()
        for r, stack in enumerate(self.model.stacks):
            assert isinstance(stack, LSTMStack)
            for number, layer in enumerate(stack.layers):
                assert isinstance(layer, ProjectedLSTM)
                self._layers[r * self._lstm.num_layers + number] = self._pack_layer(layer)
        shape = (self._directions, self._lstm.num_layers, 1)
        self._zero = StateArrays(
            h=np.zeros((*shape, self._lstm.proj_dim), np.float32), c=np.zeros((*shape, self._lstm.cell_dim), np.float32)
        )
        # the fields that are the same in all calls: each call copies them and adds its own
        self._stacks = Task(
            layers=self._layers, num_directions=self._directions, num_layers=self._lstm.num_layers,
            proj_dim=self._lstm.proj_dim, cell_dim=self._lstm.cell_dim, dtype=DTYPES[self.dtype],
            cell_clip=clip_limit(self._lstm.cell_clip), proj_clip=clip_limit(self._lstm.proj_clip),
            skip=self._lstm.skip,
            initial_h=self._zero.h.ctypes.data, initial_c=self._zero.c.ctypes.data, initial_rows=1, num_slots=NUM_SLOTS,
        )  # fmt: skip
        self._pack_encoder(self.model.token_encoder)

    def __reduce__(self) -> tuple[type, tuple[BiLM, str]]:
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
        """Token vectors (N, P) float32 of rows of ids (N, W)."""
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

    def contextualize(self, request: CpuRequest) -> CpuResult:
        """The chosen layers of every token of the request and, on request, the state after each sentence."""
        request.check(self._lstm.num_layers, self._lstm.proj_dim)
        out = request.result(self._directions * self._lstm.proj_dim)  # (K, N, D)
        initial = request.initial or self._zero
        final = self._zero_states(request.num_sentences) if request.want_state else None
        row_bytes = 4 * self._lstm.cell_dim * 4
        threads = torch.get_num_threads()
        task = Task.from_buffer_copy(self._stacks)
        task.table, task.num_words = request.table.ctypes.data, len(request.table)
        arrays = (request.tokens, request.offsets, request.places)
        task.tokens, task.offsets, task.places = (array.ctypes.data for array in arrays)
        task.num_sentences = request.num_sentences
        if initial is not self._zero:
            task.initial_h, task.initial_c = initial.h.ctypes.data, initial.c.ctypes.data
            task.initial_rows = initial.h.shape[2]
        if final is not None:
            task.final_h, task.final_c = final.h.ctypes.data, final.c.ctypes.data
        task.mix, task.num_mixes = request.mix.ctypes.data, len(request.mix)
        task.out, task.out_rows = out.ctypes.data, out.shape[1]
        task.input_rows = INPUT_PRODUCT_BYTES // row_bytes // max(1, threads // self._directions)
        task.num_threads = threads
        call(self._library.elmo_contextualize, task, len(request.tokens), self, request, initial, final, out)
        return CpuResult(out=out, state=final)

    def _pack_layer(self, layer: ProjectedLSTM) -> LayerWeights:
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

    def _pack_encoder(self, encoder: TokenEncoder) -> None:
        dtype = DTYPES[self.dtype]
        if self.dtype == "int8":  # highways lose more accuracy in 8 bits than LSTMs do
            dtype = DTYPES["bfloat16"] if has_dtype("bfloat16") else DTYPES["float32"]
        self._words: Tensor | None = encoder.words
        self._char_table: np.ndarray | None = None
        fields: dict[str, Any] = {"char_table": None, "num_filters": 0}
        if encoder.chars is not None:
            chars = encoder.chars
            table = nn.functional.pad(floats(chars.table), (0, 0, 1, 0))  # (V + 1, E)
            self._char_table = None if self._responses_fit(chars) else table.numpy()
            self._convolutions = (Convolution * len(chars.convolutions))()
            for i, convolution in enumerate(chars.convolutions):
                assert isinstance(convolution, nn.Conv1d)
                self._convolutions[i] = self._pack_convolution(convolution, table)
            highways = [self._pack_highway(h, dtype) for h in chars.highways if isinstance(h, Highway)]
            self._highways = (c_void_p * len(highways))(*highways)
            fields = {
                "char_table": None if self._char_table is None else self._char_table.ctypes.data,
                "num_chars": len(table), "char_dim": table.shape[1],
                "convolutions": self._convolutions, "num_convolutions": len(self._convolutions),
                "num_filters": sum(c.count for c in self._convolutions),
                "tanh": int(chars.activation is torch.tanh),
                "highways": self._highways, "num_highways": len(self._highways),
            }  # fmt: skip
        if encoder.project is not None:
            fields["projection"] = self._pack(encoder.project.weight, encoder.project.bias, dtype)
        self._encoder = Words(out_dim=self._lstm.proj_dim, **fields)

    def _responses_fit(self, chars: CharCNN) -> bool:
        sizes = [weight.shape[0] * weight.shape[2] for weight in chars.convolutions.parameters() if weight.dim() == 3]
        return 4 * (len(chars.table) + 1) * sum(sizes) <= RESPONSE_BYTES

    def _pack_convolution(self, convolution: nn.Conv1d, table: Tensor) -> Convolution:
        weight, panel = floats(convolution.weight), self._library.elmo_panel()
        count, _, width = weight.shape  # (count, E, width)
        padding = -count % panel
        assert convolution.bias is not None
        bias = nn.functional.pad(floats(convolution.bias), (0, padding))
        self._buffers.append(bias)
        packed = Convolution(bias=bias.data_ptr(), width=width, count=count)
        if self._char_table is None:
            with torch.autocast("cpu", enabled=False):  # the library reads float32
                responses = torch.einsum("ve,cew->wvc", table, weight)  # (width, V + 1, count)
            responses = nn.functional.pad(responses, (0, padding)).unflatten(2, (-1, panel))
            responses = responses.permute(2, 0, 1, 3).contiguous()  # (panels, width, V + 1, panel)
            self._buffers.append(responses)
            packed.responses = responses.data_ptr()
        else:
            packed.weights = self._pack(weight.transpose(1, 2).flatten(1), None, DTYPES["float32"])
        return packed

    def _pack_highway(self, highway: Highway, dtype: int) -> int:
        F = highway.transform.out_features
        padding = -F % self._library.elmo_panel()  # so that the carry gate begins at a panel of its own
        weight = torch.cat([floats(highway.transform.weight), torch.zeros(padding, F), floats(highway.carry.weight)])
        bias = torch.cat([floats(highway.transform.bias), torch.zeros(padding), floats(highway.carry.bias)])
        return self._pack(weight, bias, dtype)

    def _pack(self, weight: Tensor, bias: Tensor | None, dtype: int, gates: bool = False) -> int:
        packed = PackedMatrix(weight, bias, dtype, gates)
        self._matrices.append(packed)
        return packed.pointer

    def _word_features(self, ids: np.ndarray) -> np.ndarray:
        assert self._words is not None
        word_ids = torch.from_numpy(ids.astype(np.int64))
        # id 0 is padding: a zero vector
        vectors = floats(self._words)[(word_ids - 1).clamp(min=0)] * (word_ids > 0)[:, None]  # (N, word_dim)
        return vectors.contiguous().numpy()

    def _zero_states(self, num_sentences: int) -> StateArrays:
        # sentences without tokens keep these zeros
        return StateArrays(*(np.repeat(part, num_sentences, axis=2) for part in (self._zero.h, self._zero.c)))
