"""The token encoder: rows of character or word ids to context-independent vectors (paper section 3.4).

Character convolutions with max-pooling over positions, highway layers and a projection; or a table of word vectors; or
both, concatenated. It is the first part of the network: its output is layer 0 and the input of both LSTM stacks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmo.model.config import BiLMConfig, CharConfig

# ids (N, C), character table (V + 1, E), filter weights of (count, E, width) and biases of (count,) each, to the
# maximum of each filter over all positions, (N, F), before the activation
StrongestWindows = Callable[[Tensor, Tensor, list[Tensor], list[Tensor]], Tensor]


class TokenEncoder(nn.Module):
    """Rows of ids (N, W) to token vectors (N, P)."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.chars = CharCNN(config.chars) if config.chars else None
        self.words = nn.Parameter(torch.empty(config.words.num_words, config.words.word_dim)) if config.words else None
        self.project = nn.Linear(config.token_dim, config.lstm.proj_dim) if config.projects_tokens else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialises like the reference: weights normal with variance 1 / inputs, biases zero."""
        if self.words is not None:
            nn.init.normal_(self.words, std=self.words.shape[1] ** -0.5)
        if self.project is not None:
            nn.init.normal_(self.project.weight, std=self.project.in_features**-0.5)
            nn.init.zeros_(self.project.bias)

    def forward(self, ids: Tensor, strongest_windows: StrongestWindows | None = None) -> Tensor:
        """`strongest_windows` replaces the character convolutions and their max-pooling; None: plain PyTorch."""
        features = []
        if self.words is not None:
            features.append(F.embedding(ids[:, -1], _with_padding_row(self.words)))  # (N, word_dim)
            ids = ids[:, :-1]
        if self.chars is not None:
            features.append(self.chars(ids, strongest_windows))  # (N, F)
        x = torch.cat(features, dim=-1) if len(features) > 1 else features[0]  # (N, token_dim)
        return x if self.project is None else self.project(x)  # (N, P)


class CharCNN(nn.Module):
    """Rows of character ids (N, C) to features (N, F): convolutions, max-pooling over positions, highway layers."""

    def __init__(self, config: CharConfig) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(config.num_chars, config.char_dim))
        self.convolutions = nn.ModuleList(nn.Conv1d(config.char_dim, count, width) for width, count in config.filters)
        self.highways = nn.ModuleList(Highway(config.num_filters) for _ in range(config.num_highways))
        self.widest = max(width for width, _ in config.filters)
        self.activation = torch.relu if config.activation == "relu" else torch.tanh
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialises like the reference."""
        nn.init.uniform_(self.table, -1.0, 1.0)
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            if self.activation is torch.relu:
                nn.init.uniform_(convolution.weight, -0.05, 0.05)
            else:
                nn.init.normal_(convolution.weight, std=(convolution.kernel_size[0] * convolution.in_channels) ** -0.5)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)

    def forward(self, ids: Tensor, strongest_windows: StrongestWindows | None = None) -> Tensor:
        if strongest_windows is None:
            pooled = self._pooled(ids)  # (N, F)
        else:
            weights, biases = zip(*((c.weight, c.bias) for c in self.convolutions), strict=True)
            pooled = strongest_windows(ids, _with_padding_row(self.table), list(weights), list(biases))  # (N, F)
        x = self.activation(pooled)  # (N, F)
        for highway in self.highways:
            x = highway(x)
        return x

    def _pooled(self, ids: Tensor) -> Tensor:
        """The maximum of each filter over all positions, (N, F)."""
        x = F.embedding(self._used_columns(ids), _with_padding_row(self.table)).transpose(1, 2)  # (N, E, C)
        return torch.cat([_max_pool(convolution(x)) for convolution in self.convolutions], dim=-1)

    def _used_columns(self, ids: Tensor) -> Tensor:
        """Columns up to the end of the longest token and one window of padding; later windows are equal to that one."""
        varying = (ids != ids[:, -1:]).any(dim=0).nonzero()
        used = int(varying[-1]) + 1 if len(varying) else 0
        return ids[:, : used + self.widest]


class Highway(nn.Module):
    """y = g * relu(transform(x)) + (1 - g) * x with g = sigmoid(carry(x)); names as in the published weight files."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = nn.Linear(dim, dim)
        self.carry = nn.Linear(dim, dim)
        for linear, bias in ((self.transform, 0.0), (self.carry, -2.0)):  # close to the identity before training
            nn.init.normal_(linear.weight, std=dim**-0.5)
            nn.init.constant_(linear.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.carry(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


def _max_pool(x: Tensor) -> Tensor:
    # amax is faster without gradients; max passes its gradient to one position instead of dividing it among equal ones
    return x.max(dim=-1).values if torch.is_grad_enabled() else x.amax(dim=-1)


def _with_padding_row(table: Tensor) -> Tensor:
    # id 0 is padding: a zero row that is not a parameter, so it is not trained and not saved
    return F.pad(table, (0, 0, 1, 0))
