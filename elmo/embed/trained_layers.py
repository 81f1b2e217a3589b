"""All layers of padded sentences with gradients, for models that train the biLM as one of their parts.

It computes what `BiLM.forward` computes, but each distinct word of a batch passes the token encoder once, and on a CPU
the compiled training kernels run where they support the model.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional as F

from elmo.kernels.api import find_kernel
from elmo.kernels.cpu.train_lstm import TrainStacks
from elmo.model.bilm import BiLM

_stacks: WeakKeyDictionary[BiLM, TrainStacks] = WeakKeyDictionary()  # each keeps the memory of its backward passes


def trained_layers(bilm: BiLM, ids: Tensor) -> Tensor:
    """All layers (L+1, B, T, D) of ids (B, T, W) with boundaries, padded with 0 on the right; zero at padding.

    Every sentence starts from the zero state.
    """
    words, index = torch.unique(ids.flatten(0, 1), dim=0, return_inverse=True)  # (N, W), (B*T,)
    encode = find_kernel("token_encoder", "cpu", "float32", bilm) if _is_trained_on_cpu(bilm) else None
    vectors = bilm.token_encoder(words) if encode is None else encode(bilm.token_encoder, words)  # (N, P)
    index = index.view(ids.shape[:2])  # (B, T)
    mask = (ids != 0).any(dim=-1)  # (B, T)
    stacks = _find_stacks(bilm)
    if stacks is None:
        return bilm.contextualize(F.embedding(index, vectors), mask).layers
    steps = torch.arange(ids.shape[1])
    lengths = mask.sum(dim=1, keepdim=True)  # (B, 1)
    mirror = torch.where(steps < lengths, lengths - 1 - steps, steps)  # (B, T): from right to left, without padding
    directions = [index, index.gather(1, mirror)][: len(bilm.stacks)]
    x = F.embedding(torch.stack([places.t() for places in directions]), vectors)  # (R, T, B, P)
    layers, _ = stacks.layers(bilm.stacks, x, bilm.zero_state(len(ids)))  # (R, L, T, B, P)
    by_direction = [layers[0].transpose(1, 2)]  # (L, B, T, P)
    if len(directions) > 1:
        backward = layers[1].transpose(1, 2)
        by_direction.append(backward.gather(2, mirror[None, :, :, None].expand_as(backward)))
    token_layer = x[0].transpose(0, 1)  # (B, T, P)
    every_layer = [torch.cat([token_layer[None], contextual]) for contextual in by_direction]  # (L+1, B, T, P)
    return torch.cat(every_layer, dim=-1) * mask[:, :, None]


def _find_stacks(bilm: BiLM) -> TrainStacks | None:
    make_stacks = find_kernel("train_stacks", "cpu", "float32", bilm) if _is_trained_on_cpu(bilm) else None
    if make_stacks is None:
        return None
    if bilm not in _stacks:
        _stacks[bilm] = make_stacks()
    return _stacks[bilm]


def _is_trained_on_cpu(bilm: BiLM) -> bool:
    weight = next(bilm.parameters())
    return weight.device.type == "cpu" and weight.dtype == torch.float32
