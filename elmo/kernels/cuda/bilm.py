"""The biLM on CUDA for bulk embedding: a window of sentences to its vectors, nothing padded, nothing waited for.

Twin of `token_encoder` and of the LSTM stacks in `elmo.model`, for inference. Sentences stand end to end in rows
(`packing`), stretches of steps are replayed CUDA graphs (`steps_cuda`), and each token's chosen layers go straight to
their place in the result or into their sentence's one vector (`layout_cuda`). Everything is put on a stream of the
twin's own, in order, so windows may be started while others run.
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
from elmo.kernels.cuda.layout import hand_out, lay_out, look_up, pool
from elmo.kernels.cuda.steps import Layers, Stretch
from elmo.kernels.cuda.supports import short_tokens
from elmo.kernels.cuda.transfer import Download, Handover, upload
from elmo.kernels.packing import pack

WORDS_AT_ONCE = 8192  # 8192 words x 2048 filters, float32, is 64 MB for each of the highways' four tensors
MOST_BUCKETS = 4  # numbers of rows whose buffers and graphs are kept; the one not used for longest goes first
STEP_SECONDS = 12e-6  # of a step of two layers, however few rows: three or four short kernels
RATES = {torch.float32: 4e13}  # operations a second; tensor cores otherwise
TENSOR_RATE = 4e14


class CudaBiLM:
    """A biLM's weights side by side. The LSTMs' are copies: later changes of the model are not seen."""

    def __init__(self, model: Any, *, use_graphs: bool = True) -> None:  # a BiLM; its package may import us, not we it
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
        cuda = self.device.type == "cuda"
        self._strongest_windows = None
        if cuda and short_tokens(model) is None:
            self._strongest_windows = functools.partial(strongest_windows, dtype=self.dtype)
        self._work = torch.cuda.Stream(self.device) if cuda else None
        self._copies = torch.cuda.Stream(self.device) if cuda else None
        with torch.inference_mode(), self.at_work():
            self._layers = Layers.of(model.stacks, lstm)
        self._stretches: OrderedDict[int, Stretch] = OrderedDict()
        operations = 2 * self.num_directions * lstm.num_layers * 9 * lstm.proj_dim * lstm.cell_dim
        rate = RATES.get(self.dtype, TENSOR_RATE)
        self._break_even = int(np.clip(STEP_SECONDS * rate / operations, 64, 1024))

    def at_work(self) -> AbstractContextManager[Any]:
        """Puts what is launched inside on the twin's stream, behind what the caller has launched so far."""
        if self._work is None:
            return nullcontext()
        self._work.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self._work)

    @torch.inference_mode()
    def encode_into(self, table: Tensor, first: int, rows: np.ndarray) -> None:
        """Vectors of rows of ids (N, W) into table[first : first + N]; to be called at work."""
        for begin in range(0, len(rows), WORDS_AT_ONCE):
            group = np.ascontiguousarray(rows[begin : begin + WORDS_AT_ONCE], dtype=np.int32)
            (ids,) = upload([group.reshape(-1)], self.device)
            to = table[first + begin : first + begin + len(group)]
            to.copy_(self.model.token_encoder(ids.view(group.shape), self._strongest_windows))  # (n, P)

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
        """Mixes (K, N, D) of the layers of all words, sentence after sentence, or pooled (S, K, D); be at work.

        words (N,) int32 are rows of the table (V, P), whose rows 0 and 1 are the boundaries; lengths (S,) count words.
        mix (K, L + 1). initial: h (D, L, P) and c (D, L, H) that every sentence starts from; None: zero. Pooled vectors
        of bfloat16 are float32, since they go to where there is no bfloat16.
        """
        N, D, P = len(words), self.num_directions, self.proj_dim
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        packing = pack(np.where(lengths > 0, lengths + 2, 0), self._break_even)
        out = torch.empty(len(mix), N, D * P, device=self.device, dtype=self.dtype)  # (K, N, D)
        flat = np.ascontiguousarray(mix, dtype=np.float32).reshape(-1).view(np.int32)  # the bits: one copy for all
        *where, bits = upload([words, offsets.astype(np.int32), packing.slots, packing.starts, flat], self.device)
        weights = bits.view(torch.float32).view(mix.shape)
        if N:
            stretch = self._stretch(packing.num_rows)
            parts = stretch.lengths(packing.num_steps)
            layout = lay_out(*where, num_steps=sum(parts), num_rows=packing.num_rows, num_directions=D)
            self._start_from(initial)
            top = int(np.flatnonzero(mix.any(axis=0)).max(initial=0))
            stretch.start()
            begin = 0
            for steps in parts:
                part = slice(begin, begin + steps)
                look_up(table, layout.words[:, part], stretch.layers[0])
                stretch.keep[:, :, : steps + 1] = layout.keep[begin : begin + steps + 1]
                stretch.run(steps, top)
                hand_out(stretch.layers[:, :, :steps], layout.places[:, part], weights, out)
                begin += steps
        if pooling is None:
            return out
        return pool(out, where[1], pooling, torch.float32 if self.dtype == torch.bfloat16 else self.dtype)

    def send(self, tensor: Tensor, *, to_host: bool) -> Download | Handover:
        """The tensor to the host, beside what comes next, or to the caller's stream: `wait` for it; be at work."""
        return Download(tensor, self._copies) if to_host else Handover(tensor)

    def _stretch(self, num_rows: int) -> Stretch:
        if num_rows not in self._stretches:
            while len(self._stretches) >= MOST_BUCKETS:
                self._stretches.popitem(last=False)
            self._stretches[num_rows] = Stretch(self._layers, num_rows, use_graphs=self._use_graphs)
        self._stretches.move_to_end(num_rows)
        return self._stretches[num_rows]

    def _start_from(self, initial: tuple[Tensor, Tensor] | None) -> None:
        for mine, given in zip((self._layers.h, self._layers.c), initial or (None, None), strict=True):
            if given is None:
                mine.zero_()
            else:
                mine.copy_(given.transpose(0, 1))  # (L, D, ·)
