"""Settings of a task run: files, word vectors, how ELMo enters the model, optimizer, training loop.

They come from a TOML file, from flags, or from both (flags win), on top of the task's defaults. The [model] section
belongs to the task. The effective settings are written into the run folder; reading them back gives the same run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from elmo.errors import ConfigError
from elmo.settings import above, at_least, check_fields, merge, one_of, parse_settings
from elmo.tasks.task import Task
from elmo.text.tokenize import tokenizer

Probability = Annotated[float, at_least(0, up_to=1)]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Files of examples in the task's format, compressed by suffix."""

    train: str = ""
    dev: str = ""
    test: str | None = None  # scored once, at the end, with the weights that were best on dev
    tokenizer: str | None = None  # of raw text: sst .tsv, snli and squad files, and in `predict`; None: default
    fraction: Annotated[float, above(0, up_to=1)] = 1.0  # share of the training examples, drawn by the seed

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class WordsConfig:
    """One vector per vocabulary word: the baseline's input, which ELMo's vectors are added to."""

    dim: Annotated[int, at_least(0, up_to=10_000)] = 100  # without a vectors file; 0: no word vectors
    vectors: str | None = None  # word2vec text format, compressed by suffix; its width replaces dim
    tuned: bool = True  # trained with the task
    min_count: Annotated[int, at_least(1)] = 2  # rarer training words without a vector share the unknown word's
    extra: Annotated[int, at_least(0)] = 20_000  # first words of the file to load besides those of the data
    dropout: Probability = 0.0

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class CharsConfig:
    """A convolution over each word's characters with max pooling; it is separate from the biLM's."""

    num_filters: Annotated[int, at_least(0, up_to=10_000)] = 0  # 0: no convolution
    width: Annotated[int, at_least(1, up_to=20)] = 3
    dim: Annotated[int, at_least(1, up_to=1000)] = 16  # of a character vector
    max_chars: Annotated[int, at_least(2, up_to=200)] = 24  # longer words lose their middle; ends are informative
    dropout: Probability = 0.0

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class ElmoConfig:
    """How ELMo enters the model (paper sections 3.2 and 3.3)."""

    mode: Annotated[str, one_of("none", "frozen", "tuned")] = "none"  # tuned: the biLM is trained with the task
    model: str = "default"  # name, folder or file, as in `elmo.load`
    layers: Annotated[str, one_of("all", "top")] = "all"  # all: a learned mix of all layers; top: the last layer
    place: Annotated[str, one_of("input", "output", "both")] = "input"  # output: of the contextual encoder
    penalty: Annotated[float, at_least(0, up_to=1e6)] = 0.001  # lambda: 1 keeps the mix near the average
    dropout: Probability = 0.5
    layer_norm: Annotated[str, one_of("none", "batch", "token")] = "none"  # batch: as published
    cache: Annotated[str, one_of("memory", "disk", "off")] = "memory"  # of frozen layers; off: compute every batch
    cache_dir: str | None = None  # for cache = "disk"; None: the package's cache folder
    lr: Annotated[float, at_least(0, up_to=100)] = 1e-4  # of the biLM's weights in mode "tuned"

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def used(self) -> bool:
        return self.mode != "none"


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """The optimizer."""

    name: Annotated[str, one_of("adam", "adamw", "adadelta", "sgd")] = "adam"
    lr: Annotated[float, at_least(0, up_to=100)] = 1e-3
    weight_decay: Annotated[float, at_least(0, up_to=100)] = 0.0
    rho: Annotated[float, at_least(0, below=1)] = 0.95  # adadelta
    clip_norm: Annotated[float, at_least(0)] = 5.0  # of all gradients together; 0: off
    halve_after: Annotated[int, at_least(0)] = 0  # validations without improvement before lr is halved; 0: never
    ema: Annotated[float, at_least(0, below=1)] = 0.0  # decay of the weight average that is validated; 0: no average

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Batches, length of the run, validation and device."""

    seed: Annotated[int, at_least(0, up_to=2**31)] = 0
    batch_size: Annotated[int, at_least(1)] = 32  # examples per update
    max_tokens: Annotated[int, at_least(0)] = 0  # padded tokens per update, at most; 0: no limit
    epochs: Annotated[int, at_least(1)] = 50  # at most
    patience: Annotated[int, at_least(1)] = 10  # validations without improvement before the run stops
    validate_every: Annotated[int, at_least(0)] = 0  # updates, besides the end of each epoch; 0: only there
    validate_after: Annotated[int, at_least(0)] = 0  # minimum updates between two validated ends of epochs; 0: each
    keep_checkpoint: bool = True  # of a finished run, with which it can continue for more epochs
    precision: Annotated[str, one_of("auto", "float32", "bfloat16")] = "auto"  # of products; auto: bfloat16 on CUDA
    device: str = "auto"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All settings of one run: one task, one seed."""

    task: str
    data: DataConfig = field(default_factory=DataConfig)
    words: WordsConfig = field(default_factory=WordsConfig)
    chars: CharsConfig = field(default_factory=CharsConfig)
    elmo: ElmoConfig = field(default_factory=ElmoConfig)
    model: Any = None  # the task's dataclass, Task.model_config
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
    """A run from tables of settings in rising priority: the task's defaults come before the `layers`."""
    settings: dict[str, Any] = {"task": task.name, "model": {}}
    for layer in (task.defaults, *layers):
        settings = merge(settings, layer)
    if settings["task"] != task.name:
        raise ConfigError(f"The settings are for task {settings['task']!r}, not {task.name!r}.")
    config = parse_settings(RunConfig, settings, sections={"model": task.model_config})
    if config.data.tokenizer is not None:
        if not task.reads_raw_text:
            raise ConfigError(
                f"data.tokenizer is {config.data.tokenizer!r}, but the files of the task {task.name} are tokenised.",
                "Leave it out; `elmo task predict` has --tokenizer for raw text.",
            )
        tokenizer(config.data.tokenizer)  # an unknown name is an error
    return config
