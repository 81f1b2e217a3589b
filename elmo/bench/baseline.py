"""A biLM over sentences as one would write it down in PyTorch: what AllenNLP's module does, in our words.

Batches in the order given, every token's whole row of characters convolved, padding too, and a loop over time in which
short sentences drop out. The measure that other paths are held against where AllenNLP itself is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.model.bilm import BiLM
from elmo.text.batch import make_batch
from elmo.text.indexer import Indexer

Sentences = Sequence[Sequence[str]]
Embed = Callable[[Sentences], "list[np.ndarray]"]  # token lists to (L + 1, n, D) each
BATCH = 64  # sentences


def baseline_loop(model: BiLM, indexer: Indexer, sentences: Sentences) -> list[np.ndarray]:
    """(L + 1, n, D) of each sentence."""
    found: list[np.ndarray] = []
    with torch.inference_mode():
        for start in range(0, len(sentences), BATCH):
            batch = make_batch(sentences[start : start + BATCH], indexer)
            lengths = torch.from_numpy(batch.mask.sum(axis=1))
            order = lengths.argsort(descending=True)  # so that those still at work are the first rows
            tokens = characters(model, torch.from_numpy(batch.ids)[order].flatten(0, 1)).unflatten(0, batch.mask.shape)
            directions = [stack_loop(stack, tokens, lengths[order], d == 1) for d, stack in enumerate(model.stacks)]
            both = torch.cat([tokens] * len(directions), dim=-1)[None]
            layers = torch.cat([both, torch.cat(directions, dim=-1)])  # (L + 1, B, T, D)
            back = layers[:, order.argsort()].numpy()
            found += [back[:, row, 1 : int(n) - 1] for row, n in enumerate(lengths)]
    return found


def by_length(embed: Embed) -> Embed:
    """The same, fed sentences of like length."""

    def run(sentences: Sentences) -> list[np.ndarray]:
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        found = embed([sentences[i] for i in order])
        back: list[np.ndarray] = [found[0]] * len(order)
        for vectors, i in zip(found, order, strict=True):
            back[i] = vectors
        return back

    return run


def characters(model: BiLM, ids: Tensor) -> Tensor:
    """(N, C) to (N, P), all columns convolved."""
    encoder: Any = model.token_encoder
    x = torch.nn.functional.pad(encoder.chars.table, (0, 0, 1, 0))[ids].transpose(1, 2)  # (N, E, C)
    activation = encoder.chars.activation
    x = torch.cat([activation(convolution(x).amax(dim=-1)) for convolution in encoder.chars.convolutions], dim=-1)
    for highway in encoder.chars.highways:
        x = highway(x)
    return x if encoder.project is None else encoder.project(x)


def stack_loop(stack: Any, x: Tensor, lengths: Tensor, backward: bool) -> Tensor:
    """(B, T, P), longest sentence first, to (L, B, T, P)."""
    outputs = []
    for number, layer in enumerate(stack.layers):
        P, H = x.shape[2], layer.bias.shape[0] // 4
        out, h, c = torch.zeros_like(x), x.new_zeros(len(x), P), x.new_zeros(len(x), H)
        steps = range(x.shape[1])
        for t in reversed(steps) if backward else steps:
            n = int((lengths > t).sum())  # rows that have a token here
            gates = x[:n, t] @ layer.kernel[:P] + layer.bias + h[:n] @ layer.kernel[P:]  # (n, 4H)
            i, j, f, o = gates.chunk(4, dim=-1)
            new_c = torch.sigmoid(f + layer.forget_bias) * c[:n] + torch.sigmoid(i) * torch.tanh(j)
            c[:n] = new_c.clamp(-layer.cell_clip, layer.cell_clip)
            h[:n] = ((torch.sigmoid(o) * torch.tanh(c[:n])) @ layer.projection).clamp(-layer.proj_clip, layer.proj_clip)
            out[:n, t] = h[:n]
        x = out + x if number > 0 else out
        outputs.append(x)
    return torch.stack(outputs)
