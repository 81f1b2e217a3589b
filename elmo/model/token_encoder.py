"""The context-free token layer: a token's row of ids to its vector (paper section 3.4).

Character convolutions, the best window of each filter, highways, a projection; or a table of words; or both side by
side. First room of the network: its output is layer 0 and the input of both LSTM stacks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo.kernels.api import find_kernel
from elmo.model.config import BiLMConfig, CharConfig


class TokenEncoder(nn.Module):
    """Rows of ids (N, W) to token vectors (N, P)."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.chars = CharCNN(config.chars) if config.chars else None
        self.words = nn.Parameter(torch.empty(config.words.num_words, config.words.word_dim)) if config.words else None
        self.project = nn.Linear(config.token_dim, config.lstm.proj_dim) if config.projects_tokens else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The reference's start: everything normal with variance 1 / inputs, biases zero."""
        if self.words is not None:
            nn.init.normal_(self.words, std=self.words.shape[1] ** -0.5)
        if self.project is not None:
            nn.init.normal_(self.project.weight, std=self.project.in_features**-0.5)
            nn.init.zeros_(self.project.bias)

    def forward(self, ids: Tensor) -> Tensor:
        features = []
        if self.words is not None:
            features.append(F.embedding(ids[:, -1], _with_padding_row(self.words)))  # (N, word_dim)
            ids = ids[:, :-1]
        if self.chars is not None:
            features.append(self.chars(ids))  # (N, F)
        x = torch.cat(features, dim=-1) if len(features) > 1 else features[0]  # (N, token_dim)
        return x if self.project is None else self.project(x)  # (N, P)


class CharCNN(nn.Module):
    """Rows of character ids (N, C) to the strongest answer of each filter, through the highways: (N, F)."""

    def __init__(self, config: CharConfig) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(config.num_chars, config.char_dim))
        self.convolutions = nn.ModuleList(nn.Conv1d(config.char_dim, count, width) for width, count in config.filters)
        self.highways = nn.ModuleList(Highway(config.num_filters) for _ in range(config.num_highways))
        self.widest = max(width for width, _ in config.filters)
        self.activation = torch.relu if config.activation == "relu" else torch.tanh
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.table, -1.0, 1.0)
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            if self.activation is torch.relu:
                nn.init.uniform_(convolution.weight, -0.05, 0.05)
            else:
                nn.init.normal_(convolution.weight, std=(convolution.kernel_size[0] * convolution.in_channels) ** -0.5)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.activation(self._answers(ids))  # (N, F)
        for highway in self.highways:
            x = highway(x)
        return x

    def _answers(self, ids: Tensor) -> Tensor:
        """The strongest answer of each filter over all windows, (N, F)."""
        table = _with_padding_row(self.table)
        kind = ids.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else table.dtype
        strongest_windows = find_kernel("strongest_windows", kind, str(dtype).removeprefix("torch."))
        if strongest_windows is not None:
            weights, biases = zip(*((c.weight, c.bias) for c in self.convolutions), strict=True)
            answers: Tensor = strongest_windows(ids, table, list(weights), list(biases), dtype)
            return answers
        x = F.embedding(self._used_columns(ids), table).transpose(1, 2)  # (N, E, C)
        return torch.cat([_strongest(convolution(x)) for convolution in self.convolutions], dim=-1)

    def _used_columns(self, ids: Tensor) -> Tensor:
        """Columns up to the longest token and one all-padding window more: the rest repeats that window's answer."""
        varying = (ids != ids[:, -1:]).any(dim=0).nonzero()
        used = int(varying[-1]) + 1 if len(varying) else 0
        return ids[:, : used + self.widest]


class Highway(nn.Module):
    """y = g * relu(transform(x)) + (1 - g) * x, where g = sigmoid(carry(x)); the published files' names for the two."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = nn.Linear(dim, dim)
        self.carry = nn.Linear(dim, dim)
        for linear, bias in ((self.transform, 0.0), (self.carry, -2.0)):  # starts near identity
            nn.init.normal_(linear.weight, std=dim**-0.5)
            nn.init.constant_(linear.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.carry(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


def _strongest(x: Tensor) -> Tensor:
    # amax is quicker; max sends its gradient to one window instead of splitting it in several passes over all
    return x.max(dim=-1).values if torch.is_grad_enabled() else x.amax(dim=-1)


def _with_padding_row(table: Tensor) -> Tensor:
    # id 0 means nothing: a zero row that is no parameter, so it cannot learn and is in no file
    return F.pad(table, (0, 0, 1, 0))
