"""Settings of a pretraining run: text, model, objective, optimizer, training loop.

They come from a TOML file, from flags, or from both (flags win), on top of the defaults of `recipe` and `preset`. The
effective settings are written into the run folder; reading them back gives the same run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from elmo.errors import ConfigError
from elmo.files import atomic_file
from elmo.model.config import PRESETS, BiLMConfig, HeadConfig, WordConfig
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.sentence_order import SHUFFLE_WINDOW
from elmo.settings import OFF, above, at_least, check_fields, format_toml, merge, one_of, parse_settings

CONFIG_FILE = "config.toml"  # in the folder of a run
MAX_HEAD_ONLY_STEPS = 500  # by default


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """The training objective: the mean of both directions' losses is minimised."""

    softmax: Annotated[str, one_of("sampled", "full", "adaptive")] = "sampled"
    num_samples: Annotated[int, at_least(1)] = 8192  # negatives per direction and step (sampled)
    cutoffs: tuple[int, ...] = ()  # first words of the rarer clusters (adaptive); (): a tenth and a half of the words
    dropout: Annotated[float, at_least(0, below=1)] = 0.1  # on each LSTM layer's input and before the softmax
    tied: bool = False  # the softmax rows are the word table (word input only)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.cutoffs and self.softmax != "adaptive":
            raise ConfigError(
                f"objective.cutoffs are for the adaptive softmax, and objective.softmax is {self.softmax!r}.",
                "Leave them out, or set objective.softmax=adaptive.",
            )

    def is_sampled(self, head: HeadConfig) -> bool:
        """Whether training scores a sample of the words, and not all of them."""
        return self.softmax == "sampled" and self.num_samples < head.vocab_size

    def num_scored(self, head: HeadConfig) -> int:
        """The number of words that the softmax scores per position in training.

        For an adaptive softmax these are its frequent words and its clusters; the words of a cluster are scored at few
        positions.
        """
        if head.kind == "adaptive":
            return head.cutoffs[0] + len(head.cutoffs)
        return self.num_samples if self.is_sampled(head) else head.vocab_size


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """The optimizer and its learning rate schedule."""

    name: Annotated[str, one_of("adamw", "adagrad", "muon")] = "adamw"  # muon: Muon for matrices, AdamW for the rest
    lr: Annotated[float, above(0)] = 4e-3  # peak learning rate
    weight_decay: Annotated[float, at_least(0)] = 0.01  # adamw and muon; not applied to vectors
    beta1: Annotated[float, at_least(0, below=1)] = 0.9
    beta2: Annotated[float, at_least(0, below=1)] = 0.98
    momentum: Annotated[float, at_least(0, below=1)] = 0.95  # muon, of the matrices
    matrix_lr_ratio: Annotated[float, above(0)] = 1.0  # muon: learning rate of the matrices / lr
    warmup: Annotated[float, at_least(0, below=1)] = 0.02  # share of the run
    decay: Annotated[str, one_of("none", "linear", "cosine")] = "cosine"
    final: Annotated[float, at_least(0, up_to=1)] = 0.02  # share of lr at the end of the decay
    clip_norm: Annotated[float, above(0)] = 1.0  # of all gradients together
    times_unroll: bool = False  # gradients of loss x steps, as in the reference implementation

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Batches, length of the run, validation, checkpoints and device."""

    seed: int = 0
    rows: Annotated[int, at_least(1)] = 128  # rows of running text per step, all devices together
    steps: Annotated[int, at_least(1)] = 20  # tokens per row and step; gradients stop there, the LSTM state continues
    accumulate: Annotated[int, at_least(1)] = 1  # micro-batches per step, to save memory; divides rows
    reset: Annotated[float, at_least(0, up_to=1)] = 1.0  # probability of a zero state at a sentence start; 0: carried
    shuffle: bool = True
    shuffle_window: Annotated[int, at_least(0)] = SHUFFLE_WINDOW  # sentences shuffled together; 0: shard by shard
    epochs: Annotated[float, above(0)] = 10.0  # passes over the text; ignored where max_steps is set
    max_steps: Annotated[int, at_least(0)] = 0  # 0: as many as the epochs take
    max_tokens: Annotated[int, at_least(1)] | None = None  # per direction
    stop_after: Annotated[float, above(0)] | None = None  # seconds of this call
    validate_every: Annotated[int, at_least(0)] = 500  # steps; 0: only at the end
    validate_minutes: Annotated[float, above(0)] | None = 5.0  # longest time between validations; None: no limit
    validate_words: Annotated[int, at_least(1)] = 50_000  # maximum size of the validated part of the held-out text
    checkpoint_every: Annotated[int, at_least(0)] = 500  # steps; 0: only at the end
    checkpoint_minutes: Annotated[float, above(0)] | None = 5.0  # longest time between checkpoints; None: no limit
    report_words: Annotated[int, at_least(1)] | None = 100_000  # held-out words measured at the end; None: all of them
    keep: Annotated[int, at_least(2)] = 2  # newest checkpoints to keep (two, because the newest may be damaged)
    patience: Annotated[int, at_least(1)] | None = None  # validations without improvement before the run stops
    precision: Annotated[str, one_of("auto", "float32", "bfloat16")] = "auto"  # of products; auto: bfloat16 on CUDA
    device: str = "auto"
    head_only_steps: Annotated[int, at_least(-1)] = -1  # first steps that train the softmax alone; -1: by default
    max_bad_steps: Annotated[int, at_least(1)] = 10  # consecutive steps with non-finite gradients before the run fails
    spike_threshold: Annotated[float, above(0)] | None = 0.5  # rise of the smoothed loss, in nats; None: guard is off
    max_rollbacks: Annotated[int, at_least(0)] = 4  # returns to a checkpoint, each with half the rate, before it fails
    tensorboard: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.rows % self.accumulate:
            raise ConfigError(
                f"rows is {self.rows} and accumulate {self.accumulate}; expected accumulate to divide rows."
            )


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All settings of one pretraining run."""

    recipe: str = "modern"
    preset: str = "small"  # defaults of the model section
    data: PrepareConfig = field(default_factory=lambda: PrepareConfig(files=()))
    model: BiLMConfig = field(default_factory=lambda: PRESETS["small"])
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.objective.tied and self.model.words is None:
            raise ConfigError("A tied softmax needs word input; this model reads characters.", "Set tied = false.")
        chars, given = self.model.chars, self.data.max_chars
        if chars is not None and given not in (chars.max_chars, PrepareConfig.max_chars):
            raise ConfigError(
                f"data.max_chars is {given}, but the model reads {chars.max_chars} characters per word.",
                "Set model.chars.max_chars alone (`elmo pretrain --max-chars`); the text is prepared for it.",
            )


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


def make_config(*layers: Mapping[str, Any], words: bool = False) -> RunConfig:
    """A run from tables of settings in rising priority: defaults, preset and recipe come before the `layers`.

    With `words` the model reads words; the word table gets its size from the vocabulary later.
    """
    overrides: dict[str, Any] = {}
    for layer in layers:
        overrides = merge(overrides, layer)
    recipe, preset = overrides.get("recipe", "modern"), overrides.get("preset", "small")
    for name, value, choices in (("recipe", recipe, RECIPES), ("preset", preset, PRESETS)):
        if value not in tuple(choices):
            raise ConfigError(f"{name} is {value!r}; expected one of {', '.join(choices)}.")
    base = {"recipe": recipe, "preset": preset, "data": {"files": ()}, "model": PRESETS[preset].to_dict()}
    settings = merge(base | RECIPES[recipe], overrides)
    if words:
        settings["model"] = _with_word_input(settings["model"])
    return parse_settings(RunConfig, settings)


def _with_word_input(model: Any) -> dict[str, Any]:
    """The model section with word input instead of characters; a table of words keeps its given width."""
    words = model.get("words") if isinstance(model, Mapping) else None
    others = {**model, "words": None} if isinstance(model, Mapping) else model
    proj_dim = parse_settings(BiLMConfig, others, section="model").lstm.proj_dim
    if words in (None, OFF):
        words = {}
    if isinstance(words, Mapping):
        words = {"num_words": 1, "word_dim": proj_dim, **words}
    return {**others, "chars": None, "words": words}


def model_config_for_vocab(config: RunConfig, vocab_size: int) -> BiLMConfig:
    """The configured shape, with a softmax (and a word table, if the model has one) for vocab_size words."""
    objective, model = config.objective, config.model
    if objective.softmax == "adaptive":
        cutoffs = objective.cutoffs or (max(1, vocab_size // 10), max(2, vocab_size // 2))
        head = HeadConfig(vocab_size=vocab_size, kind="adaptive", cutoffs=cutoffs)
    else:
        head = HeadConfig(vocab_size=vocab_size, tied=objective.tied)
    words = model.words and WordConfig(num_words=vocab_size, word_dim=model.words.word_dim)
    return replace(model, words=words, head=head)


def num_steps(train: TrainConfig, positions_per_epoch: int) -> int:
    """The number of steps of a run: that of the config, or as many as its epochs take."""
    return train.max_steps or max(1, round(train.epochs * positions_per_epoch / (train.rows * train.steps)))


def head_only_steps(train: TrainConfig, num_steps: int, *, new_softmax: bool) -> int:
    """The number of first steps that train the softmax alone: that of the config, or the default.

    By default a new softmax, whose weights are random, gets a tenth of the run and at most 500 steps; any other gets 0.
    """
    if train.head_only_steps >= 0:
        return train.head_only_steps
    return min(MAX_HEAD_ONLY_STEPS, num_steps // 10) if new_softmax else 0


def resolve_precision(train: TrainConfig, device: str) -> str:
    """The precision of products on a device: that of the config, or for `auto` bfloat16 on CUDA."""
    if train.precision != "auto":
        return train.precision
    return "bfloat16" if device.startswith("cuda") else "float32"


def to_toml(config: RunConfig) -> str:
    """The effective settings, one table per section."""
    return format_toml(asdict(config))


def write_config(config: RunConfig, folder: Path) -> None:
    """Records the effective settings in the folder of a run."""
    with atomic_file(folder / CONFIG_FILE) as partial:
        partial.write_text(to_toml(config), encoding="utf-8")
