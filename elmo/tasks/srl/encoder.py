"""The deep encoder of the srl model (He et al. 2017): LSTMs that run to and fro, each with a highway around it.

Layer 1 reads from left to right, layer 2 reads layer 1's output from right to left, and so on. Between a layer's input
and output stands a gate r that lets the input through: h = r * lstm(x) + (1 - r) * W x. With recurrent_gate the gate
sees the layer's own last output and what passed it feeds the next step, as published: a loop over time steps in Python.
Without, gate and highway stand outside the recurrence and the LSTM is the library's own, many times faster.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AlternatingLSTM(nn.Module):
    """(B, T, input_dim) to (B, T, hidden_dim), padding (on the right) zero; each row as if it were alone."""

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        num_layers: int,
        *,
        dropout: float = 0.1,  # of what a layer gives (and, with recurrent_gate, keeps); one mask for all steps
        recurrent_gate: bool = False,
    ) -> None:
        super().__init__()
        self.dim, self.dropout = hidden_dim, dropout
        kind = RecurrentHighway if recurrent_gate else OuterHighway
        widths = [input_dim] + [hidden_dim] * (num_layers - 1)
        self.layers = nn.ModuleList(kind(width, hidden_dim) for width in widths)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        backwards = _reversal(mask)  # (B, T)
        for number, layer in enumerate(self.layers):
            kept = self._kept(vectors)  # (B, H)
            turned = _reorder(vectors, backwards) if number % 2 else vectors  # (B, T, ·)
            hidden = layer(turned, kept)  # (B, T, H)
            vectors = _reorder(hidden, backwards) if number % 2 else hidden
        return vectors * mask[:, :, None]

    def _kept(self, vectors: Tensor) -> Tensor:
        ones = vectors.new_ones(len(vectors), self.dim)
        return nn.functional.dropout(ones, self.dropout, self.training)  # (B, H)


class OuterHighway(nn.Module):
    """An LSTM layer with a highway around it."""

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(input_dim, hidden_dim, batch_first=True)
        self.gate = nn.Linear(input_dim + hidden_dim, hidden_dim)
        self.through = nn.Linear(input_dim, hidden_dim, bias=False)
        _start([self.lstm, self.gate, self.through], hidden_dim)
        self.lstm.get_parameter("bias_hh_l0").data[hidden_dim : 2 * hidden_dim] = 1.0  # forget gates open
        nn.init.ones_(self.gate.bias)

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):  # cuDNN would take float16 under bfloat16
            hidden, _ = self.lstm(x.float())  # (B, T, H)
        before = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], dim=1)  # (B, T, H)
        gate = torch.sigmoid(self.gate(torch.cat([x, before], dim=-1)))  # (B, T, H)
        return (gate * hidden + (1 - gate) * self.through(x)) * kept[:, None]


class RecurrentHighway(nn.Module):
    """The published cell: gates i, f, o, r and the candidate read x and the layer's own gated, dropped-out output."""

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.from_input = nn.Linear(input_dim, 6 * hidden_dim)
        self.from_state = nn.Linear(hidden_dim, 5 * hidden_dim, bias=False)
        _start([self.from_input, self.from_state], hidden_dim)
        self.from_input.bias.data[hidden_dim : 2 * hidden_dim] = 1.0  # forget gates open

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        H = self.from_state.in_features
        read = self.from_input(x)  # (B, T, 6H)
        state, cell = read.new_zeros(len(x), H), read.new_zeros(len(x), H)  # (B, H)
        outputs = []
        for now in read.unbind(dim=1):
            gates = now[:, : 5 * H] + self.from_state(state)  # (B, 5H)
            i, f, o, r = torch.sigmoid(gates[:, : 4 * H]).chunk(4, dim=-1)
            cell = i * torch.tanh(gates[:, 4 * H :]) + f * cell
            state = (r * (o * torch.tanh(cell)) + (1 - r) * now[:, 5 * H :]) * kept
            outputs.append(state)
        return torch.stack(outputs, dim=1)  # (B, T, H)


def _start(layers: list[nn.Module], hidden_dim: int) -> None:
    """Every block of hidden_dim rows orthogonal, no biases."""
    for layer in layers:
        for weight in layer.parameters():
            for block in weight.data.split(hidden_dim):
                nn.init.orthogonal_(block) if block.dim() == 2 else block.zero_()


def _reversal(mask: Tensor) -> Tensor:
    """For each place the one it changes with when a row's tokens are reversed; padding stays. (B, T)."""
    places = torch.arange(mask.shape[1], device=mask.device)[None]  # (1, T)
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - places, places)


def _reorder(vectors: Tensor, places: Tensor) -> Tensor:
    return vectors.gather(1, places[:, :, None].expand_as(vectors))
