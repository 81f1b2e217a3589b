"""Normalises the input of the embedder: strings are tokenised, token lists are checked, all become lists of tokens.

The library, the command line and the server all use it. Each item is one sentence: a string, which is tokenised, or a
list of strings, its tokens. Tokens that look special, such as <S> or <UNK>, are treated as ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from elmo.errors import ConfigError
from elmo.text.surrogates import SurrogateReplacer
from elmo.text.tokenize import Tokenizer

_EXPECTED = "a string (one sentence), or a list of strings and token lists (one sentence each)"


@dataclass(frozen=True, kw_only=True)
class NormalizedInput:
    """Tokenised sentences in the caller's order; an empty sentence is an empty list in its place."""

    sentences: list[list[str]]
    offsets: list[list[tuple[int, int]] | None]  # of each token in its raw string; None: the input was tokens
    single: bool  # the input was one string, not a list


def normalize_input(
    texts: str | Iterable[str | Sequence[str]], tokenize: Tokenizer, *, errors: Literal["strict", "replace"] = "replace"
) -> NormalizedInput:
    """Sentences of tokens from a string or from any list, iterator, numpy array or pandas Series of strings.

    Items that are lists of strings are sentences already tokenised, and may be mixed with raw strings. Anything else is
    a TypeError that names the item. Lone surrogates, which UTF-8 cannot represent, become U+FFFD with one warning per
    call, or a DataError with errors="strict".
    """
    if errors not in ("strict", "replace"):
        raise ConfigError(f"errors={errors!r} is unknown.", "Use 'strict' or 'replace'.")
    surrogates = SurrogateReplacer(strict=errors == "strict")
    sentences: list[list[str]] = []
    offsets: list[list[tuple[int, int]] | None] = []
    single = isinstance(texts, str)
    for index, item in enumerate(_items(texts)):
        where = "the text" if single else f"texts[{index}]"
        if isinstance(item, str):
            tokens = tokenize(surrogates.replace(str(item), where))
            sentences.append([token.text for token in tokens])
            offsets.append([(token.start, token.end) for token in tokens])
        else:
            words = _checked_tokens(item, index)
            if not "".join(words).isascii():  # for most sentences, one check instead of one per token
                words = [surrogates.replace(word, where) for word in words]
            sentences.append(words)
            offsets.append(None)
    surrogates.warn()
    return NormalizedInput(sentences=sentences, offsets=offsets, single=single)


def tokenization_warning(sentences: Sequence[Sequence[str]]) -> str | None:
    """A short warning if token lists look split at spaces only, or lower-cased; None if they look right.

    The published models were trained on cased text with separate punctuation tokens, and perform worse on other text.
    Checks at most about 200 sentences, evenly spaced, and 200 tokens of each.
    """
    sample = [list(tokens[:200]) for tokens in sentences[:: max(1, len(sentences) // 200)]]
    words = [token for tokens in sample for token in tokens if _LETTERS.search(token)]
    glued = [word for word in words if _GLUED_COMMA.search(word)]
    last_tokens = [tokens[-1] for tokens in sample if len(tokens) > 1]
    glued_stops = [token for token in last_tokens if _GLUED_STOP.search(token)]
    if len(glued) > max(0.02 * len(words), 0.5) or len(glued_stops) > max(0.3 * len(last_tokens), 0.5):
        example = (glued + glued_stops)[0][:40]
        return f"tokens such as {example!r} include punctuation: was the text split at spaces only?"
    if len(words) >= 50 and not any(word.lower() != word for word in words):
        return "no token has a capital letter: the model expects cased text."
    return None


_LETTERS = re.compile(r"[^\W\d_]")
_GLUED_COMMA = re.compile(r"[^\W_]{2}[\"')\]]?[,;:?!][\"')\]]?\Z")
_GLUED_STOP = re.compile(r"[^\W\d_]{2}[\"')\]]?[.?!][\"')\]]?\Z")


def _items(texts: Any) -> Iterator[Any]:
    if isinstance(texts, str):
        return iter([texts])
    unsupported = isinstance(texts, (bytes, bytearray, memoryview, Mapping, set, frozenset)) or not isinstance(
        texts, Iterable
    )
    num_dims = getattr(texts, "ndim", 1)
    # iterating over a DataFrame would yield its column names
    if unsupported or num_dims == 0 or num_dims > 1 and not isinstance(texts, np.ndarray):
        raise TypeError(f"texts is {_describe(texts)}; expected {_EXPECTED}.")
    return iter(texts)


def _checked_tokens(item: Any, index: int) -> list[str]:
    if not isinstance(item, (list, tuple)) and not (isinstance(item, np.ndarray) and item.ndim == 1):
        raise TypeError(f"texts[{index}] is {_describe(item)}; expected a string or a list of tokens.")
    if {*map(type, item)} <= {str}:
        return list(item)
    for position, token in enumerate(item):
        if not isinstance(token, str):
            nested = " (sentences are nested one level deep)" if isinstance(token, (list, tuple, np.ndarray)) else ""
            raise TypeError(f"texts[{index}][{position}] is {_describe(token)}; expected a token, a string{nested}.")
    return [str(token) for token in item]


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    shown = f" {value!r}"[:40] if isinstance(value, (int, float, bytes)) else ""
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}{shown}"
