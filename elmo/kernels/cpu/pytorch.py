"""The biLM on the CPU in PyTorch only, for machines without compiled kernels.

It replaces `token_encoder` and the LSTM stacks of `elmo.model`, for inference. Weights are laid out for oneDNN once.
Convolutions stop where words end. The first layer's input product is computed once per distinct word of a chunk.
Sentences run in slots without padding. Unlike in the compiled kernels, the last digits of a row may depend on the
number of rows in the same product, because the library chooses the algorithm by that number.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo.kernels.cpu.request import CpuRequest, CpuResult, StateArrays
from elmo.kernels.cpu.slots import by_step, plan_slots
from elmo.model.bilm import BiLM
from elmo.model.lstm import LSTMStack, ProjectedLSTM
from elmo.model.token_encoder import CharCNN, Highway, TokenEncoder

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
NUM_SLOTS = 96
CHUNK_BYTES = 64 << 20  # of the gates of one chunk of steps
WORDS_PER_CALL = 256
SMALLEST_PACKED = 1 << 18  # elements; for smaller weights the call of oneDNN costs more than it saves


@functools.cache
def can_prepack(dtype: str) -> bool:
    """Whether this torch can lay out weights for oneDNN in advance. Otherwise products are slower, with equal results.

    The operators are not part of torch's public API, so they are tried on a small product with a known result.
    """
    torch_dtype = DTYPES[dtype]
    try:
        if torch_dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        weight = torch.ops.mkldnn._reorder_linear_weight(torch.eye(32, dtype=torch_dtype), 8)
        x = torch.arange(64, dtype=torch_dtype).view(2, 32)
        return torch.equal(torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], ""), x)
    except (AttributeError, TypeError, RuntimeError):
        return False


class TorchBiLM:
    """A biLM's weights, laid out for oneDNN. They are copies: later changes of the model have no effect."""

    def __init__(self, model: BiLM, dtype: str = "float32") -> None:
        self.model = model
        self.dtype = dtype
        self._torch_dtype = DTYPES[dtype]
        self._prepack = can_prepack(dtype)
        config = self.model.config
        self._lstm, self._directions = config.lstm, config.num_directions
        with torch.inference_mode():
            self._layers = [
                [self._layer(cast(ProjectedLSTM, layer)) for layer in cast(LSTMStack, stack).layers]
                for stack in self.model.stacks
            ]
            self._encoder = _TokenEncoder(self, self.model.token_encoder)

    def __reduce__(self) -> tuple[type, tuple[BiLM, str]]:
        return type(self), (self.model, self.dtype)

    @staticmethod
    def supports(model: BiLM) -> str | None:
        """None: all models are supported, because the activation is the model's own function."""
        return None

    def encode_rows(self, rows: np.ndarray) -> np.ndarray:
        """Token vectors (N, P) float32 of rows of ids (N, W)."""
        out = np.empty((len(rows), self._lstm.proj_dim), dtype=np.float32)  # (N, P)
        # words of similar length together: the convolutions read the columns of the longest word of a call
        order = np.argsort((rows[:, ::-1] != rows[:, -1:]).argmax(axis=1))[::-1]  # by the padding after each word
        with torch.inference_mode(), torch.autocast("cpu", enabled=False):  # `dtype` says how products are computed
            for start in range(0, len(rows), WORDS_PER_CALL):
                group = order[start : start + WORDS_PER_CALL]
                ids = torch.from_numpy(np.ascontiguousarray(rows[group], dtype=np.int64))  # (N, W)
                out[group] = self._encoder(ids).numpy()
        return out

    def contextualize(self, request: CpuRequest) -> CpuResult:
        """The chosen layers of every token of the request and, on request, the state after each sentence."""
        request.check(self._lstm.num_layers, self._lstm.proj_dim)
        P, H, L = self._lstm.proj_dim, self._lstm.cell_dim, self._lstm.num_layers
        out = request.result(self._directions * P)  # (K, N, D)
        final = None
        if request.want_state:
            shape = (self._directions, L, request.num_sentences)
            final = StateArrays(h=np.zeros((*shape, P), np.float32), c=np.zeros((*shape, H), np.float32))
        with torch.inference_mode(), torch.autocast("cpu", enabled=False):
            for direction in range(self._directions):
                _DirectionPass(self, request, direction, torch.from_numpy(out), final).run()
        return CpuResult(out=out, state=final)

    def linear(self, weight: Tensor, bias: Tensor | None) -> _Linear:
        """The product with a weight (outputs, inputs), plus a bias (outputs,)."""
        return _Linear(weight.detach(), None if bias is None else bias.detach(), self._torch_dtype, self._prepack)

    def _layer(self, layer: ProjectedLSTM) -> _Layer:
        P, H = self._lstm.proj_dim, self._lstm.cell_dim
        # gates in the order input, forget, output, candidate: one sigmoid over the first three
        order = torch.cat([torch.arange(0, H), torch.arange(2 * H, 4 * H), torch.arange(H, 2 * H)])
        bias = layer.bias.detach().float().clone()
        bias[2 * H : 3 * H] += layer.forget_bias
        kernel = layer.kernel.detach().float()[:, order]  # (2P, 4H)
        return _Layer(
            input=self.linear(kernel[:P].T, bias[order]),
            recurrent=self.linear(kernel[P:].T, None),
            projection=None if layer.projection is None else self.linear(layer.projection.T, None),
        )


class _Linear:
    """x (N, inputs) float32 to (N, outputs) float32, with the product in `dtype`."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, prepack: bool) -> None:
        weight = weight.to(dtype)  # (outputs, inputs)
        self._bias = None if bias is None else bias.to(dtype)
        self._dtype, self._packed = dtype, prepack and weight.numel() >= SMALLEST_PACKED
        if self._packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), NUM_SLOTS)
        else:
            self._weight = weight.T.contiguous()  # (inputs, outputs)

    def __call__(self, x: Tensor) -> Tensor:
        x = x.to(self._dtype)
        if self._packed:
            product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            return product.float()
        return (torch.mm(x, self._weight) if self._bias is None else torch.addmm(self._bias, x, self._weight)).float()


@dataclass(frozen=True)
class _Layer:
    input: _Linear  # P -> 4H, with bias
    recurrent: _Linear  # P -> 4H
    projection: _Linear | None  # H -> P


class _TokenEncoder:
    """Rows of ids (N, W) to token vectors (N, P)."""

    def __init__(self, bilm: TorchBiLM, encoder: TokenEncoder) -> None:
        self._words = None if encoder.words is None else F.pad(encoder.words.detach().float(), (0, 0, 1, 0))
        self._project = None if encoder.project is None else bilm.linear(encoder.project.weight, encoder.project.bias)
        self._chars = encoder.chars
        if encoder.chars is not None:
            self._table = F.pad(encoder.chars.table.detach().float(), (0, 0, 1, 0))  # (V + 1, E); id 0 is padding
            convolutions = [cast(nn.Conv1d, convolution) for convolution in encoder.chars.convolutions]
            self._filters = [(c.weight.detach().float(), cast(Tensor, c.bias).detach().float()) for c in convolutions]
            self._widest = max(weight.shape[2] for weight, _ in self._filters)
            pairs = [(h.transform, h.carry) for h in encoder.chars.highways if isinstance(h, Highway)]
            self._highways = [
                bilm.linear(torch.cat([a.weight, b.weight]), torch.cat([a.bias, b.bias])) for a, b in pairs
            ]

    def __call__(self, ids: Tensor) -> Tensor:
        features = []
        if self._words is not None:
            features.append(self._words[ids[:, -1]])  # (N, word_dim)
            ids = ids[:, :-1]
        if self._chars is not None:
            features.append(self._char_features(self._chars, ids))  # (N, F)
        x = torch.cat(features, dim=-1) if len(features) > 1 else features[0]  # (N, token_dim)
        return x if self._project is None else self._project(x)  # (N, P)

    def _char_features(self, chars: CharCNN, ids: Tensor) -> Tensor:
        varying = (ids != ids[:, -1:]).any(dim=0).nonzero()
        used = int(varying[-1]) + 1 if len(varying) else 0
        x = self._table[ids[:, : used + self._widest]].transpose(1, 2)  # (N, E, C)
        pooled = [F.conv1d(x, weight, bias).amax(dim=-1) for weight, bias in self._filters]  # each (N, count)
        x = chars.activation(torch.cat(pooled, dim=-1))  # (N, F)
        for highway in self._highways:
            transform, carry = highway(x).chunk(2, dim=-1)  # each (N, F)
            x = torch.lerp(x, torch.relu(transform), torch.sigmoid(carry))
        return x


class _DirectionPass:
    """One run of all sentences through all layers of one direction."""

    def __init__(
        self, bilm: TorchBiLM, request: CpuRequest, direction: int, out: Tensor, final: StateArrays | None
    ) -> None:
        self._layers, self._lstm = bilm._layers[direction], bilm._lstm
        self._request, self._direction, self._out, self._final = request, direction, out, final
        self._visits, begins, ends, active = plan_slots(request.offsets, NUM_SLOTS, reverse=direction == 1)
        self._active = active.tolist()  # number of active slots at each step; they are the first ones
        self._begins, self._ends = by_step(begins), by_step(ends) if final else {}
        S, P, H = self._visits.shape[1], self._lstm.proj_dim, self._lstm.cell_dim
        self._h = [torch.zeros(S, P, dtype=torch.float32) for _ in self._layers]  # whatever torch's default is
        self._c = [torch.zeros(S, H, dtype=torch.float32) for _ in self._layers]
        self._table = torch.from_numpy(request.table)
        self._initial: tuple[Tensor, Tensor] | None = None
        if request.initial is not None:
            self._initial = (
                torch.from_numpy(request.initial.h[direction]),
                torch.from_numpy(request.initial.c[direction]),
            )
        used_layers = np.flatnonzero(request.mix.any(axis=0))
        self._top = len(self._layers) if final else int(used_layers.max(initial=0))

    def run(self) -> None:
        rows_per_chunk = max(NUM_SLOTS, CHUNK_BYTES // (16 * self._lstm.cell_dim))
        begin, steps = 0, len(self._visits)
        while begin < steps:
            rows = np.cumsum(self._active[begin:])
            end = begin + max(1, int(np.searchsorted(rows, rows_per_chunk, side="right")))
            self._run_chunk(begin, end)
            begin = end

    def _run_chunk(self, begin: int, end: int) -> None:
        tokens = np.concatenate([self._visits[t, : self._active[t]] for t in range(begin, end)])  # (rows,)
        words, word_of_row = np.unique(self._request.tokens[tokens], return_inverse=True)
        distinct = self._table[torch.from_numpy(words)]  # (words, P)
        row_words = torch.from_numpy(word_of_row.reshape(-1))
        layers = [distinct[row_words]]  # of (rows, P)
        counts = self._active[begin:end]
        for number in range(self._top):
            layer = self._layers[number]
            if number == 0:
                products = layer.input(distinct)  # (words, 4H)
                inputs = (products[rows] for rows in row_words.split(counts))
            else:
                inputs = iter(layer.input(layers[-1]).split(counts))
            above = self._steps(number, layer, begin, inputs)  # (rows, P)
            layers.append(above + layers[-1] if number > 0 and self._lstm.skip else above)
        self._write_results(tokens, layers)

    def _steps(self, number: int, layer: _Layer, begin: int, inputs: Iterator[Tensor]) -> Tensor:
        H, lstm = self._lstm.cell_dim, self._lstm
        h, c = self._h[number], self._c[number]
        outputs = []
        for t, from_input in enumerate(inputs, begin):  # (slots, 4H)
            h, c = h[: len(from_input)], c[: len(from_input)]
            if t in self._begins:
                h, c = self._begin_sentences(number, t, h, c)
            gates = layer.recurrent(h).add_(from_input)
            gates[:, : 3 * H].sigmoid_()
            i, f, o, j = gates.split(H, dim=1)  # each (slots, H)
            c = c.mul_(f).addcmul_(i, j.tanh_())
            if lstm.cell_clip is not None:
                c.clamp_(-lstm.cell_clip, lstm.cell_clip)
            h = torch.tanh(c).mul_(o)
            if layer.projection is not None:
                h = layer.projection(h)  # (slots, P)
                if lstm.proj_clip is not None:
                    h.clamp_(-lstm.proj_clip, lstm.proj_clip)
            if t in self._ends:
                self._end_sentences(number, t, h, c)
            outputs.append(h)
        self._h[number], self._c[number] = h, c
        return torch.cat(outputs)

    def _begin_sentences(self, number: int, t: int, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        slots, sentences = (torch.from_numpy(part) for part in self._begins[t])
        h = h.clone()  # the previous step has passed it on as its output
        if self._initial is None:
            return h.index_fill_(0, slots, 0.0), c.index_fill_(0, slots, 0.0)
        all_h, all_c = self._initial  # (L, 1 or sentences, ·)
        rows = sentences if all_h.shape[1] > 1 else torch.zeros_like(sentences)
        h[slots], c[slots] = all_h[number, rows], all_c[number, rows]
        return h, c

    def _end_sentences(self, number: int, t: int, h: Tensor, c: Tensor) -> None:
        assert self._final is not None
        slots, sentences = self._ends[t]
        self._final.h[self._direction, number, sentences] = h.numpy()[slots]
        self._final.c[self._direction, number, sentences] = c.numpy()[slots]

    def _write_results(self, tokens: np.ndarray, layers: list[Tensor]) -> None:
        places = self._request.places[tokens]
        rows, to = torch.from_numpy(np.flatnonzero(places >= 0)), torch.from_numpy(places[places >= 0])
        P = self._lstm.proj_dim
        columns = slice(self._direction * P, (self._direction + 1) * P)
        for k, weights in enumerate(self._request.mix):
            terms = [(layer[rows], float(weight)) for layer, weight in zip(layers, weights, strict=False) if weight]
            mixed = sum(layer if weight == 1.0 else layer * weight for layer, weight in terms)
            self._out[k, to, columns] = mixed if terms else 0.0
