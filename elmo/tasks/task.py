"""The definition of a task: the functions in which the six tasks differ. Training loop, input and records are shared.

    example file -> task.read -> [Example]                                  <task>/data.py, no torch; see read_file
    [Example]    -> task.labels -> {"tag": ("O", "B-PER", ...)}             label ids, from the training examples
    [Example]    -> task.collate(examples, maker) -> batch                  maker.tokens(sentences) -> TokenBatch
    batch        -> model.loss(batch), model.predict(batch)                 <task>/model.py, built by task.build
    [Example], [prediction] -> task.score -> {"f1": 91.2, ...}              <task>/score.py, no torch

A new task is a folder with {data, score, model, task}.py and a line in TASKS. Its `task.py` defines one value,
TASK = Task(...). An Example is a frozen dataclass of the task with a property `sentences`: the token lists that are
embedded (premise and hypothesis; question and passage; the sentences of a document). `collate` may embed only these.

A batch is a frozen dataclass of the task with tensors, TokenBatch values and plain values. The training loop moves it
to the device with `elmo.tasks.token_batch.to_device`. Targets are None if the examples have no labels (raw text).
`collate` runs in a separate thread ahead of the training, so it must not draw random numbers or use the model.

A model is an nn.Module built by `build(config, labels, inputs)`. It has `inputs`, a `TokenInputs`, as a submodule:

    embedded = self.inputs(batch.tokens)           Embedded: vectors (B, T, inputs.dim), mask (B, T)
    h = self.encoder(embedded.vectors, mask)       (B, T, H)
    h = self.inputs.at_output(h, embedded)         (B, T, H + inputs.output_dim): [h; ELMo], or h without output mix

The model does not depend on whether ELMo is used, frozen or tuned, or which layers are mixed. The loop adds the penalty
of the mixes to the loss. Two token batches (question, passage) are two calls of `self.inputs` with the same mixes.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from elmo.errors import ConfigError, DataError
from elmo.text.tokenize import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from elmo.tasks.elmo_input import TokenInputs
    from elmo.tasks.token_batch import BatchMaker

TASKS = {  # name: the module of its TASK, imported on demand
    "squad": "elmo.tasks.squad.task",
    "snli": "elmo.tasks.snli.task",
    "srl": "elmo.tasks.srl.task",
    "coref": "elmo.tasks.coref.task",
    "ner": "elmo.tasks.ner.task",
    "sst": "elmo.tasks.sst.task",
}

Labels = Mapping[str, tuple[str, ...]]  # label sets by name; the id of a label is its index
Settings = Mapping[str, Any]  # nested tables, as in TOML


class Example(Protocol):
    """The interface of a task's examples."""

    @property
    def sentences(self) -> Sequence[Sequence[str]]:
        """The token lists to embed."""
        ...


class TaskModel(Protocol):
    """The interface of a task's nn.Module. Predictions are plain values, one per example, in the order of the batch."""

    inputs: TokenInputs

    def loss(self, batch: Any) -> Tensor:
        """The loss, a scalar: usually the mean over the examples of the batch."""
        ...

    def predict(self, batch: Any) -> list[Any]:
        """The predictions for `task.score`; called in eval mode without gradients."""
        ...


@dataclass(frozen=True)
class Segment:
    """A segment of rendered text; `label` is the label of the segment ("PER", "answer", "2"), or "" for plain text."""

    text: str
    label: str = ""


def all_examples(examples: list[Any], config: Any) -> list[Any]:
    """The examples without changes."""
    return examples


def all_sentences(example: Any) -> dict[str, Sequence[Sequence[str]]]:
    """The sentences of the example as one part of text."""
    return {"sentences": example.sentences}


def nothing_missing(examples: Sequence[Any]) -> str:
    """For a task whose `read` refuses examples without labels."""
    return ""


def num_tokens(example: Any) -> int:
    """The number of tokens of all sentences."""
    return sum(map(len, example.sentences))


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task as values and functions; see the docstring of this module."""

    name: str
    title: str  # as in the paper's Table 1
    metric: str  # the main score, in percent, higher is better
    fields: tuple[str, ...]  # the fields of raw text for `predict`: ("text",), ("premise", "hypothesis")
    model_config: type  # frozen dataclass of the [model] section
    read: Callable[..., list[Any]]  # (path), or (path, name of a tokenizer) if reads_raw_text
    labels: Callable[[Sequence[Any]], Labels]
    collate: Callable[[Sequence[Any], BatchMaker], Any]
    build: Callable[[Any, Labels, TokenInputs], nn.Module]  # (model_config value, labels, inputs) -> a TaskModel
    score: Callable[[Sequence[Any], Sequence[Any]], Mapping[str, float]]  # gold examples, predictions -> percentages
    from_text: Callable[[Sequence[str], Tokenizer], Any]  # (fields, tokenize) -> unlabelled Example
    render: Callable[[Any, Any], list[Segment]]  # (example, prediction) -> readable text
    as_json: Callable[[Any, Any], dict[str, Any]]  # (example, prediction) -> JSON object
    training_examples: Callable[[list[Any], Any], list[Any]] = all_examples  # (examples, model config): phrases, limits
    size: Callable[[Any], int] = num_tokens  # batches contain examples of similar size
    texts: Callable[[Any], Mapping[str, Sequence[Sequence[str]]]] = all_sentences  # sentences for the biLM, by part
    missing_labels: Callable[[Sequence[Any]], str] = nothing_missing  # why a file cannot be trained on or scored, or ""
    reads_raw_text: bool = False  # files may have text that is not tokenised
    by_sentence: bool = False  # raw text for `predict` is split into sentences, one example per sentence
    defaults: Settings = field(
        default_factory=dict
    )  # override the framework's defaults; the user's settings override them


def read_file(task: Task, path: str | Path, tokenizer_name: str | None) -> list[Any]:
    """The examples of a file. Raw text in it is tokenised by the named tokenizer; None means `default`."""
    return task.read(Path(path), tokenizer_name or "default") if task.reads_raw_text else task.read(Path(path))


def read_labelled_file(task: Task, path: str | Path, tokenizer_name: str | None) -> list[Any]:
    """The examples of a file for training or scoring; a DataError that names the file if their labels are missing."""
    examples = read_file(task, path, tokenizer_name)
    if missing := task.missing_labels(examples):
        raise DataError(
            f"{path}: {missing}; expected labelled examples.", "Only `elmo task predict --examples` needs no labels."
        )
    return examples


def load_task(name: str) -> Task:
    """The task called `name`."""
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"There is no task {name!r}.", f"{hint}Known: {', '.join(TASKS)}.")
    task: Task = importlib.import_module(TASKS[name]).TASK
    return task
