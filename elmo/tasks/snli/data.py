"""Pairs of sentences and how they stand to each other: SNLI, MultiNLI and their like, one JSON object a line. No torch.

    {"gold_label": "neutral", "sentence1": ..., "sentence2": ..., "sentence1_binary_parse": "( ( A man ) ... )"}
    {"label": "neutral", "premise": ..., "hypothesis": ...}

Tokens come from the binary parse where there is one, else from the text by the default tokenizer; a list of str is
taken as tokens. Pairs on which the annotators did not agree (label "-" or -1) are left out and counted in the log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.files import atomic_file
from elmo.text.lines import read_lines
from elmo.text.tokenize import tokenizer

log = logging.getLogger(__name__)

LABELS = ("entailment", "neutral", "contradiction")
_NO_AGREEMENT = ("-", -1)
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


@dataclass(frozen=True, kw_only=True)
class Example:
    """A premise, a hypothesis, and one of LABELS; None: not known."""

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    label: str | None = None
    genre: str = ""  # MultiNLI's

    @property
    def sentences(self) -> tuple[tuple[str, ...], ...]:
        return (self.premise, self.hypothesis)


def read_examples(path: Path) -> list[Example]:
    """The labelled pairs of a file, those without agreement left out."""
    examples = []
    num_pairs = 0
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        num_pairs += 1
        where = f"{path}:{number}"
        values = _object(line, where)
        label = _label(values, where)
        if label is not None:
            premise, hypothesis = (_tokens(values, where, *keys) for keys in _KEYS)
            genre = str(values.get("genre") or "")
            examples.append(Example(premise=premise, hypothesis=hypothesis, label=label, genre=genre))
    left_out = num_pairs - len(examples)
    if left_out:
        log.warning("%s: %d of %d pairs have no agreed label and are left out.", path, left_out, num_pairs)
    if not examples:
        raise DataError(f"{path}: no labelled pair is in this file; expected one JSON object a line.")
    return examples


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """One JSON object a line, sentences as lists of tokens; reading it back gives the same examples."""
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        for example in examples:
            values: dict[str, Any] = {"premise": list(example.premise), "hypothesis": list(example.hypothesis)}
            values["label"] = example.label if example.label is not None else "-"
            if example.genre:
                values["genre"] = example.genre
            file.write(json.dumps(values, ensure_ascii=True) + "\n")


_KEYS = (("premise", "sentence1"), ("hypothesis", "sentence2"))


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: the line is not JSON ({error}); expected one object a line.") from error
    if not isinstance(values, dict):
        raise DataError(
            f"{where}: the line is {type(values).__name__}, expected an object with premise and hypothesis."
        )
    return values


def _label(values: Mapping[str, Any], where: str) -> str | None:
    if "gold_label" not in values and "label" not in values:
        raise DataError(f"{where}: there is no 'gold_label' or 'label' among {', '.join(values)}.")
    label = values.get("gold_label", values.get("label"))
    if label in _NO_AGREEMENT and not isinstance(label, bool):
        return None
    if type(label) is int and 0 <= label < len(LABELS):
        return LABELS[label]
    if label not in LABELS:
        raise DataError(f"{where}: the label is {label!r}; expected {', '.join(LABELS)}, or '-' for no agreement.")
    return str(label)


def _tokens(values: Mapping[str, Any], where: str, *keys: str) -> tuple[str, ...]:
    parse = next((values[f"{key}_binary_parse"] for key in keys if values.get(f"{key}_binary_parse")), None)
    if isinstance(parse, str):
        words = [_BRACKETS.get(word, word) for word in parse.split() if word not in ("(", ")")]
    else:
        key = next((key for key in keys if key in values), None)
        if key is None:
            raise DataError(f"{where}: there is no {' or '.join(map(repr, keys))} among {', '.join(values)}.")
        given = values[key]
        if isinstance(given, str):
            words = list(_cut(given))
        elif isinstance(given, list) and all(isinstance(word, str) for word in given):
            words = given
        else:
            raise DataError(f"{where}: {key} is {type(given).__name__}; expected a text or a list of tokens.")
    if not words or not all(words):
        raise DataError(f"{where}: {keys[0]} is empty or has an empty token; expected at least one word.")
    return tuple(words)


@lru_cache(maxsize=1 << 16)  # a premise stands in several pairs
def _cut(text: str) -> tuple[str, ...]:
    # tokenised files write "did n't", which the tokenizer, made for "didn't", would leave as a word of its own
    return tuple(token.text for token in tokenizer("default")(text.replace(" n't", "n't")))
