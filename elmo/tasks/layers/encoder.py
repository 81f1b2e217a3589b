"""Bidirectional LSTMs or GRUs over padded rows: each row as if it were alone. The contextual encoder of the tasks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmo.tasks.layers.dropout import TimeDropout


class BiRNN(nn.Module):
    """(B, T, input_dim) to (B, T, 2 * hidden_dim), padding (on the right) zero; `dim` is the result's width.

    Dropout is variational, on the input of each layer but the first: the caller drops the input itself. The recurrence
    is computed in float32 whatever the products around it are: under bfloat16 cuDNN would take float16, or step aside.
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

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        with torch.autocast(vectors.device.type, enabled=False):
            return self._encode(vectors.float(), mask)

    def _encode(self, vectors: Tensor, mask: Tensor) -> Tensor:
        lengths = mask.sum(dim=1).clamp(min=1).cpu()  # an empty row counts as one padding token, dropped again below
        for number, layer in enumerate(self.layers):
            if number:
                vectors = self.dropout(vectors)
            packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
            vectors, _ = pad_packed_sequence(layer(packed)[0], batch_first=True, total_length=mask.shape[1])
        return vectors * mask[:, :, None]  # (B, T, 2H)


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
