"""Converts raw text to examples of a task: fields, sentences and tokens. Used by `elmo task predict`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from elmo.errors import DataError
from elmo.tasks.task import Task
from elmo.text.sentences import sentence_rules, split_sentences
from elmo.text.tokenize import tokenizer


def read_raw(task: Task, texts: Iterable[Sequence[str]], tokenizer_name: str = "default") -> list[Any]:
    """Unlabelled examples from texts; each text is the list of its fields (`task.fields`), none of them empty.

    For a task with one field, a text of several fields is read as several texts.
    """
    tokenize, rules = tokenizer(tokenizer_name), sentence_rules(tokenizer_name)
    examples = []
    for number, text in enumerate(texts, start=1):
        for fields in [[field] for field in text] if len(task.fields) == 1 else [text]:
            if len(fields) != len(task.fields) or not all(field.strip() for field in fields):
                expected = " and ".join(task.fields)
                raise DataError(f"Text {number} has {len(fields)} fields; expected {expected}, none empty.")
            for sentence_fields in _by_sentence(fields, rules) if task.by_sentence else [fields]:
                examples.append(task.from_text(sentence_fields, tokenize))
    return examples


def _by_sentence(fields: Sequence[str], rules: str) -> list[list[str]]:
    """The sentences of the single field, each as the fields of one example."""
    return [[fields[0][start:end]] for start, end in split_sentences(fields[0], rules)]
