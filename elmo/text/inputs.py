"""What callers hand over, brought into one form: the door of the embedding path for library, command line and server.

Each item is one sentence: a string, which is tokenised, or a list of strings, its tokens. Special-looking tokens such
as <S> or <UNK> pass through as the text they are; `chars` spells them out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from elmo.errors import ConfigError, DataError
from elmo.text.tokenize import Tokenizer

log = logging.getLogger(__name__)

_SURROGATE = re.compile("[\ud800-\udfff]")
_EXPECTED = "a string (one sentence), or a list of strings and token lists (one sentence each)"


@dataclass(frozen=True, kw_only=True)
class NormalizedInput:
    """Tokenised sentences in the caller's order; an empty sentence is an empty list in its place."""

    sentences: list[list[str]]
    offsets: list[list[tuple[int, int]] | None]  # of each token in its raw string; None: came as tokens
    single: bool  # the caller gave one string, not a list


def normalize_input(
    texts: str | Iterable[str | Sequence[str]], tokenize: Tokenizer, *, errors: Literal["strict", "replace"] = "replace"
) -> NormalizedInput:
    """Sentences of tokens from a string or from any list, iterator, numpy array or pandas Series of strings.

    Items that are lists of strings are sentences already tokenised and may stand among raw strings. Anything else is a
    TypeError that names the item. Lone surrogates, which no UTF-8 can hold, become U+FFFD with one warning a call, or
    a DataError with errors="strict".
    """
    if errors not in ("strict", "replace"):
        raise ConfigError(f"errors={errors!r} is unknown.", "Use 'strict' or 'replace'.")
    mend = _Mender(errors == "strict")
    sentences: list[list[str]] = []
    offsets: list[list[tuple[int, int]] | None] = []
    single = isinstance(texts, str)
    for index, item in enumerate(_items(texts)):
        where = "the text" if single else f"texts[{index}]"
        if isinstance(item, str):
            tokens = tokenize(mend.text(str(item), where))
            sentences.append([token.text for token in tokens])
            offsets.append([(token.start, token.end) for token in tokens])
        else:
            tokens_given = _tokens(item, index)
            if not "".join(tokens_given).isascii():  # one look at most sentences instead of one at each token
                tokens_given = [mend.text(token, where) for token in tokens_given]
            sentences.append(tokens_given)
            offsets.append(None)
    if mend.count:
        log.warning("%d lone surrogates were replaced by U+FFFD, the first in %s.", mend.count, mend.first)
    return NormalizedInput(sentences=sentences, offsets=offsets, single=single)


def looks_untokenised(sentences: Sequence[Sequence[str]]) -> str | None:
    """A short warning when token lists look split at spaces only, or lower-cased; None when they look right.

    The published models were trained on cased text with punctuation set apart, and lose much on other text. Looks at
    no more than about 200 sentences and 200 tokens of each, spread over the whole.
    """
    sample = [list(tokens[:200]) for tokens in sentences[:: max(1, len(sentences) // 200)]]
    words = [token for tokens in sample for token in tokens if _LETTERS.search(token)]
    glued = [word for word in words if _GLUED_COMMA.search(word)]
    last = [tokens[-1] for tokens in sample if len(tokens) > 1]
    glued_stops = [token for token in last if _GLUED_STOP.search(token)]
    if len(glued) > max(0.02 * len(words), 0.5) or len(glued_stops) > max(0.3 * len(last), 0.5):
        example = (glued + glued_stops)[0][:40]
        return f"tokens such as {example!r} carry their punctuation: was the text split at spaces only?"
    if len(words) >= 50 and not any(word.lower() != word for word in words):
        return "no token has a capital letter: the model expects cased text."
    return None


_LETTERS = re.compile(r"[^\W\d_]")
_GLUED_COMMA = re.compile(r"[^\W_]{2}[\"')\]]?[,;:?!][\"')\]]?\Z")
_GLUED_STOP = re.compile(r"[^\W\d_]{2}[\"')\]]?[.?!][\"')\]]?\Z")


def _items(texts: Any) -> Iterator[Any]:
    if isinstance(texts, str):
        return iter([texts])
    wrong = isinstance(texts, (bytes, bytearray, memoryview, Mapping, set, frozenset)) or not isinstance(
        texts, Iterable
    )
    dims = getattr(texts, "ndim", 1)
    if wrong or dims == 0 or dims > 1 and not isinstance(texts, np.ndarray):  # a DataFrame would give its column names
        raise TypeError(f"texts is {_kind(texts)}; expected {_EXPECTED}.")
    return iter(texts)


def _tokens(item: Any, index: int) -> list[str]:
    if not isinstance(item, (list, tuple)) and not (isinstance(item, np.ndarray) and item.ndim == 1):
        raise TypeError(f"texts[{index}] is {_kind(item)}; expected a string or a list of tokens.")
    if {*map(type, item)} <= {str}:
        return list(item)
    for place, token in enumerate(item):
        if not isinstance(token, str):
            nested = " (sentences go one level deep)" if isinstance(token, (list, tuple, np.ndarray)) else ""
            raise TypeError(f"texts[{index}][{place}] is {_kind(token)}; expected a token, a string{nested}.")
    return [str(token) for token in item]


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    shown = f" {value!r}"[:40] if isinstance(value, (int, float, bytes)) else ""
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}{shown}"


class _Mender:
    """Replaces lone surrogates and counts them, so that one call gives one warning."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.count = 0
        self.first = ""

    def text(self, text: str, where: str) -> str:
        if text.isascii() or not (found := _SURROGATE.search(text)):
            return text
        if self.strict:
            raise DataError(
                f"{where} holds the lone surrogate U+{ord(found[0]):04X} at character {found.start()}.",
                'It is no valid text; decode the source as UTF-8, or allow a replacement with errors="replace".',
            )
        mended, count = _SURROGATE.subn("\ufffd", text)
        self.count += count
        self.first = self.first or where
        return mended
