"""The biLM on CUDA for bulk embedding: computes the vectors of a window of sentences without padding or waiting.

This is the fast implementation of `token_encoder` and of the LSTM stacks in `elmo.model` for inference. Several
sentences follow each other in one row (`packing`), chunks of steps are replayed as CUDA graphs (`steps`), and each
token's mixed layers are written directly to their position in the result or pooled into the sentence's vector
(`layout`). All work is launched in order on a CUDA stream of its own, so the caller can start the next window while one
is computed.
Shapes: L layers, R directions, N words, S sentences, P projection, H cells, V words of the table, K vectors per word,
D = R * P.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.kernels.cuda.char_cnn import strongest_windows
from elmo.kernels.cuda.layout import gather_inputs, make_layout, pool, scatter_outputs
from elmo.kernels.cuda.steps import ChunkRunner, LayerWeights
from elmo.kernels.cuda.supports import short_tokens
from elmo.kernels.cuda.transfer import AsyncDownload, PendingTensor, upload
from elmo.kernels.packing import pack

ENCODER_BATCH = 8192  # words: 8192 words x 2048 filters, float32, is 64 MB for each of the highways' four tensors
MAX_RUNNERS = 4  # numbers of rows whose buffers and graphs are cached; the least recently used one is evicted first
STEP_SECONDS = 12e-6  # duration of a step of two layers with few rows: three or four short kernels
FLOPS = {torch.float32: 4e13}  # operations per second; other dtypes use tensor cores
TENSOR_CORE_FLOPS = 4e14


class CudaBiLM:
    """A biLM for bulk embedding. The LSTM weights are copies: later changes of the model have no effect on them."""

    def __init__(self, model: Any, *, use_graphs: bool = True) -> None:  # Any: a BiLM; elmo.model imports this package
        self.model = model
        lstm = model.config.lstm
        kernel = model.stacks[0].layers[0].kernel
        self.device, self.dtype = kernel.device, kernel.dtype
        self.num_directions, self.num_layers, self.proj_dim = (
            model.config.num_directions,
            lstm.num_layers,
            lstm.proj_dim,
        )
        self._use_graphs = use_graphs
        is_cuda = self.device.type == "cuda"
        self._strongest_windows = None
        if is_cuda and short_tokens(model) is None:
            self._strongest_windows = functools.partial(strongest_windows, dtype=self.dtype)
        self._compute_stream = torch.cuda.Stream(self.device) if is_cuda else None
        self._copy_stream = torch.cuda.Stream(self.device) if is_cuda else None
        with torch.inference_mode(), self.at_work():
            self._weights = LayerWeights.from_stacks(model.stacks, lstm)
        self._runners: OrderedDict[int, ChunkRunner] = OrderedDict()
        operations = 2 * self.num_directions * lstm.num_layers * 9 * lstm.proj_dim * lstm.cell_dim
        flops = FLOPS.get(self.dtype, TENSOR_CORE_FLOPS)
        self._break_even = int(np.clip(STEP_SECONDS * flops / operations, 64, 1024))

    def at_work(self) -> AbstractContextManager[Any]:
        """A context that launches on the stream of this object, after what the caller has launched so far."""
        if self._compute_stream is None:
            return nullcontext()
        self._compute_stream.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self._compute_stream)

    @torch.inference_mode()
    def encode_into(self, table: Tensor, first: int, rows: np.ndarray) -> None:
        """Writes the word vectors of ids (N, C) to table[first : first + N]; call it inside `at_work`."""
        for begin in range(0, len(rows), ENCODER_BATCH):
            batch = np.ascontiguousarray(rows[begin : begin + ENCODER_BATCH], dtype=np.int32)
            (ids,) = upload([batch.reshape(-1)], self.device)
            target = table[first + begin : first + begin + len(batch)]
            target.copy_(self.model.token_encoder(ids.view(batch.shape), self._strongest_windows))  # (n, P)

    @torch.inference_mode()
    def contextualize(
        self,
        table: Tensor,
        words: np.ndarray,
        lengths: np.ndarray,
        mix: np.ndarray,
        *,
        initial: tuple[Tensor, Tensor] | None = None,
        pooling: str | None = None,
    ) -> Tensor:
        """Mixed layers (K, N, D) of all words in order, or pooled (S, K, D); call it inside `at_work`.

        words (N,) int32 are rows of the table (V, P), whose rows 0 and 1 are the boundaries; lengths (S,) are the
        numbers of words per sentence. mix (K, L + 1) holds the weights of the layers. initial: the state h (R, L, P)
        and c (R, L, H) that every sentence starts from; None means zero. Pooled vectors of a bfloat16 model are
        float32, because numpy has no bfloat16.
        """
        N, R, P = len(words), self.num_directions, self.proj_dim
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        packing = pack(np.where(lengths > 0, lengths + 2, 0), self._break_even)
        out = torch.empty(len(mix), N, R * P, device=self.device, dtype=self.dtype)  # (K, N, D)
        mix_bits = np.ascontiguousarray(mix, dtype=np.float32).reshape(-1).view(np.int32)  # int32: one copy for all
        *tokens, bits = upload([words, offsets.astype(np.int32), packing.slots, packing.starts, mix_bits], self.device)
        weights = bits.view(torch.float32).view(mix.shape)
        if N:
            runner = self._runner(packing.num_rows)
            chunks = runner.chunk_lengths(packing.num_steps)
            layout = make_layout(*tokens, num_steps=sum(chunks), num_rows=packing.num_rows, num_directions=R)
            self._set_initial_state(initial)
            top = int(np.flatnonzero(mix.any(axis=0)).max(initial=0))
            runner.start()
            begin = 0
            for num_steps in chunks:
                steps = slice(begin, begin + num_steps)
                gather_inputs(table, layout.words[:, steps], runner.layers[0])
                runner.keep[:, :, : num_steps + 1] = layout.keep[begin : begin + num_steps + 1]
                runner.run(num_steps, top)
                scatter_outputs(runner.layers[:, :, :num_steps], layout.output_rows[:, steps], weights, out)
                begin += num_steps
        if pooling is None:
            return out
        return pool(out, tokens[1], pooling, torch.float32 if self.dtype == torch.bfloat16 else self.dtype)

    def send(self, tensor: Tensor, *, to_host: bool) -> AsyncDownload | PendingTensor:
        """Starts the transfer of a result to the host or to the caller's stream; its `wait` returns the tensor.

        Call it inside `at_work`. A download runs in parallel with what is launched next.
        """
        return AsyncDownload(tensor, self._copy_stream) if to_host else PendingTensor(tensor)

    def _runner(self, num_rows: int) -> ChunkRunner:
        if num_rows not in self._runners:
            while len(self._runners) >= MAX_RUNNERS:
                self._runners.popitem(last=False)
            self._runners[num_rows] = ChunkRunner(self._weights, num_rows, use_graphs=self._use_graphs)
        self._runners.move_to_end(num_rows)
        return self._runners[num_rows]

    def _set_initial_state(self, initial: tuple[Tensor, Tensor] | None) -> None:
        for target, source in zip((self._weights.h, self._weights.c), initial or (None, None), strict=True):
            if source is None:
                target.zero_()
            else:
                target.copy_(source.transpose(0, 1))  # (L, R, P or H)
