"""The baseline: a biLM written directly in PyTorch, which does what AllenNLP's module does.

Batches are in the given order, all characters of every token are convolved, padding included, and a loop over time
leaves out the rows whose sentence has ended. Other variants are compared with it where AllenNLP is not installed.
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
Embed = Callable[[Sentences], "list[np.ndarray]"]  # token lists to (L + 1, n, D) per sentence
BATCH_SIZE = 64  # sentences


def baseline_loop(model: BiLM, indexer: Indexer, sentences: Sentences) -> list[np.ndarray]:
    """All layers (L + 1, n, D) of each sentence."""
    vectors: list[np.ndarray] = []
    with torch.inference_mode():
        for start in range(0, len(sentences), BATCH_SIZE):
            batch = make_batch(sentences[start : start + BATCH_SIZE], indexer)
            lengths = torch.from_numpy(batch.mask.sum(axis=1))
            order = lengths.argsort(descending=True)  # so that the rows still running are the first ones
            char_ids = torch.from_numpy(batch.ids)[order].flatten(0, 1)  # (B*T, C)
            tokens = encode_characters(model, char_ids).unflatten(0, batch.mask.shape)  # (B, T, P)
            directions = [run_stack(stack, tokens, lengths[order], r == 1) for r, stack in enumerate(model.stacks)]
            layer0 = torch.cat([tokens] * len(directions), dim=-1)[None]
            layers = torch.cat([layer0, torch.cat(directions, dim=-1)])  # (L + 1, B, T, D)
            in_input_order = layers[:, order.argsort()].numpy()
            vectors += [in_input_order[:, row, 1 : int(n) - 1] for row, n in enumerate(lengths)]
    return vectors


def sorted_by_length(embed: Embed) -> Embed:
    """The same function, but fed the sentences sorted by length; the results are in input order."""

    def run(sentences: Sentences) -> list[np.ndarray]:
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        sorted_vectors = embed([sentences[i] for i in order])
        in_input_order: list[np.ndarray] = [sorted_vectors[0]] * len(order)
        for vectors, i in zip(sorted_vectors, order, strict=True):
            in_input_order[i] = vectors
        return in_input_order

    return run


def encode_characters(model: BiLM, ids: Tensor) -> Tensor:
    """Token vectors (N, P) of character ids (N, C); all columns are convolved."""
    encoder: Any = model.token_encoder
    x = torch.nn.functional.pad(encoder.chars.table, (0, 0, 1, 0))[ids].transpose(1, 2)  # (N, E, C)
    activation = encoder.chars.activation
    x = torch.cat([activation(convolution(x).amax(dim=-1)) for convolution in encoder.chars.convolutions], dim=-1)
    for highway in encoder.chars.highways:
        x = highway(x)
    projected: Tensor = x if encoder.project is None else encoder.project(x)
    return projected


def run_stack(stack: Any, x: Tensor, lengths: Tensor, backward: bool) -> Tensor:
    """All layers (L, B, T, P) of one direction; x (B, T, P) has the longest sentence first."""
    outputs = []
    for number, layer in enumerate(stack.layers):
        P, H = x.shape[2], layer.bias.shape[0] // 4
        out, h, c = torch.zeros_like(x), x.new_zeros(len(x), P), x.new_zeros(len(x), H)
        steps = range(x.shape[1])
        for t in reversed(steps) if backward else steps:
            n = int((lengths > t).sum())  # rows that have a token at this step
            gates = x[:n, t] @ layer.kernel[:P] + layer.bias + h[:n] @ layer.kernel[P:]  # (n, 4H)
            i, j, f, o = gates.chunk(4, dim=-1)
            new_c = torch.sigmoid(f + layer.forget_bias) * c[:n] + torch.sigmoid(i) * torch.tanh(j)
            c[:n] = new_c.clamp(-layer.cell_clip, layer.cell_clip)
            h[:n] = ((torch.sigmoid(o) * torch.tanh(c[:n])) @ layer.projection).clamp(-layer.proj_clip, layer.proj_clip)
            out[:n, t] = h[:n]
        x = out + x if number > 0 else out
        outputs.append(x)
    return torch.stack(outputs)
