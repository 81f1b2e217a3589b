"""Token vectors to chosen layers in bounded working memory: two sweeps over time, each with carried state.

The directions never meet inside the network, so one can run left to right and the other right to left in chunks of any
size and give what one long run gives. A document of any length needs memory for its result and one chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from elmo.embed.layer_choice import LayerChoice
from elmo.model.bilm import BiLM
from elmo.model.lstm import State

CHUNK_TOKENS = 8192  # tokens whose gates are held at once: 8192 x 16384 floats are 0.5 GB at the original size


def sweep(model: BiLM, tokens: Tensor, mask: Tensor | None, state: State, choice: LayerChoice) -> tuple[Tensor, State]:
    """Chosen layers (K, B, T, D) of token vectors (B, T, P), and the state after the batch. Without mask: all valid."""
    B, T, P = tokens.shape
    result = tokens.new_empty(len(choice.matrix), B, T, P * len(model.stacks))  # (K, B, T, D)
    step = max(1, CHUNK_TOKENS // max(B, 1))
    starts = range(0, T, step)
    after = []
    for d, stack in enumerate(model.stacks):
        memory = State(state.h[d], state.c[d])
        for start in reversed(starts) if d == 1 else starts:
            part = slice(start, min(start + step, T))
            inside = None if mask is None else mask[:, part]
            contextual, memory = stack(tokens[:, part], inside, memory, reverse=d == 1)  # (L, B, t, P)
            layers = torch.cat([tokens[None, :, part], contextual])  # (L+1, B, t, P)
            result[:, :, part, d * P : (d + 1) * P] = choice.apply(layers)
        after.append(memory)
    return result, State(torch.stack([s.h for s in after]), torch.stack([s.c for s in after]))
