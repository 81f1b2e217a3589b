"""A pretraining run as values: what to read, what to build, how to learn, when to stop.

A run is a TOML file, or flags, or both (flags win). `recipe` and `preset` fill in whole groups of settings first; "off"
stands for none. The effective values are written into the run folder, and reading them back gives the same run.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError, DataError
from elmo.model.config import PRESETS, BiLMConfig, from_dict
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.settings import merge

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is minimised: the mean of both directions' losses."""

    softmax: str = "sampled"  # sampled, full, adaptive
    num_samples: int = 8192  # negatives a direction and step (sampled)
    cutoffs: tuple[int, ...] = ()  # where rarer clusters start (adaptive); none: a tenth and a half of the words
    dropout: float = 0.1  # on each LSTM layer's input and before the softmax
    tied: bool = False  # the softmax rows are the word table (word input only)

    def __post_init__(self) -> None:
        if self.softmax not in ("sampled", "full", "adaptive"):
            raise ConfigError(f"softmax is {self.softmax!r}; expected sampled, full or adaptive.")
        if not 0 <= self.dropout < 1 or self.num_samples < 1:
            raise ConfigError(
                f"dropout is {self.dropout}, num_samples {self.num_samples}; expected 0 to 1, and 1 or more."
            )


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """How the weights move."""

    name: str = "adamw"  # adamw, adagrad, muon (Muon for matrices, AdamW for the rest)
    lr: float = 4e-3  # at its highest
    weight_decay: float = 0.01  # adamw, muon; vectors have none
    beta1: float = 0.9
    beta2: float = 0.98
    momentum: float = 0.95  # muon, of the matrices
    matrix_lr_ratio: float = 1.0  # muon: learning rate of the matrices / lr
    warmup: float = 0.02  # share of the run
    decay: str = "cosine"  # none, linear, cosine
    final: float = 0.02  # share of lr at the end of the decay
    clip_norm: float = 1.0  # of all gradients together
    times_unroll: bool = False  # gradients of loss x steps, as the reference takes them

    def __post_init__(self) -> None:
        if self.name not in ("adamw", "adagrad", "muon") or self.decay not in ("none", "linear", "cosine"):
            raise ConfigError(f"optimizer {self.name!r} with decay {self.decay!r}; see `elmo pretrain --help`.")
        if not (self.lr > 0 and self.clip_norm > 0 and 0 <= self.warmup < 1 and 0 <= self.final <= 1):
            raise ConfigError(f"lr {self.lr}, clip_norm {self.clip_norm}, warmup {self.warmup}: out of range.")
        if not (0 <= self.momentum < 1 and 0 < self.matrix_lr_ratio < float("inf")):
            raise ConfigError(
                f"momentum is {self.momentum}, matrix_lr_ratio {self.matrix_lr_ratio}; expected 0 to below 1, and "
                "a positive number."
            )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How much, how often, how long."""

    seed: int = 0
    rows: int = 128  # rows of running text a step, all devices together
    steps: int = 20  # tokens a row and step; gradients stop there, the state goes on
    accumulate: int = 1  # parts a step's rows are cut into, to save memory
    reset: float = 1.0  # probability that a sentence starts from a fresh state; 0: carried, as the reference
    shuffle: bool = True
    epochs: float = 10.0  # passes over the text, where max_steps does not say
    max_steps: int = 0  # 0: as many as the epochs take
    max_tokens: int | None = None  # a direction
    stop_after: float | None = None  # seconds of this call
    validate_every: int = 500  # steps; 0: at the end alone
    validate_words: int = 50_000  # of the held-out text, at most
    checkpoint_every: int = 500
    keep: int = 2  # newest checkpoints kept; the best is kept besides
    patience: int | None = None  # validations without a better one before stopping
    precision: str = "auto"  # float32; bfloat16 (products; weights and sums stay float32); auto: bfloat16 on CUDA
    device: str = "auto"
    head_only_steps: int = 0  # at first, only the softmax learns (a new one on a trained model)
    max_bad_steps: int = 10  # steps in a row with NaN or infinite gradients before giving up
    spike_threshold: float | None = 0.5  # nats the smoothed loss may rise; more: back to a checkpoint; None: off
    max_rollbacks: int = 4  # returns to a checkpoint, each with half the rate, before giving up
    tensorboard: bool = False

    def __post_init__(self) -> None:
        whole = ("seed", "rows", "steps", "accumulate", "max_steps", "validate_every", "checkpoint_every", "keep")
        for name in (*whole, "max_rollbacks"):
            if type(getattr(self, name)) is not int:
                raise ConfigError(f"train.{name} is {getattr(self, name)!r}; expected a whole number.")
        if min(self.rows, self.steps, self.accumulate) < 1 or self.rows % self.accumulate:
            raise ConfigError(
                f"rows {self.rows}, steps {self.steps}, accumulate {self.accumulate}.",
                "All are at least 1, and accumulate divides rows.",
            )
        if self.max_steps < 0 or not self.epochs > 0:
            raise ConfigError(f"max_steps {self.max_steps}, epochs {self.epochs}: expected 0 or more, and above 0.")
        if self.keep < 2:
            raise ConfigError(f"keep is {self.keep}; at least 2 checkpoints are kept, for the newest may be damaged.")
        if self.spike_threshold is not None and not self.spike_threshold > 0 or self.max_rollbacks < 0:
            raise ConfigError(
                f"spike_threshold is {self.spike_threshold}, max_rollbacks {self.max_rollbacks}; expected a positive "
                "number or off, and 0 or more."
            )
        if not 0 <= self.reset <= 1 or self.precision not in ("auto", "float32", "bfloat16"):
            raise ConfigError(f"reset {self.reset}, precision {self.precision!r}: 0 to 1; auto, float32 or bfloat16.")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run."""

    recipe: str = "modern"
    preset: str = "small"  # the model section starts from it
    data: PrepareConfig = field(default_factory=lambda: PrepareConfig(files=()))
    model: BiLMConfig = field(default_factory=lambda: PRESETS["small"])
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.objective.tied and self.model.words is None:
            raise ConfigError("A tied softmax needs word input; this model reads characters.", "Set tied = false.")


RECIPES: dict[str, dict[str, dict[str, Any]]] = {
    # bilm-tf's settings (section 3.4 of the paper and its published training script)
    "paper": {
        "objective": {"softmax": "sampled", "num_samples": 8192, "dropout": 0.1},
        "optim": {
            "name": "adagrad",
            "lr": 0.2,
            "warmup": 0.0,
            "decay": "none",
            "clip_norm": 10.0,
            "times_unroll": True,
            "weight_decay": 0.0,
        },
        "train": {"rows": 128, "steps": 20, "reset": 0.0, "precision": "float32"},
    },
    "modern": {
        "objective": {"softmax": "sampled", "num_samples": 8192, "dropout": 0.1},
        "optim": {"name": "adamw", "lr": 4e-3, "warmup": 0.02, "decay": "cosine", "clip_norm": 1.0},
        "train": {"rows": 128, "steps": 20, "reset": 1.0},
    },
}


OFF = "off"  # how TOML, which has no null, and flags write None


def make_config(*layers: dict[str, Any], words: bool = False) -> RunConfig:
    """A run from settings that override each other, weakest first: defaults, preset, recipe, then the given layers.

    With `words` the model reads words; their table takes its size from the vocabulary later.
    """
    given: dict[str, Any] = {}
    for layer in layers:
        given = merge(given, _with_none(layer))
    recipe, preset = given.get("recipe", "modern"), given.get("preset", "small")
    for name, value, known in (("recipe", recipe, RECIPES), ("preset", preset, PRESETS)):
        if value not in known:
            raise ConfigError(f"{name} is {value!r}; expected one of {', '.join(known)}.")
    base = {"recipe": recipe, "preset": preset, "data": {"files": ()}, "model": PRESETS[preset].to_dict()}
    base |= RECIPES[recipe]
    settings = merge(base, given)
    if words:
        table = {"num_words": 1, "word_dim": settings["model"]["lstm"]["proj_dim"]}
        settings["model"] = {**settings["model"], "chars": None, "words": table}
    config: RunConfig = from_dict(RunConfig, settings)
    return config


def read_toml(path: str | Path) -> dict[str, Any]:
    """Settings from a TOML file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error}).") from error


def to_toml(config: RunConfig) -> str:
    """The effective settings, one table a section."""
    lines: list[str] = []
    _write_table(lines, "", asdict(config))
    return "\n".join(lines) + "\n"


def _write_table(lines: list[str], name: str, values: dict[str, Any]) -> None:
    if name:
        lines.append(f"\n[{name}]")
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    for key, value in values.items():
        if key not in tables:
            lines.append(f"{key} = {_toml_value(value)}")
    for key, value in tables.items():
        _write_table(lines, f"{name}.{key}" if name else key, value)


def _toml_value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    # TOML writes strings, numbers and truth values as JSON does
    return json.dumps(OFF if value is None else value, ensure_ascii=False)


def _with_none(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _with_none(value) for key, value in values.items()}
    return None if values == OFF else values
