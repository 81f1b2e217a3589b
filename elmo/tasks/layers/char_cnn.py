"""Character CNN: the vector of a word from its characters by convolution and max pooling, as in the NER baseline."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.tasks.word_vocabulary import NUM_CHARS


class CharCNN(nn.Module):
    """Character ids (B, T, C), 0 = padding, to (B, T, F). Windows of padding are excluded from the maximum."""

    def __init__(self, char_dim: int, num_filters: int, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dim, self.width = num_filters, width
        self.embed = nn.Embedding(NUM_CHARS, char_dim, padding_idx=0)
        self.convolve = nn.Conv1d(char_dim, num_filters, width, padding=width - 1)  # so that every word has a window
        self.dropout = nn.Dropout(dropout)

    def forward(self, char_ids: Tensor) -> Tensor:
        B, T = char_ids.shape[:2]
        flat = char_ids.flatten(0, 1)  # (B*T, C)
        vectors = self.dropout(self.embed(flat)).transpose(1, 2)  # (B*T, E, C)
        windows = self.convolve(vectors)  # (B*T, F, C + width - 1)
        # the last windows of a short word contain only padding; they are masked out
        length = (flat != 0).sum(dim=1, keepdim=True)  # (B*T, 1)
        window_number = windows.new_ones(windows.shape[-1]).cumsum(0)[None]  # (1, C + width - 1), from 1
        has_character = window_number <= length + self.width - 1  # (B*T, C + width - 1)
        pooled = windows.masked_fill(~has_character[:, None], float("-inf")).amax(dim=-1)  # (B*T, F)
        features: Tensor = torch.unflatten(nn.functional.relu(pooled), 0, (B, T))  # (B, T, F)
        return features
