"""Raw text to a task's examples: its parts, tokens, and, where the task reads sentences, their ends. For `predict`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from elmo.errors import DataError
from elmo.tasks.task import Task
from elmo.text.sentences import split_sentences
from elmo.text.tokenize import tokenizer


def read_raw(task: Task, texts: Iterable[Sequence[str]], tokenizer_name: str = "default") -> list[Any]:
    """Unlabelled examples of texts, each given as its parts (`task.fields`); empty ones are refused by number.

    For a task of one part, several parts are several texts.
    """
    tokenize = tokenizer(tokenizer_name)
    examples = []
    for number, parts in enumerate(texts, start=1):
        for fields in [[part] for part in parts] if len(task.fields) == 1 else [parts]:
            if len(fields) != len(task.fields) or not all(field.strip() for field in fields):
                wanted = " and ".join(task.fields)
                raise DataError(f"Text {number} has {len(fields)} parts; expected {wanted}, none empty.")
            for ready in _cut(fields, task.by_sentence):
                examples.append(task.from_text(ready, tokenize))
    return examples


def _cut(fields: Sequence[str], by_sentence: bool) -> list[Sequence[str]]:
    if not by_sentence:
        return [fields]
    return [[fields[0][start:end]] for start, end in split_sentences(fields[0])]
