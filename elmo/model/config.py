"""What a biLM is made of, as numbers: frozen, checked when made, the same in memory and in a saved model's JSON.

`PRESETS` holds the paper's released sizes and a tiny one for trials.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from elmo.errors import ConfigError
from elmo.settings import parse_settings

PAPER_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
LARGEST_DIM = 1 << 20
LARGEST_MODEL = 1 << 34  # parameters; more than this in a file's options is a mistake or an attack


@dataclass(frozen=True, kw_only=True)
class CharConfig:
    """The character side of the token layer (paper section 3.4)."""

    num_chars: int = 261  # rows of the character table, without the padding row
    char_dim: int = 16
    max_chars: int = 50  # columns of a token's row, word marks included
    filters: tuple[tuple[int, int], ...] = PAPER_FILTERS  # (width, how many)
    activation: str = "relu"  # relu, tanh
    num_highways: int = 2

    def __post_init__(self) -> None:
        _check("num_chars", self.num_chars, 1, LARGEST_DIM)
        _check("char_dim", self.char_dim, 1, LARGEST_DIM)
        _check("max_chars", self.max_chars, 3, 10_000)
        _check("num_highways", self.num_highways, 0, 100)
        object.__setattr__(self, "filters", tuple(tuple(f) for f in self.filters))
        if not 1 <= len(self.filters) <= 100 or any(len(f) != 2 for f in self.filters):
            raise ConfigError(f"filters are {self.filters!r}; expected 1 to 100 pairs (width, how many).")
        for width, count in self.filters:
            _check("a filter's width", width, 1, self.max_chars)
            _check("a filter's count", count, 1, LARGEST_DIM)
        if self.activation not in ("relu", "tanh"):
            raise ConfigError(f"activation is {self.activation!r}; expected relu or tanh.")

    @property
    def num_filters(self) -> int:
        return sum(count for _, count in self.filters)


@dataclass(frozen=True, kw_only=True)
class WordConfig:
    """A table of word vectors as (or beside) the token layer's input, for word-level models."""

    num_words: int
    word_dim: int

    def __post_init__(self) -> None:
        _check("num_words", self.num_words, 1, 1 << 28)
        _check("word_dim", self.word_dim, 1, LARGEST_DIM)


@dataclass(frozen=True, kw_only=True)
class LSTMConfig:
    """The stack of projected LSTM layers of each direction."""

    num_layers: int = 2
    cell_dim: int = 4096
    proj_dim: int = 512  # equal to cell_dim: no projection matrix and no projection clip
    cell_clip: float | None = 3.0  # |c| is held under this; None = off
    proj_clip: float | None = 3.0  # |h| is held under this; None = off
    skip: bool = True  # a layer's input is added to its output, from the second layer on
    forget_bias: float = 1.0  # added to the forget gate at run time; 0 where the stored bias contains it

    def __post_init__(self) -> None:
        _check("num_layers", self.num_layers, 1, 100)
        _check("cell_dim", self.cell_dim, 1, LARGEST_DIM)
        _check("proj_dim", self.proj_dim, 1, LARGEST_DIM)
        for name in ("cell_clip", "proj_clip"):
            clip = getattr(self, name)
            if clip is not None and not 0 < clip < float("inf"):
                raise ConfigError(f"{name} is {clip!r}; expected a positive number or none.")
        if not abs(self.forget_bias) < float("inf"):
            raise ConfigError(f"forget_bias is {self.forget_bias!r}; expected a finite number.")

    @property
    def projects(self) -> bool:
        return self.cell_dim != self.proj_dim


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """The language model's softmax over a vocabulary, shared by both directions."""

    vocab_size: int
    kind: str = "softmax"  # softmax, adaptive
    cutoffs: tuple[int, ...] = ()  # adaptive only: where the rarer clusters start
    tied: bool = False  # the softmax rows are the word table (word-level models)

    def __post_init__(self) -> None:
        _check("vocab_size", self.vocab_size, 1, 1 << 28)
        object.__setattr__(self, "cutoffs", tuple(self.cutoffs))
        if self.kind not in ("softmax", "adaptive"):
            raise ConfigError(f"head kind is {self.kind!r}; expected softmax or adaptive.")
        rising = all(a < b for a, b in zip((0, *self.cutoffs), (*self.cutoffs, self.vocab_size), strict=True))
        if not rising or (self.kind == "adaptive") != bool(self.cutoffs):
            raise ConfigError(
                f"cutoffs are {self.cutoffs!r} for a {self.kind} head of {self.vocab_size:,} words.",
                "An adaptive head takes rising word numbers below the vocabulary size; a softmax head takes none.",
            )


@dataclass(frozen=True, kw_only=True)
class BiLMConfig:
    """A whole bidirectional language model."""

    chars: CharConfig | None = field(default_factory=CharConfig)  # None: the model reads words alone
    words: WordConfig | None = None  # None: the model reads characters alone
    lstm: LSTMConfig = field(default_factory=LSTMConfig)
    bidirectional: bool = True
    project_tokens: bool | None = None  # None: where the token features are not as wide as the LSTM's projection
    head: HeadConfig | None = None  # None: vectors only

    def __post_init__(self) -> None:
        if self.chars is None and self.words is None:
            raise ConfigError("A model needs characters, words, or both as its input; neither is configured.")
        if self.project_tokens is False and self.token_dim != self.lstm.proj_dim:
            raise ConfigError(
                f"Token features are {self.token_dim} wide and the LSTM takes {self.lstm.proj_dim}.",
                "Without a token projection the two must be equal.",
            )
        if self.head and self.head.tied and (self.words is None or self.words.num_words != self.head.vocab_size):
            raise ConfigError("A tied softmax needs word input with the same vocabulary.", "Use a softmax of its own.")
        if num_parameters(self) > LARGEST_MODEL:
            raise ConfigError(f"The options describe {num_parameters(self):,} parameters.", "Check the sizes in them.")

    @property
    def token_dim(self) -> int:
        """Width of the token features before the projection."""
        return (self.chars.num_filters if self.chars else 0) + (self.words.word_dim if self.words else 0)

    @property
    def projects_tokens(self) -> bool:
        return self.token_dim != self.lstm.proj_dim if self.project_tokens is None else self.project_tokens

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def dim(self) -> int:
        """Width D of a layer's vectors."""
        return self.num_directions * self.lstm.proj_dim

    @property
    def num_layers(self) -> int:
        """Layers of vectors a token has: the token layer and one for each LSTM layer."""
        return self.lstm.num_layers + 1

    @property
    def row_width(self) -> int:
        """Columns W of a token's row of ids: its characters, then its word id."""
        return (self.chars.max_chars if self.chars else 0) + (1 if self.words else 0)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> BiLMConfig:
        """The inverse of `to_dict`; an unknown key is an error that names the nearest known one."""
        return parse_settings(cls, values)


def num_parameters(config: BiLMConfig, *, head: bool = False) -> int:
    """Trainable numbers of a model, without its softmax unless `head`, from the config alone."""
    chars, words, lstm = config.chars, config.words, config.lstm
    total = 0
    if chars:
        total += chars.num_chars * chars.char_dim
        total += sum(count * (width * chars.char_dim + 1) for width, count in chars.filters)
        total += chars.num_highways * 2 * chars.num_filters * (chars.num_filters + 1)
    if words:
        total += words.num_words * words.word_dim
    if config.projects_tokens:
        total += (config.token_dim + 1) * lstm.proj_dim
    layer = (2 * lstm.proj_dim + 1) * 4 * lstm.cell_dim + (lstm.cell_dim * lstm.proj_dim if lstm.projects else 0)
    total += config.num_directions * lstm.num_layers * layer
    if head and config.head and not config.head.tied:
        total += config.head.vocab_size * (lstm.proj_dim + 1)
    return total


def _check(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{name} is {value!r}; expected a whole number from {low} to {high:,}.")


PRESETS = {
    "tiny": BiLMConfig(
        chars=CharConfig(filters=((1, 16), (2, 16), (3, 32), (4, 64)), num_highways=1),
        lstm=LSTMConfig(cell_dim=256, proj_dim=64),
    ),
    "small": BiLMConfig(chars=CharConfig(num_highways=1), lstm=LSTMConfig(cell_dim=1024, proj_dim=128)),
    "medium": BiLMConfig(chars=CharConfig(num_highways=1), lstm=LSTMConfig(cell_dim=2048, proj_dim=256)),
    "original": BiLMConfig(),
}
