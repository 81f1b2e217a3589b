"""What a task is: the few functions in which the six differ; the loop, the input and the records are the same for all.

    example file -> task.read -> [Example]                                  <task>/data.py, no torch
    [Example]    -> task.labels -> {"tag": ("O", "B-PER", ...)}             numbered once, from the training examples
    [Example]    -> task.collate(examples, maker) -> batch                  maker.tokens(sentences) -> TokenBatch
    batch        -> model.loss(batch), model.predict(batch)                 <task>/model.py, made by task.build
    [Example], [prediction] -> task.score -> {"f1": 91.2, ...}              <task>/score.py, no torch

A new task is a folder with {data, score, model, task}.py and a line in TASKS. `task.py` there holds one value,
TASK = Task(...). An Example is a frozen dataclass of the task's own with a property `sentences`: the token lists that
are embedded (premise and hypothesis; question and passage; a document's sentences). `collate` may embed those alone.

A batch is a frozen dataclass of the task's own: tensors, TokenBatch values and plain values. The loop moves it to the
device with `elmo.tasks.token_batch.to_device`. Targets are None where the examples carry no labels (raw text). `collate`
runs ahead in a thread of its own: it draws no chance and touches no model.

A model is an nn.Module made by `build(config, labels, inputs)`. It keeps `inputs`, a `TokenInputs`, as a submodule:

    embedded = self.inputs(batch.tokens)           Embedded: vectors (B, T, inputs.dim), mask (B, T)
    h = self.encoder(embedded.vectors, mask)       (B, T, H)
    h = self.inputs.at_output(h, embedded)         (B, T, H + inputs.output_dim): [h; ELMo], or h where not asked for

and need not know whether ELMo is there, frozen, tuned, or which layers are mixed. The loop adds the mixes' penalty.
Two token batches (question, passage) are two calls of `self.inputs`, with the same mixes.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from elmo.errors import ConfigError
from elmo.text.tokenize import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from elmo.tasks.elmo_input import TokenInputs
    from elmo.tasks.token_batch import BatchMaker

TASKS = {  # name: the module with its TASK, imported when it is asked for
    "squad": "elmo.tasks.squad.task",
    "snli": "elmo.tasks.snli.task",
    "srl": "elmo.tasks.srl.task",
    "coref": "elmo.tasks.coref.task",
    "ner": "elmo.tasks.ner.task",
    "sst": "elmo.tasks.sst.task",
}

Labels = Mapping[str, tuple[str, ...]]  # label sets by name; a label's number is its place
Settings = Mapping[str, Any]  # nested tables, as in TOML


class Example(Protocol):
    """What the framework asks of a task's example."""

    @property
    def sentences(self) -> Sequence[Sequence[str]]:
        """The token lists to embed."""
        ...


class TaskModel(Protocol):
    """What the loop asks of a task's nn.Module. Predictions are plain values, one an example, in the batch's order."""

    inputs: TokenInputs

    def loss(self, batch: Any) -> Tensor:
        """A scalar: the mean over the batch's examples (or what the task sums and averages)."""
        ...

    def predict(self, batch: Any) -> list[Any]:
        """What `task.score` takes as predicted; called in eval mode without gradients."""
        ...


@dataclass(frozen=True)
class Piece:
    """A stretch of rendered text; `label` names what is marked ("PER", "answer", "cluster 2"), "" is plain text."""

    text: str
    label: str = ""


def as_they_are(examples: list[Any], config: Any) -> list[Any]:
    """Trains on the examples as read."""
    return examples


def size_of(example: Any) -> int:
    """Tokens of all its sentences."""
    return sum(map(len, example.sentences))


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task as values and functions; see the head of this file."""

    name: str
    title: str  # as in the paper's Table 1
    metric: str  # the score that decides, in percent, more is better
    fields: tuple[str, ...]  # what raw text for `predict` consists of: ("text",), ("premise", "hypothesis")
    model_config: type  # frozen dataclass of the [model] section
    read: Callable[[Path], list[Any]]
    labels: Callable[[Sequence[Any]], Labels]
    collate: Callable[[Sequence[Any], BatchMaker], Any]
    build: Callable[[Any, Labels, TokenInputs], nn.Module]  # (model_config value, labels, inputs) -> a TaskModel
    score: Callable[[Sequence[Any], Sequence[Any]], Mapping[str, float]]  # gold examples, predictions -> percentages
    from_text: Callable[[Sequence[str], Tokenizer], Any]  # (fields, tokenize) -> unlabelled Example
    render: Callable[[Any, Any], list[Piece]]  # (example, prediction) -> for people
    as_json: Callable[[Any, Any], dict[str, Any]]  # (example, prediction) -> for machines
    training_examples: Callable[[list[Any], Any], list[Any]] = as_they_are  # (examples, model config): phrases, limits
    size: Callable[[Any], int] = size_of  # batches hold examples of like size
    by_sentence: bool = False  # raw text for `predict` is cut into sentences, each an example of its own
    defaults: Settings = field(default_factory=dict)  # settings that differ from the framework's; the user's win


def load_task(name: str) -> Task:
    """The task called `name`."""
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"There is no task {name!r}.", f"{hint}Known: {', '.join(TASKS)}.")
    task: Task = importlib.import_module(TASKS[name]).TASK
    return task
