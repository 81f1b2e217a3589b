"""Reader and writer of the snli task: labelled pairs of sentences, one JSON object per line. No torch.

    {"gold_label": "neutral", "sentence1": ..., "sentence2": ..., "sentence1_binary_parse": "( ( A man ) ... )"}
    {"label": "neutral", "premise": ..., "hypothesis": ...}

The format of SNLI and MultiNLI, and a short form. Tokens come from the binary parse if there is one, otherwise from the
text with a tokenizer; a list of str is a list of tokens. Pairs on which the annotators did not agree (label
"-" or -1) are skipped, and their number is logged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.files import atomic_file
from elmo.text.json_lines import read_json_objects
from elmo.text.penn_treebank import PTB_BRACKETS
from elmo.text.tokenize import tokenizer

log = logging.getLogger(__name__)

LABELS = ("entailment", "neutral", "contradiction")
_NO_AGREEMENT = ("-", -1)


@dataclass(frozen=True, kw_only=True)
class Example:
    """A premise, a hypothesis, and one of LABELS; the label is None for unlabelled text."""

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    label: str | None = None
    genre: str = ""  # in MultiNLI

    @property
    def sentences(self) -> tuple[tuple[str, ...], ...]:
        return (self.premise, self.hypothesis)


def read_examples(path: Path, tokenizer_name: str = "default") -> list[Example]:
    """Reads the labelled pairs of a file; skips pairs without an agreed label."""
    examples = []
    words_of = _word_tokenizer(tokenizer_name)
    num_pairs = 0
    for where, values in read_json_objects(path, hint="Expected one object with premise and hypothesis per line."):
        num_pairs += 1
        label = _label(values, where)
        if label is not None:
            premise, hypothesis = (_tokens(values, words_of, where, *keys) for keys in _KEYS)
            genre = str(values.get("genre") or "")
            examples.append(Example(premise=premise, hypothesis=hypothesis, label=label, genre=genre))
    num_skipped = num_pairs - len(examples)
    if num_skipped:
        log.warning("%s: %d of %d pairs have no agreed label and are skipped.", path, num_skipped, num_pairs)
    if not examples:
        raise DataError(f"{path}: the file has no labelled pair; expected one JSON object per line.")
    return examples


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Writes one JSON object per line, with sentences as lists of tokens; `read_examples` inverts it."""
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        for example in examples:
            values: dict[str, Any] = {"premise": list(example.premise), "hypothesis": list(example.hypothesis)}
            values["label"] = example.label if example.label is not None else "-"
            if example.genre:
                values["genre"] = example.genre
            file.write(json.dumps(values, ensure_ascii=True) + "\n")


_KEYS = (("premise", "sentence1"), ("hypothesis", "sentence2"))


def _label(values: Mapping[str, Any], where: str) -> str | None:
    if "gold_label" not in values and "label" not in values:
        raise DataError(f"{where}: the object has no 'gold_label' or 'label'; its keys are {', '.join(values)}.")
    label = values.get("gold_label", values.get("label"))
    if label in _NO_AGREEMENT and not isinstance(label, bool):
        return None
    if type(label) is int and 0 <= label < len(LABELS):
        return LABELS[label]
    if label not in LABELS:
        raise DataError(f"{where}: the label is {label!r}; expected {', '.join(LABELS)}, or '-' for no agreement.")
    return str(label)


def _tokens(
    values: Mapping[str, Any], words_of: Callable[[str], tuple[str, ...]], where: str, *keys: str
) -> tuple[str, ...]:
    parse = next((values[f"{key}_binary_parse"] for key in keys if values.get(f"{key}_binary_parse")), None)
    if isinstance(parse, str):
        tokens = [PTB_BRACKETS.get(token, token) for token in parse.split() if token not in ("(", ")")]
    else:
        key = next((key for key in keys if key in values), None)
        if key is None:
            raise DataError(
                f"{where}: the object has no {' or '.join(map(repr, keys))}; its keys are {', '.join(values)}."
            )
        sentence = values[key]
        if isinstance(sentence, str):
            tokens = list(words_of(sentence))
        elif isinstance(sentence, list) and all(isinstance(token, str) for token in sentence):
            tokens = sentence
        else:
            raise DataError(f"{where}: {key} is {type(sentence).__name__}; expected a text or a list of tokens.")
    if not tokens or not all(tokens):
        raise DataError(f"{where}: {keys[0]} is empty or has an empty token; expected at least one word.")
    return tuple(tokens)


def _word_tokenizer(name: str) -> Callable[[str], tuple[str, ...]]:
    """The words of a text by the tokenizer of this name, with a cache, because a premise occurs in several pairs."""
    tokenize = tokenizer(name)

    @lru_cache(maxsize=1 << 16)
    def words(text: str) -> tuple[str, ...]:
        # tokenised files write "did n't"; default splits "didn't" correctly, but not the separate "n't"
        joined = text.replace(" n't", "n't") if name == "default" else text
        return tuple(token.text for token in tokenize(joined))

    return words
