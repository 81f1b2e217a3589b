"""What the network reads for each word type of prepared text, and the vectors it makes of a batch's types."""

from __future__ import annotations

import torch
from torch import Tensor

from elmo.kernels.api import find_strongest_windows
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig
from elmo.pretrain.data.prepared import PreparedData


def input_rows(data: PreparedData, config: BiLMConfig) -> Tensor:
    """The row of ids (types, W) of each word type: its characters, or its word's number (unknown ones share one)."""
    if config.chars:
        return torch.from_numpy(data.type_chars.astype("int16"))
    ids = torch.arange(data.num_types)
    return (torch.where(ids < data.vocab_size, ids, data.unk) + 1)[:, None].int()


def type_vectors(model: BiLM, rows: Tensor, types: Tensor, dtype: torch.dtype) -> Tensor:
    """The vectors of word types (N,), as numbered in `rows`: (N, P) in `dtype`."""
    mixed = dtype == torch.bfloat16
    conv_dtype = torch.bfloat16 if mixed else next(model.parameters()).dtype
    strongest_windows = find_strongest_windows(model, types.device, conv_dtype)
    with torch.autocast(types.device.type, torch.bfloat16, enabled=mixed):
        vectors: Tensor = model.token_encoder(rows[types.long()].int(), strongest_windows).to(dtype)
    return vectors


def distinct_vectors(model: BiLM, rows: Tensor, inputs: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Each distinct type of `inputs` (...) encoded once, (N, P) in `dtype`, and which of them stands where, (...)."""
    distinct, places = torch.unique(inputs, return_inverse=True)
    return type_vectors(model, rows, distinct, dtype), places
