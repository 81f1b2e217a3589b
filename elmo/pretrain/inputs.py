"""What the network reads for each word type of prepared text."""

from __future__ import annotations

import torch
from torch import Tensor

from elmo.model.config import BiLMConfig
from elmo.pretrain.prepared import PreparedData


def input_rows(data: PreparedData, config: BiLMConfig) -> Tensor:
    """The row of ids (types, W) of each word type: its characters, or its word's number (unknown ones share one)."""
    if config.chars:
        return torch.from_numpy(data.type_chars.astype("int16"))
    ids = torch.arange(data.num_types)
    return (torch.where(ids < data.vocab_size, ids, data.unk) + 1)[:, None].int()
