"""Configuration of a biLM: frozen dataclasses that check their values, with the same fields as a saved model's JSON.

`PRESETS` holds the sizes released with the paper and a tiny one for experiments.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from elmo.errors import ConfigError
from elmo.settings import parse_settings

PAPER_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
LARGEST_DIM = 1 << 20
LARGEST_NUMBER = 1e30  # a clip or bias beyond it does not fit into float32
CLUSTER_DIVISOR = 4  # each cluster of an adaptive softmax has this fraction of the width of the one before
LARGEST_MODEL = 1 << 34  # parameters; options that describe more are a mistake or an attack


@dataclass(frozen=True, kw_only=True)
class CharConfig:
    """The character network of the token encoder (paper section 3.4)."""

    num_chars: int = 261  # rows of the character table, without the padding row
    char_dim: int = 16
    max_chars: int = 50  # columns of a token's row of ids, including the begin-word and end-word characters
    filters: tuple[tuple[int, int], ...] = PAPER_FILTERS  # (width, number of filters)
    activation: str = "relu"  # relu, tanh
    num_highways: int = 2

    def __post_init__(self) -> None:
        _check("num_chars", self.num_chars, 1, LARGEST_DIM)
        _check("char_dim", self.char_dim, 1, LARGEST_DIM)
        _check("max_chars", self.max_chars, 3, 10_000)
        _check("num_highways", self.num_highways, 0, 100)
        object.__setattr__(self, "filters", tuple(tuple(f) for f in self.filters))
        if not 1 <= len(self.filters) <= 100 or any(len(f) != 2 for f in self.filters):
            raise ConfigError(f"filters are {self.filters!r}; expected 1 to 100 pairs (width, number of filters).")
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
    """A table of word vectors, used instead of the character network or in addition to it."""

    num_words: int
    word_dim: int

    def __post_init__(self) -> None:
        _check("num_words", self.num_words, 1, 1 << 28)
        _check("word_dim", self.word_dim, 1, LARGEST_DIM)


@dataclass(frozen=True, kw_only=True)
class LSTMConfig:
    """The stack of projected LSTM layers, one per direction."""

    num_layers: int = 2
    cell_dim: int = 4096
    proj_dim: int = 512
    project: bool | None = None  # None: only if cell_dim and proj_dim differ; without a projection, proj_clip is unused
    cell_clip: float | None = 3.0  # limit of |c|; None = off
    proj_clip: float | None = 3.0  # limit of |h|; None = off
    skip: bool = True  # from the second layer on, a layer's input is added to its output
    forget_bias: float = 1.0  # added to the forget gate at run time; 0 if the stored bias includes it

    def __post_init__(self) -> None:
        _check("num_layers", self.num_layers, 1, 100)
        _check("cell_dim", self.cell_dim, 1, LARGEST_DIM)
        _check("proj_dim", self.proj_dim, 1, LARGEST_DIM)
        for name in ("cell_clip", "proj_clip"):
            clip = getattr(self, name)
            if clip is not None and not 1 / LARGEST_NUMBER <= clip <= LARGEST_NUMBER:
                limits = f"from {1 / LARGEST_NUMBER:g} to {LARGEST_NUMBER:g}"
                raise ConfigError(f"{name} is {clip!r:.80}; expected a positive number {limits}, or none.")
        if not abs(self.forget_bias) <= LARGEST_NUMBER:
            raise ConfigError(f"forget_bias is {self.forget_bias!r:.80}; expected a number up to {LARGEST_NUMBER:g}.")
        if self.project is False and self.cell_dim != self.proj_dim:
            raise ConfigError(
                f"The LSTM has {self.cell_dim} cells and outputs of {self.proj_dim} numbers.",
                "Without a projection the two must be equal.",
            )

    @property
    def projects(self) -> bool:
        """Whether a matrix maps the cell's output to the layer's output; equal sizes alone do not say it."""
        return self.cell_dim != self.proj_dim if self.project is None else self.project


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """The language model's softmax over a vocabulary, shared by both directions."""

    vocab_size: int
    kind: str = "softmax"  # softmax, adaptive
    cutoffs: tuple[int, ...] = ()  # adaptive only: the first word of each cluster of rarer words
    tied: bool = False  # the softmax weights are the word table (word-level models)

    def __post_init__(self) -> None:
        _check("vocab_size", self.vocab_size, 1, 1 << 28)
        object.__setattr__(self, "cutoffs", tuple(self.cutoffs))
        if self.kind not in ("softmax", "adaptive"):
            raise ConfigError(f"head kind is {self.kind!r}; expected softmax or adaptive.")
        rising = all(a < b for a, b in zip((0, *self.cutoffs), (*self.cutoffs, self.vocab_size), strict=True))
        if not rising or (self.kind == "adaptive") != bool(self.cutoffs):
            raise ConfigError(
                f"cutoffs are {self.cutoffs!r} for a head of kind {self.kind} with {self.vocab_size:,} words.",
                "An adaptive head takes rising word numbers below the vocabulary size; a softmax head takes none.",
            )

    def num_parameters(self, proj_dim: int) -> int:
        """The number of weights, from the width of the hidden states. A tied softmax has only biases of its own."""
        if self.tied:
            return self.vocab_size
        if self.kind == "softmax":
            return self.vocab_size * (proj_dim + 1)
        total = (self.cutoffs[0] + len(self.cutoffs)) * (proj_dim + 1)
        ends = (*self.cutoffs[1:], self.vocab_size)
        for number, (start, end) in enumerate(zip(self.cutoffs, ends, strict=True), start=1):
            total += (proj_dim + end - start) * (proj_dim // CLUSTER_DIVISOR**number)
        return total


@dataclass(frozen=True, kw_only=True)
class BiLMConfig:
    """A complete bidirectional language model."""

    chars: CharConfig | None = field(default_factory=CharConfig)  # None: the model reads words only
    words: WordConfig | None = None  # None: the model reads characters only
    lstm: LSTMConfig = field(default_factory=LSTMConfig)
    bidirectional: bool = True
    project_tokens: bool | None = None  # None: only if token_dim and proj_dim differ
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
            raise ConfigError("A tied softmax needs word input with the same vocabulary.", "Use an untied softmax.")
        if self.head and self.lstm.proj_dim < CLUSTER_DIVISOR ** len(self.head.cutoffs):
            raise ConfigError(
                f"An adaptive softmax with {len(self.head.cutoffs)} clusters needs hidden states at least "
                f"{CLUSTER_DIVISOR ** len(self.head.cutoffs)} wide; those of this model are {self.lstm.proj_dim} wide.",
                f"Each cluster has 1/{CLUSTER_DIVISOR} of the width of the one before: choose fewer cutoffs.",
            )
        if num_parameters(self) > LARGEST_MODEL:
            raise ConfigError(f"The options describe {num_parameters(self):,} parameters.", "Check the sizes in them.")

    @property
    def token_dim(self) -> int:
        """Width of the token features before the projection."""
        return (self.chars.num_filters if self.chars else 0) + (self.words.word_dim if self.words else 0)

    @property
    def projects_tokens(self) -> bool:
        """Whether a matrix maps the token features to the LSTM's input; equal sizes alone do not say it."""
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
        """Layers of vectors per token: the token layer and one per LSTM layer, L+1."""
        return self.lstm.num_layers + 1

    @property
    def row_width(self) -> int:
        """Columns W of a token's row of ids: character ids, then the word id."""
        return (self.chars.max_chars if self.chars else 0) + (1 if self.words else 0)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> BiLMConfig:
        """The inverse of `to_dict`; an unknown key is an error that names the nearest known one."""
        return parse_settings(cls, values)


def num_parameters(config: BiLMConfig, *, head: bool = False) -> int:
    """The number of trainable parameters, computed from the config; the softmax counts only with `head`."""
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
    if head and config.head:
        total += config.head.num_parameters(lstm.proj_dim)
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
