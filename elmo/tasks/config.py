"""A task run as values: which files, which vectors, how ELMo enters, how to learn, when to stop.

A run is a TOML file, or flags, or both (flags win), on top of the task's own defaults. The [model] section belongs to
the task. The effective values are written into the run's folder as JSON, and reading them back gives the same run.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, cast, get_args, get_type_hints

from elmo.errors import ConfigError
from elmo.settings import merge
from elmo.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Files of examples in the task's format, compressed by suffix."""

    train: str = ""
    dev: str = ""
    test: str | None = None  # scored once, at the end, with the weights that were best on dev
    fraction: float = 1.0  # share of the training examples, drawn by the seed

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"data.fraction is {self.fraction}; expected above 0, up to 1.")


@dataclass(frozen=True, kw_only=True)
class WordsConfig:
    """A vector for each known word; the baseline's input, and beside ELMo too."""

    dim: int = 100  # of words without a file; 0: no word vectors at all. A file brings its own
    vectors: str | None = None  # word2vec text format, compressed by suffix
    tuned: bool = True  # learn with the task
    min_count: int = 2  # training words rarer than this, and without a vector, share the unknown word's
    extra: int = 20_000  # first words of the file kept besides those of the data, for raw text later
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check_range("words", self, dim=(0, 10_000), min_count=(1, 10**9), extra=(0, 10**8), dropout=(0, 1))


@dataclass(frozen=True, kw_only=True)
class CharsConfig:
    """A convolution over each word's characters, max over time; not the biLM's."""

    num_filters: int = 0  # 0: none
    width: int = 3
    dim: int = 16  # of a character's vector
    max_chars: int = 24  # longer words are cut in the middle, beginnings and ends tell most
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check_range("chars", self, num_filters=(0, 10_000), width=(1, 20), dim=(1, 1000), max_chars=(2, 200))
        _check_range("chars", self, dropout=(0, 1))


@dataclass(frozen=True, kw_only=True)
class ElmoConfig:
    """How ELMo enters the model (paper sections 3.2 and 3.3)."""

    mode: str = "none"  # none; frozen; tuned (the biLM learns with the task)
    model: str = "default"  # name, folder or file, as `elmo.load` takes it
    layers: str = "all"  # all (a learned mix); top (the last alone)
    place: str = "input"  # input; output (of the contextual encoder); both
    penalty: float = 0.001  # lambda: 1 keeps the mix near a plain average, 0.001 lets it learn
    dropout: float = 0.5
    layer_norm: str = "none"  # none, batch (as published), token
    cache: str = "memory"  # of frozen layers: memory, disk, off (each batch anew)
    cache_dir: str | None = None  # for disk; without, the package's own cache folder
    lr: float = 1e-4  # of the biLM's weights where they are tuned

    def __post_init__(self) -> None:
        choices = {
            "mode": ("none", "frozen", "tuned"),
            "layers": ("all", "top"),
            "place": ("input", "output", "both"),
            "layer_norm": ("none", "batch", "token"),
            "cache": ("memory", "disk", "off"),
        }
        for name, known in choices.items():
            _check_choice(f"elmo.{name}", getattr(self, name), known)
        _check_range("elmo", self, penalty=(0, 1e6), dropout=(0, 1), lr=(0, 100))

    @property
    def used(self) -> bool:
        return self.mode != "none"


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """How the weights move."""

    name: str = "adam"  # adam, adamw, adadelta, sgd
    lr: float = 1e-3
    weight_decay: float = 0.0
    rho: float = 0.95  # adadelta
    clip_norm: float = 5.0  # of all gradients together; 0: off
    halve_after: int = 0  # validations without a better one before the rate is halved; 0: never
    ema: float = 0.0  # decay of a running average of the weights that is what gets validated and kept; 0: off

    def __post_init__(self) -> None:
        _check_choice("optim.name", self.name, ("adam", "adamw", "adadelta", "sgd"))
        _check_range("optim", self, lr=(0, 100), weight_decay=(0, 100), clip_norm=(0, 1e9), halve_after=(0, 10**6))
        _check_range("optim", self, ema=(0, 0.999999), rho=(0, 0.999999))


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How much and how long."""

    seed: int = 0
    batch_size: int = 32  # examples an update
    max_tokens: int = 0  # most padded tokens an update; 0: no limit
    epochs: int = 50  # at most
    patience: int = 10  # validations without a better one before stopping
    validate_every: int = 0  # updates, besides the end of each epoch; 0: there alone
    validate_after: int = 0  # updates that lie between two ends of epochs that are validated; 0: each one is
    precision: str = "auto"  # float32; bfloat16 (products); auto: bfloat16 on CUDA
    device: str = "auto"

    def __post_init__(self) -> None:
        _check_choice("train.precision", self.precision, ("auto", "float32", "bfloat16"))
        _check_range("train", self, seed=(0, 2**31), batch_size=(1, 10**6), max_tokens=(0, 10**9), epochs=(1, 10**6))
        _check_range("train", self, patience=(1, 10**6), validate_every=(0, 10**9), validate_after=(0, 10**9))


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run of one task with one seed."""

    task: str
    data: DataConfig = field(default_factory=DataConfig)
    words: WordsConfig = field(default_factory=WordsConfig)
    chars: CharsConfig = field(default_factory=CharsConfig)
    elmo: ElmoConfig = field(default_factory=ElmoConfig)
    model: Any = None  # the task's own dataclass
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        at_input = self.elmo.used and self.elmo.place != "output"
        if not (self.words.dim or self.words.vectors or self.chars.num_filters or at_input):
            raise ConfigError("The model has no input.", "Set words.dim, chars.num_filters, or elmo.mode = 'frozen'.")

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values; `make_config(task, values)` is the inverse."""
        return asdict(self)


def make_config(task: Task, *layers: Mapping[str, Any]) -> RunConfig:
    """A run from settings that override each other, weakest first: defaults, the task's, then the given layers."""
    settings: dict[str, Any] = {"task": task.name, "model": {}}
    for layer in (task.defaults, *layers):
        settings = merge(settings, layer)
    if settings["task"] != task.name:
        raise ConfigError(f"The settings are for task {settings['task']!r}, not {task.name!r}.")
    config: RunConfig = _from_dict(RunConfig, settings, sections={"model": task.model_config})
    return config


def _from_dict(kind: type, values: Any, *, where: str = "", sections: Mapping[str, type] | None = None) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where.rstrip('.') or 'the configuration'} is {values!r}; expected a table of settings.")
    kinds = {**get_type_hints(kind), **(sections or {})}
    arguments = {}
    for key, value in values.items():
        if key not in kinds:
            near = difflib.get_close_matches(str(key), kinds, n=1)
            hint = f"Did you mean {where + near[0]!r}?" if near else f"Known: {', '.join(kinds)}."
            raise ConfigError(f"Unknown setting {where + str(key)!r}.", hint)
        if is_dataclass(kinds[key]):
            arguments[key] = _from_dict(cast(type, kinds[key]), value, where=f"{where}{key}.")
        else:
            arguments[key] = _checked(f"{where}{key}", value, kinds[key])
    return kind(**arguments)


def _checked(name: str, value: Any, kind: Any) -> Any:
    """A plain value of the kind its field has; whole numbers pass as decimals, lists as tuples, "off" as None."""
    allowed = get_args(kind) if type(None) in get_args(kind) else (kind,)
    if type(None) in allowed and value in (None, "off"):
        return None
    plain = next((k for k in allowed if k in (bool, int, float, str)), None)
    if plain is None:
        return tuple(value) if isinstance(value, list) else value
    if plain is float and type(value) is int:
        return float(value)
    if type(value) is not plain:
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
        raise ConfigError(f"{name} is {value!r}; expected {words[plain]}.")
    return value


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        near = difflib.get_close_matches(str(value), known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{name} is {value!r}; expected one of {', '.join(known)}.", hint)


def _check_range(section: str, values: Any, **ranges: tuple[float, float]) -> None:
    for name, (low, high) in ranges.items():
        value = getattr(values, name)
        if not low <= value <= high:
            raise ConfigError(f"{section}.{name} is {value}; expected {low:g} to {high:g}.")
