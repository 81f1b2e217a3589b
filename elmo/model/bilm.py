"""The bidirectional language model: rows of ids to all layers of vectors (paper sections 3.1 and 3.2).

It combines the token encoder, the two LSTM stacks and, if the model has one, the softmax. It reads no files and stores
nothing between calls: the LSTM state is an argument and a result.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.model.config import BiLMConfig
from elmo.model.head import SoftmaxHead, make_head
from elmo.model.lstm import LSTMStack, State
from elmo.model.token_encoder import TokenEncoder


@dataclass(frozen=True)
class BiLMOutput:
    """All layers of a batch, the mask of its tokens, and the state to start the next batch from.

    layers (L+1, B, T, D): layer 0 is the token layer, repeated for each direction; layer k is [forward; backward].
    Positions outside the mask (B, T) are zero. The boundaries are included.
    """

    layers: Tensor
    mask: Tensor
    state: State


class BiLM(nn.Module):
    """A biLM of any published shape. `BiLM(config)` has random weights; `elmo.weights` fills it from files."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        self.token_encoder = TokenEncoder(config)
        self.stacks = nn.ModuleList(LSTMStack(config.lstm) for _ in range(config.num_directions))
        self.head = make_head(config.head, config.lstm.proj_dim) if config.head else None
        if config.head and config.head.tied:
            self.tie()

    def forward(self, ids: Tensor, mask: Tensor | None = None, state: State | None = None) -> BiLMOutput:
        """All layers of ids (B, T, W) with boundaries, padded with 0 on the right. Default mask: the non-zero rows."""
        if mask is None:
            mask = (ids != 0).any(dim=-1)  # (B, T)
        tokens = self.token_encoder(ids.flatten(0, 1)).unflatten(0, ids.shape[:2])  # (B, T, P)
        return self.contextualize(tokens, mask, state)

    def contextualize(self, tokens: Tensor, mask: Tensor, state: State | None = None) -> BiLMOutput:
        """All layers of token vectors (B, T, P), which `token_encoder` computes."""
        state = self.zero_state(len(tokens)) if state is None else state
        tokens = tokens * mask[:, :, None]  # (B, T, P)
        stack_mask = None if bool(mask.all()) else mask
        directions = [
            stack(tokens, stack_mask, State(state.h[r], state.c[r]), reverse=r == 1)
            for r, stack in enumerate(self.stacks)
        ]
        contextual = torch.cat([layers for layers, _ in directions], dim=-1)  # (L, B, T, D)
        token_layer = torch.cat([tokens] * len(directions), dim=-1)  # (B, T, D)
        after = State(torch.stack([s.h for _, s in directions]), torch.stack([s.c for _, s in directions]))
        return BiLMOutput(layers=torch.cat([token_layer[None], contextual]), mask=mask, state=after)

    def tie(self) -> None:
        """Makes the word table and the softmax weights the same tensor."""
        assert isinstance(self.head, SoftmaxHead)
        assert self.token_encoder.words is not None
        self.head.weight = self.token_encoder.words

    def zero_state(self, num_rows: int) -> State:
        """The zero state of R directions: h (R, L, B, P) and c (R, L, B, H); c is at least float32."""
        lstm, like = self.config.lstm, next(self.parameters())
        shape = (self.config.num_directions, lstm.num_layers, num_rows)
        cell_dtype = torch.promote_types(like.dtype, torch.float32)
        return State(like.new_zeros(*shape, lstm.proj_dim), like.new_zeros(*shape, lstm.cell_dim, dtype=cell_dtype))
