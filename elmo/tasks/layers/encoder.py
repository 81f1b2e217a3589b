"""Bidirectional LSTMs or GRUs over padded rows: each row as if it were alone. The contextual encoder of the tasks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.tasks.layers.dropout import TimeDropout
from elmo.tasks.layers.packing import Packing, make_packing


class BiRNN(nn.Module):
    """(B, T, input_dim) to (B, T, 2 * hidden_dim), padding (on the right) zero; `dim` is the result's width.

    Dropout is variational, on the input of each layer but the first: the caller drops the input itself. The recurrence
    is computed in float32 whatever the products around it are: under bfloat16 cuDNN would take float16, or step aside.
    `packing` is the mask's, where the batch brings it; without, the device is asked for the rows' lengths.
    """

    def __init__(
        self, input_dim: int, hidden_dim: int, num_layers: int = 1, *, dropout: float = 0.0, cell: str = "lstm"
    ) -> None:
        super().__init__()
        self.dim = 2 * hidden_dim
        kind = {"lstm": nn.LSTM, "gru": nn.GRU}[cell]
        widths = [input_dim] + [self.dim] * (num_layers - 1)
        self.layers = nn.ModuleList(kind(w, hidden_dim, batch_first=True, bidirectional=True) for w in widths)
        self.dropout = TimeDropout(dropout)
        for layer in self.layers:
            _start(layer, hidden_dim, is_lstm=cell == "lstm")

    def forward(self, vectors: Tensor, mask: Tensor, packing: Packing | None = None) -> Tensor:
        if packing is None:
            packing = make_packing(mask.sum(dim=1).tolist(), mask.shape[1])
            packing = Packing(packing.places.to(mask.device), packing.sizes)
        if not packing.sizes:
            return vectors.new_zeros(*mask.shape, self.dim, dtype=torch.float32)  # nothing but padding
        with torch.autocast(vectors.device.type, enabled=False):
            return self._encode(vectors.float(), packing)

    def _encode(self, vectors: Tensor, packing: Packing) -> Tensor:
        B, T = vectors.shape[:2]
        for number, layer in enumerate(self.layers):
            if number:
                vectors = self.dropout(vectors)
            vectors = packing.unpack(layer(packing.pack(vectors))[0], B, T)
        return vectors  # (B, T, 2H)


def _start(layer: nn.Module, hidden_dim: int, *, is_lstm: bool) -> None:
    """Orthogonal recurrences, Glorot inputs, no bias but one for an LSTM's forget gates."""
    for name, weight in layer.named_parameters():
        if name.startswith("weight_hh"):
            for block in weight.data.split(hidden_dim):
                nn.init.orthogonal_(block)
        elif name.startswith("weight_ih"):
            for block in weight.data.split(hidden_dim):
                nn.init.xavier_uniform_(block)
        else:
            weight.data.zero_()
            if is_lstm and name.startswith("bias_hh"):
                weight.data[hidden_dim : 2 * hidden_dim] = 1.0
