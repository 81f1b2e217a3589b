"""A word's vector from its characters: convolution and max over time, as the NER baseline has it."""

from __future__ import annotations

from torch import Tensor, nn

from elmo.tasks.word_vocabulary import NUM_CHARS


class CharCNN(nn.Module):
    """Character numbers (B, T, W), 0 = padding, to (B, T, filters). Padding never wins: it is minus infinity."""

    def __init__(self, char_dim: int, num_filters: int, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dim, self.width = num_filters, width
        self.embed = nn.Embedding(NUM_CHARS, char_dim, padding_idx=0)
        self.convolve = nn.Conv1d(char_dim, num_filters, width, padding=width - 1)  # every word has a window
        self.dropout = nn.Dropout(dropout)

    def forward(self, chars: Tensor) -> Tensor:
        B, T = chars.shape[:2]
        flat = chars.flatten(0, 1)  # (B*T, W)
        vectors = self.dropout(self.embed(flat)).transpose(1, 2)  # (B*T, E, W)
        windows = self.convolve(vectors)  # (B*T, F, W + width - 1)
        # a window counts when it holds a character: the last ones of a short word hold padding alone
        length = (flat != 0).sum(dim=1, keepdim=True)  # (B*T, 1)
        place = windows.new_ones(windows.shape[-1]).cumsum(0)[None]  # (1, W + width - 1), from 1
        counts = place <= length + self.width - 1  # (B*T, W + width - 1)
        best = windows.masked_fill(~counts[:, None], float("-inf")).amax(dim=-1)  # (B*T, F)
        return nn.functional.relu(best).unflatten(0, (B, T))  # (B, T, F)
