"""Projected LSTM layers with clipping, one stack per direction; the state is an argument and a result.

It is the second part of the network and the reference implementation: one loop over time; the input part of the gates
is computed before it, in one product. The gates have the order of the published files: input, candidate, forget,
output.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmo.model.config import LSTMConfig


class State(NamedTuple):
    """The state of an LSTM: for one layer h (B, P), c (B, H); for a stack (L, B, ·); for a biLM (R, L, B, ·)."""

    h: Tensor
    c: Tensor


class ProjectedLSTM(nn.Module):
    """One layer of one direction: x (B, T, P) to outputs (B, T, P), zero where the mask is false."""

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        P, H = config.proj_dim, config.cell_dim
        self.kernel = nn.Parameter(torch.empty(2 * P, 4 * H))  # rows: input, then recurrent
        self.bias = nn.Parameter(torch.zeros(4 * H))
        self.projection = nn.Parameter(torch.empty(H, P)) if config.projects else None
        self.cell_clip, self.proj_clip, self.forget_bias = config.cell_clip, config.proj_clip, config.forget_bias
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialises like the reference: Xavier uniform, biases zero."""
        for weight in (self.kernel, self.projection):
            if weight is not None:
                nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.bias)

    def forward(
        self, x: Tensor, mask: Tensor | None, state: State, reverse: bool = False, fresh: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Reads left to right, or right to left with `reverse`.

        A row's state does not change where `mask` (B, T) is false, and is reset to zero before a step where `fresh`
        (B, T) is true. Products have the dtype of x; the cell has its own (float32 if x has 16 bits).
        """
        B, T, P = x.shape
        kernel = self.kernel.to(x.dtype)
        from_input = torch.addmm(self.bias.to(x.dtype), x.reshape(B * T, P), kernel[:P]).view(B, T, -1)  # (B, T, 4H)
        recurrent = kernel[P:]  # (P, 4H)
        projection = None if self.projection is None else self.projection.to(x.dtype)
        all_valid = [True] * T if mask is None else mask.all(dim=0).tolist()
        any_fresh = [False] * T if fresh is None else fresh.any(dim=0).tolist()
        outputs: list[Tensor] = [x] * T
        h, c = state
        for t in reversed(range(T)) if reverse else range(T):
            if any_fresh[t]:
                assert fresh is not None
                h, c = h.masked_fill(fresh[:, t, None], 0.0), c.masked_fill(fresh[:, t, None], 0.0)
            new_h, new_c = self.step(torch.addmm(from_input[:, t], h, recurrent), c, projection)
            if all_valid[t]:
                h, c = new_h, new_c
                outputs[t] = h
            else:
                assert mask is not None
                valid = mask[:, t, None]  # (B, 1)
                h, c = torch.where(valid, new_h, h), torch.where(valid, new_c, c)
                outputs[t] = new_h * valid
        return torch.stack(outputs, dim=1), State(h, c)  # (B, T, P)

    def step(self, gates: Tensor, c: Tensor, projection: Tensor | None) -> tuple[Tensor, Tensor]:
        """h (B, P) and c (B, H) after one step from the sums of the gates (B, 4H), without the forget bias."""
        i, j, f, o = gates.to(c.dtype).chunk(4, dim=-1)  # each (B, H)
        c = torch.sigmoid(f + self.forget_bias) * c + torch.sigmoid(i) * torch.tanh(j)
        if self.cell_clip is not None:
            c = c.clamp(-self.cell_clip, self.cell_clip)
        h = (torch.sigmoid(o) * torch.tanh(c)).to(gates.dtype)  # (B, H)
        if projection is not None:
            h = h @ projection  # (B, P)
            if self.proj_clip is not None:
                h = h.clamp(-self.proj_clip, self.proj_clip)
        return h, c


class LSTMStack(nn.Module):
    """All layers of one direction: x (B, T, P) to the output of every layer (L, B, T, P) and the last state.

    From the second layer on, a layer's input is added to its output, but not to its recurrent state.
    """

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ProjectedLSTM(config) for _ in range(config.num_layers))
        self.skip = config.skip

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        state: State,
        reverse: bool = False,
        fresh: Tensor | None = None,
        dropout: float = 0.0,
    ) -> tuple[Tensor, State]:
        """`state` is h (L, B, P), c (L, B, H). `dropout` acts on each layer's input, also where a skip adds it."""
        outputs, states = [], []
        for number, layer in enumerate(self.layers):
            if dropout:
                x = nn.functional.dropout(x, dropout, training=self.training)
            out, after = layer(x, mask, State(state.h[number], state.c[number]), reverse, fresh)
            if self.skip and number > 0:
                out = out + x if mask is None else out + x * mask[:, :, None]
            outputs.append(out)
            states.append(after)
            x = out
        after = State(torch.stack([s.h for s in states]), torch.stack([s.c for s in states]))
        return torch.stack(outputs), after  # (L, B, T, P)
