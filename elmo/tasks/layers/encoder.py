"""Bidirectional LSTM or GRU over padded rows, the contextual encoder of the tasks; padding has no influence."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.tasks.layers.dropout import TimeDropout
from elmo.tasks.layers.gru import run_gru
from elmo.tasks.layers.packing import Packing, make_packing


class BiRNN(nn.Module):
    """(B, T, input_dim) to (B, T, 2H), zero at padding (on the right); `dim` is 2H.

    Dropout is variational, on the input of each layer except the first; the caller applies dropout to the input. The
    recurrence is computed in float32 even under autocast, because with bfloat16 cuDNN would use float16 or a slower
    implementation. `packing` belongs to the mask; without it the lengths are read from the device, which synchronises.
    """

    def __init__(
        self, input_dim: int, hidden_dim: int, num_layers: int = 1, *, dropout: float = 0.0, cell: str = "lstm"
    ) -> None:
        super().__init__()
        self.dim = 2 * hidden_dim
        rnn = {"lstm": nn.LSTM, "gru": nn.GRU}[cell]
        input_dims = [input_dim] + [self.dim] * (num_layers - 1)
        self.layers = nn.ModuleList(rnn(dim, hidden_dim, batch_first=True, bidirectional=True) for dim in input_dims)
        self.dropout = TimeDropout(dropout)
        for layer in self.layers:
            _initialize(layer, hidden_dim, is_lstm=cell == "lstm")

    def forward(self, vectors: Tensor, mask: Tensor, packing: Packing | None = None) -> Tensor:
        if packing is None:
            packing = make_packing(mask.sum(dim=1).tolist(), mask.shape[1])
            packing = Packing(packing.indices.to(mask.device), packing.batch_sizes)
        if not packing.batch_sizes:
            return vectors.new_zeros(*mask.shape, self.dim, dtype=torch.float32)  # all rows are empty
        with torch.autocast(vectors.device.type, enabled=False):
            return self._encode(vectors.float(), packing)

    def _encode(self, vectors: Tensor, packing: Packing) -> Tensor:
        B, T = vectors.shape[:2]
        for number, layer in enumerate(self.layers):
            if number:
                vectors = self.dropout(vectors)
            packed = packing.pack(vectors)
            if isinstance(layer, nn.GRU) and vectors.device.type == "cpu" and torch.is_grad_enabled():
                outputs = run_gru(layer, packed.data, packing.batch_sizes)  # (N, 2H)
            else:
                outputs = layer(packed)[0].data
            vectors = packing.unpack(outputs, B, T)
        return vectors  # (B, T, 2H)


def _initialize(layer: nn.Module, hidden_dim: int, *, is_lstm: bool) -> None:
    """Orthogonal recurrent weights, Glorot input weights, zero biases except 1 for the forget gates of an LSTM."""
    for name, weight in layer.named_parameters():
        if name.startswith("weight_hh"):
            for block in torch.split(weight.data, hidden_dim):
                nn.init.orthogonal_(block)
        elif name.startswith("weight_ih"):
            for block in torch.split(weight.data, hidden_dim):
                nn.init.xavier_uniform_(block)
        else:
            weight.data.zero_()
            if is_lstm and name.startswith("bias_hh"):
                weight.data[hidden_dim : 2 * hidden_dim] = 1.0
