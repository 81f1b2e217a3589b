"""The ids that the model reads for each word type of prepared text, and the token vectors of word types."""

from __future__ import annotations

import torch
from torch import Tensor

from elmo.kernels.api import find_kernel, find_strongest_windows
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig
from elmo.pretrain.data.prepared import PreparedData


def input_rows(data: PreparedData, config: BiLMConfig) -> Tensor:
    """The model's input for each word type, one row per type: character ids (number of types, C) or word ids (.., 1).

    Word types outside the vocabulary share the word id of <UNK>.
    """
    if config.chars:
        return torch.from_numpy(data.type_chars.astype("int16"))
    ids = torch.arange(data.num_types)
    return (torch.where(ids < data.vocab_size, ids, data.unk) + 1)[:, None].int()


def type_vectors(model: BiLM, rows: Tensor, types: Tensor, dtype: torch.dtype) -> Tensor:
    """The token vectors of word types (N,), which index `rows`: (N, P) in `dtype`."""
    mixed = dtype == torch.bfloat16
    conv_dtype = torch.bfloat16 if mixed else next(model.parameters()).dtype
    ids = rows[types.long()].int()  # (N, C)
    encode = find_kernel("token_encoder", types.device.type, str(conv_dtype).removeprefix("torch."), model)
    if encode is not None:
        return encode(model.token_encoder, ids).to(dtype)
    strongest_windows = find_strongest_windows(model, types.device, conv_dtype)
    with torch.autocast(types.device.type, torch.bfloat16, enabled=mixed):
        vectors: Tensor = model.token_encoder(ids, strongest_windows).to(dtype)
    return vectors


def distinct_vectors(model: BiLM, rows: Tensor, inputs: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The token vectors (N, P) of the distinct types in `inputs`, and the index of each input among them.

    Each distinct type is encoded only once. The index has the shape of `inputs`.
    """
    distinct, places = torch.unique(inputs, return_inverse=True)
    return type_vectors(model, rows, distinct, dtype), places
