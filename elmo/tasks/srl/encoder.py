"""The encoder of the srl model (He et al. 2017): LSTM layers of alternating direction with highway connections.

Layer 1 reads from left to right, layer 2 reads the output of layer 1 from right to left, and so on. A gate r combines
the output of a layer with its input: h = r * lstm(x) + (1 - r) * W x. With recurrent_gate, as published, the gate reads
the previous output of the layer, and the gated output is the state for the next step; this is a Python loop over time
steps. Without it, gate and highway are outside the recurrence, and torch's LSTM is used, which is many times faster.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AlternatingLSTM(nn.Module):
    """(B, T, input_dim) to (B, T, H), zero at padding (on the right), which has no influence on the tokens."""

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        num_layers: int,
        *,
        dropout: float = 0.1,  # on the output of a layer (with recurrent_gate on its state); one mask for all steps
        recurrent_gate: bool = False,
    ) -> None:
        super().__init__()
        self.dim, self.dropout = hidden_dim, dropout
        layer_type = RecurrentHighway if recurrent_gate else OuterHighway
        input_dims = [input_dim] + [hidden_dim] * (num_layers - 1)
        self.layers = nn.ModuleList(layer_type(dim, hidden_dim) for dim in input_dims)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        reversal = _reversal(mask)  # (B, T)
        for number, layer in enumerate(self.layers):
            dropout_mask = self._dropout_mask(vectors)  # (B, H)
            ordered = _reorder(vectors, reversal) if number % 2 else vectors  # (B, T, input_dim or H)
            hidden = layer(ordered, dropout_mask)  # (B, T, H)
            vectors = _reorder(hidden, reversal) if number % 2 else hidden
        return vectors * mask[:, :, None]

    def _dropout_mask(self, vectors: Tensor) -> Tensor:
        ones = vectors.new_ones(len(vectors), self.dim)
        return nn.functional.dropout(ones, self.dropout, self.training)  # (B, H)


class OuterHighway(nn.Module):
    """An LSTM layer with a highway connection outside the recurrence."""

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(input_dim, hidden_dim, batch_first=True)
        self.gate = nn.Linear(input_dim + hidden_dim, hidden_dim)
        self.through = nn.Linear(input_dim, hidden_dim, bias=False)
        _initialize([self.lstm, self.gate, self.through], hidden_dim)
        self.lstm.get_parameter("bias_hh_l0").data[hidden_dim : 2 * hidden_dim] = 1.0  # the forget gates are open
        nn.init.ones_(self.gate.bias)

    def forward(self, x: Tensor, dropout_mask: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):  # cuDNN would use float16 under bfloat16
            hidden, _ = self.lstm(x.float())  # (B, T, H)
        previous = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], dim=1)  # (B, T, H)
        gate = torch.sigmoid(self.gate(torch.cat([x, previous], dim=-1)))  # (B, T, H)
        output: Tensor = (gate * hidden + (1 - gate) * self.through(x)) * dropout_mask[:, None]  # (B, T, H)
        return output


class RecurrentHighway(nn.Module):
    """The published cell: gates i, f, o, r and the candidate depend on x and on the gated output after dropout."""

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.from_input = nn.Linear(input_dim, 6 * hidden_dim)
        self.from_state = nn.Linear(hidden_dim, 5 * hidden_dim, bias=False)
        _initialize([self.from_input, self.from_state], hidden_dim)
        self.from_input.bias.data[hidden_dim : 2 * hidden_dim] = 1.0  # the forget gates are open

    def forward(self, x: Tensor, dropout_mask: Tensor) -> Tensor:
        H = self.from_state.in_features
        projected = self.from_input(x)  # (B, T, 6H)
        state, cell = projected.new_zeros(len(x), H), projected.new_zeros(len(x), H)  # (B, H)
        outputs = []
        for step in projected.unbind(dim=1):
            gates = step[:, : 5 * H] + self.from_state(state)  # (B, 5H)
            i, f, o, r = torch.sigmoid(gates[:, : 4 * H]).chunk(4, dim=-1)
            cell = i * torch.tanh(gates[:, 4 * H :]) + f * cell
            state = (r * (o * torch.tanh(cell)) + (1 - r) * step[:, 5 * H :]) * dropout_mask
            outputs.append(state)
        return torch.stack(outputs, dim=1)  # (B, T, H)


def _initialize(layers: list[nn.Module], hidden_dim: int) -> None:
    """Orthogonal weights for every block of hidden_dim rows, zero biases."""
    for layer in layers:
        for weight in layer.parameters():
            for block in torch.split(weight.data, hidden_dim):
                nn.init.orthogonal_(block) if block.dim() == 2 else block.zero_()


def _reversal(mask: Tensor) -> Tensor:
    """Indices (B, T) that reverse the tokens of each row and leave the padding in place."""
    positions = torch.arange(mask.shape[1], device=mask.device)[None]  # (1, T)
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - positions, positions)


def _reorder(vectors: Tensor, indices: Tensor) -> Tensor:
    return vectors.gather(1, indices[:, :, None].expand_as(vectors))
