"""Tokenizers that a caller brings: functions from text to tokens, and the documents that spaCy returns.

A function may return strings, `Token`s, or a spaCy Doc (so that `nlp` itself is a tokenizer). spaCy is not imported: a
document is recognised by its attributes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeGuard

from elmo.errors import DataError
from elmo.text.tokenize import Token, Tokenizer, align, tokenizer

log = logging.getLogger(__name__)


class DocToken(Protocol):
    """What is read of a spaCy token."""

    @property
    def text(self) -> str: ...
    @property
    def idx(self) -> int: ...
    @property
    def is_space(self) -> bool: ...


class Doc(Protocol):
    """What is read of a spaCy Doc or Span: a sentence that is already tokenised."""

    @property
    def text(self) -> str: ...
    @property
    def vocab(self) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...  # of DocToken


TokenizerFunction = Callable[[str], Sequence[str] | Sequence[Token] | Doc]


def make_tokenizer(tokenizer_or_name: str | TokenizerFunction) -> Tokenizer:
    """A tokenizer by its name, or a function as a tokenizer whose results are checked."""
    if isinstance(tokenizer_or_name, str):
        return tokenizer(tokenizer_or_name)
    if not callable(tokenizer_or_name):
        raise TypeError(f"tokenizer is a {type(tokenizer_or_name).__name__}; expected a name or a function.")
    return _CheckedFunction(tokenizer_or_name)


def tokenizer_label(tokenizer_or_name: str | TokenizerFunction) -> str:
    """The name of a tokenizer; for a function, its module and name in angle brackets."""
    if isinstance(tokenizer_or_name, str):
        return tokenizer_or_name
    named = tokenizer_or_name if hasattr(tokenizer_or_name, "__qualname__") else type(tokenizer_or_name)
    return f"<{getattr(named, '__module__', None) or 'builtins'}.{named.__qualname__}>"


def choose_tokenizer(own: str | None, given: str | TokenizerFunction | None) -> str | TokenizerFunction | None:
    """The given tokenizer, or else the model's own; None: neither is known. One that is not the model's gets a warning.

    `own` is the tokenizer of the text the model was trained on, if the model folder says it.
    """
    if given is None:
        return own
    if own is not None and given != own:
        label = tokenizer_label(given)
        log.warning(
            "the model was trained on text tokenised by %s, and the tokenizer is %s: results may be worse, unless the "
            "text is already tokenised in the same way.",
            own,
            label,
        )
    return given


def reading_tokenizer(own: str | None, given: str | None) -> str | None:
    """The tokenizer of a text that may be tokenised already: None, or `given` is "none", if it is."""
    chosen = None if given == "none" else choose_tokenizer(own, given)
    assert chosen is None or isinstance(chosen, str)
    return chosen


def is_doc(value: object) -> TypeGuard[Doc]:
    """Whether a value is a spaCy Doc or Span."""
    return hasattr(value, "vocab") and hasattr(value, "__iter__") and isinstance(getattr(value, "text", None), str)


def doc_tokens(doc: Doc) -> list[Token]:
    """The tokens of a spaCy Doc or Span without whitespace tokens, with their positions in its text."""
    begin = getattr(doc, "start_char", 0)  # a Span counts characters from the start of its Doc
    return [
        Token(token.text, token.idx - begin, token.idx - begin + len(token.text)) for token in doc if not token.is_space
    ]


class _CheckedFunction:
    """A caller's function as a Tokenizer; it can be pickled if the function can."""

    def __init__(self, function: TokenizerFunction) -> None:
        self.function = function

    def __call__(self, text: str, /) -> list[Token]:
        result = self.function(text)
        if is_doc(result):
            return doc_tokens(result)
        tokens: list[Any] = list(result)
        if all(isinstance(token, Token) for token in tokens):
            return tokens
        wrong = next((token for token in tokens if not isinstance(token, str)), None)
        if wrong is not None:
            raise DataError(
                f"The tokenizer returned a {type(wrong).__name__} among its tokens.",
                "A tokenizer returns strings, elmo.text.tokenize.Token values, or a spaCy Doc.",
            )
        return align(text, [token for token in tokens if token], 0, len(text), tokenizer_label(self.function))
