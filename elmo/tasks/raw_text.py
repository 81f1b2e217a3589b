"""Converts raw text to examples of a task: fields, sentences and tokens. Used by `elmo task predict`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.tasks.task import Task
from elmo.text.sentences import sentence_rules, split_sentences
from elmo.text.tokenize import tokenizer


def read_raw(task: Task, texts: Iterable[Sequence[str]], tokenizer_name: str = "default") -> list[Any]:
    """Unlabelled examples from texts; each text is the list of its fields (`task.fields`), none of them empty.

    For a task with one field, a text of several fields is read as several texts.
    """
    single = len(task.fields) == 1
    items = [[field] for text in texts for field in text] if single else texts
    numbered = ((number, f"Text {number}", fields) for number, fields in enumerate(items, start=1))
    return [example for _, example in _examples(task, numbered, tokenizer_name)]


def read_raw_lines(
    task: Task, lines: Iterable[str], source: str | Path, tokenizer_name: str = "default"
) -> list[tuple[int, Any]]:
    """Unlabelled examples from the lines of a file, each with the number of its line, from 0.

    A tab separates fields, or texts if the task has one field. Blank lines have no example; errors name file and line.
    """
    single = len(task.fields) == 1
    texts = (
        (number, f"{source}:{number + 1}", fields)
        for number, line in enumerate(lines)
        if line.strip()
        for fields in ([[field] for field in line.split("\t")] if single else [line.split("\t")])
    )
    return list(_examples(task, texts, tokenizer_name))


def _examples(
    task: Task, texts: Iterable[tuple[int, str, Sequence[str]]], tokenizer_name: str
) -> Iterator[tuple[int, Any]]:
    """The examples of texts given as number, place for errors, and fields; each with the number of its text."""
    tokenize, rules = tokenizer(tokenizer_name), sentence_rules(tokenizer_name)
    expected = " and ".join(task.fields)
    for number, place, fields in texts:
        if len(fields) != len(task.fields):
            count = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
            raise DataError(
                f"{place} has {count}; expected {len(task.fields)}: {expected}.", "In a file, a tab separates fields."
            )
        for name, field in zip(task.fields, fields, strict=True):
            if not field.strip():
                raise DataError(f"{place}: the {name} is empty; expected at least one word.")
        for sentence_fields in _by_sentence(fields, rules) if task.by_sentence else [fields]:
            yield number, task.from_text(sentence_fields, tokenize)


def _by_sentence(fields: Sequence[str], rules: str) -> list[list[str]]:
    """The sentences of the single field, each as the fields of one example."""
    return [[fields[0][start:end]] for start, end in split_sentences(fields[0], rules)]
