"""Normalises the input of the embedder: strings are tokenised, token lists are checked, all become lists of tokens.

The library, the command line and the server all use it. Each item is one sentence: a string, which is tokenised, or a
list of strings or a spaCy Doc, its tokens. Tokens that look special, such as <S> or <UNK>, are ordinary text.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from elmo.errors import ConfigError, DataError
from elmo.settings import whole_number
from elmo.text.sentences import split_sentences
from elmo.text.surrogates import SurrogateReplacer
from elmo.text.tokenize import Tokenizer
from elmo.text.tokenizer_function import Doc, doc_tokens, is_doc

log = logging.getLogger(__name__)

LONG_SENTENCE = 500  # tokens; longer strings are probably documents
_EXPECTED = "a string (one sentence), or a list of strings and token lists (one sentence each)"

OneText: TypeAlias = str | Doc
Texts: TypeAlias = Iterable[str | Sequence[str] | Doc | None]  # None: see `missing`
Missing: TypeAlias = Literal["error", "empty"]


@dataclass(frozen=True, kw_only=True)
class NormalizedInput:
    """Tokenised sentences in the caller's order; an empty sentence is an empty list in its place."""

    sentences: list[list[str]]
    offsets: list[list[tuple[int, int]] | None]  # of each token in its raw string; None: the input was tokens
    single: bool  # the input was one string or Doc, not a list
    num_sentences: list[int]  # of each item: 1, or any number if documents are split


def normalize_input(
    texts: OneText | Texts,
    tokenize: Tokenizer,
    *,
    errors: Literal["strict", "replace"] = "replace",
    missing: Missing = "error",  # None and NaN: error, or an empty sentence
    split: bool = False,  # raw strings are documents, which are split into sentences
    rules: str = "english",  # of `split_sentences`
) -> NormalizedInput:
    """Sentences of tokens from a string or from any list, iterator, numpy array or pandas Series of strings.

    Items that are lists of strings or spaCy Docs are sentences already tokenised, and may be mixed with raw strings.
    Anything else is a TypeError that names the item. Lone surrogates, which UTF-8 cannot represent, become U+FFFD with
    one warning per call, or a DataError with errors="strict".
    """
    for name, value, known in (("errors", errors, ("strict", "replace")), ("missing", missing, ("error", "empty"))):
        if value not in known:
            raise ConfigError(f"{name}={value!r} is unknown.", f"Use {known[0]!r} or {known[1]!r}.")
    surrogates = SurrogateReplacer(strict=errors == "strict")
    sentences: list[list[str]] = []
    offsets: list[list[tuple[int, int]] | None] = []
    num_sentences: list[int] = []
    missing_items: list[tuple[int, Any]] = []
    single = isinstance(texts, str) or is_doc(texts)
    for index, item in enumerate(_items(texts)):
        where = "the text" if single else f"texts[{index}]"
        if is_missing(item):
            missing_items.append((index, item))
            item = ""
        if split and not isinstance(item, str):
            raise ConfigError(f"{where} is already tokenised, and split=True splits raw text.", "Pass strings.")
        num_before = len(sentences)
        if isinstance(item, str):
            document = surrogates.replace(str(item), where)
            for start, end in split_sentences(document, rules) if split else [(0, len(document))]:
                tokens = tokenize(document[start:end])
                sentences.append([token.text for token in tokens])
                offsets.append([(start + token.start, start + token.end) for token in tokens])
        else:
            words = [token.text for token in doc_tokens(item)] if is_doc(item) else _checked_tokens(item, index)
            if not "".join(words).isascii():  # for most sentences, one check instead of one per token
                words = [surrogates.replace(word, where) for word in words]
            sentences.append(words)
            offsets.append(None)
        num_sentences.append(len(sentences) - num_before)
    if missing_items and missing == "error":
        raise _missing_error(missing_items, len(num_sentences))
    surrogates.warn()
    return NormalizedInput(sentences=sentences, offsets=offsets, single=single, num_sentences=num_sentences)


def is_missing(item: object) -> bool:
    """Whether an item is a missing value: None, NaN, or one of pandas' own."""
    if isinstance(item, (float, np.floating)):
        return bool(np.isnan(item))
    return item is None or type(item).__name__ in ("NAType", "NaTType")


def single_word_warning(inputs: NormalizedInput) -> str | None:
    """A warning if there are several raw strings and each is one word, probably the tokens of one sentence."""
    is_raw = all(offsets is not None for offsets in inputs.offsets)
    if len(inputs.sentences) < 2 or not is_raw or any(len(tokens) != 1 for tokens in inputs.sentences):
        return None
    first = ", ".join(f'"{tokens[0]}"' for tokens in inputs.sentences[:3])
    more = ", ..." if len(inputs.sentences) > 3 else ""
    return (
        f"each of the {len(inputs.sentences):,} strings is one word and is read as a sentence of its own. For one "
        f"tokenised sentence, pass a list of token lists: [[{first}{more}]]."
    )


def spaced_token_warning(tokens: Sequence[str]) -> str | None:
    """A warning if a token of the only sentence of a call has a space in it and is probably a sentence itself."""
    spaced = next((token for token in tokens if " " in token.strip()), None)
    if spaced is None:
        return None
    return (
        f"{spaced[:40]!r}, which contains a space, is read as one token: a list is one tokenised sentence. Pass each "
        "sentence in a call of its own, as a string or a list of tokens."
    )


def long_text_warning(inputs: NormalizedInput) -> str | None:
    """A warning if a raw string is read as one sentence and is so long that it is probably a document."""
    lengths = [len(tokens) for tokens, raw in zip(inputs.sentences, inputs.offsets, strict=True) if raw is not None]
    num_long = sum(length > LONG_SENTENCE for length in lengths)
    if num_long == 0:
        return None
    many = f"{num_long:,} of {len(inputs.num_sentences):,} texts have up to {max(lengths):,} tokens, and each"
    which = f"the text has {max(lengths):,} tokens and" if inputs.single else many
    return (
        f"{which} is read as one sentence. For documents, use encode(..., split=True), or pass the sentences that "
        "elmo.split_sentences finds."
    )


def tokenization_warning(sentences: Sequence[Sequence[str]]) -> str | None:
    """A short warning if token lists look split at spaces only, or lower-cased; None if they look right.

    The published models were trained on cased text with separate punctuation tokens, and perform worse on other text.
    Checks at most about 200 sentences, evenly spaced, and 200 tokens of each.
    """
    sample = [list(tokens[:200]) for tokens in sentences[:: max(1, len(sentences) // 200)]]
    words = [token for tokens in sample for token in tokens if _LETTERS.search(token)]
    glued = [word for word in words if GLUED_COMMA.search(word)]
    last_tokens = [tokens[-1] for tokens in sample if len(tokens) > 1]
    glued_stops = [token for token in last_tokens if _GLUED_STOP.search(token)]
    if len(glued) > max(0.02 * len(words), 0.5) or len(glued_stops) > max(0.3 * len(last_tokens), 0.5):
        example = (glued + glued_stops)[0][:40]
        return f"tokens such as {example!r} include punctuation: was the text split at spaces only?"
    if len(words) >= 50 and not any(word.lower() != word for word in words):
        return "no token has a capital letter: the model expects cased text."
    return None


def is_decomposed(text: str) -> bool:
    """Whether Unicode's form NFC joins characters of the text: it is shorter only then."""
    return not text.isascii() and len(unicodedata.normalize("NFC", text)) < len(text)


def decomposed_warning(sentences: Sequence[Sequence[str]]) -> str | None:
    """A warning if accents are characters of their own (NFD): such a word has other bytes than the same word in NFC.

    Checks at most about 200 sentences, evenly spaced.
    """
    for tokens in sentences[:: max(1, len(sentences) // 200)]:
        text = " ".join(tokens)
        if is_decomposed(text):
            word = next(filter(is_decomposed, tokens))
            return (
                f"accents are separate characters in words such as {word[:40]!r} (Unicode form NFD), which the model "
                "reads as other words than those in form NFC: unicodedata.normalize('NFC', text) joins them."
            )
    return None


def log_warnings(*warnings: str | None) -> None:
    """Logs the results of the functions above, without those that are None."""
    for warning in filter(None, warnings):
        log.warning(warning)


_LETTERS = re.compile(r"[^\W\d_]")
GLUED_COMMA = re.compile(r"[^\W_]{2}[\"')\]]?[,;:?!][\"')\]]?\Z")
_GLUED_STOP = re.compile(r"[^\W\d_]{2}[\"')\]]?[.?!][\"')\]]?\Z")


def _items(texts: Any) -> Iterator[Any]:
    if isinstance(texts, str) or is_doc(texts):
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


def _missing_error(missing_items: list[tuple[int, Any]], num_items: int) -> TypeError:
    index, item = missing_items[0]
    positions = ", ".join(str(i) for i, _ in missing_items[:10]) + (", ..." if len(missing_items) > 10 else "")
    return TypeError(
        f"texts[{index}] is {_describe(item)}; expected a string or a list of tokens. Missing values (None or NaN): "
        f'{len(missing_items):,} of {num_items:,} items, at positions {positions}. missing="empty" reads them as empty '
        "sentences."
    )


def caseless(word: str) -> str:
    """The form in which words are compared regardless of case: the case-folded NFC form."""
    return word.lower() if word.isascii() else unicodedata.normalize("NFC", word).casefold()


def has_word(tokens: Iterable[str], word: str) -> bool:
    """Whether a word is among the tokens, regardless of case."""
    form = caseless(word)
    return any(caseless(token) == form for token in tokens)


def word_position(tokens: Sequence[str], word: str | int) -> int:
    """The position of a word in a sentence, the first if it occurs several times; a position is checked.

    The word and the tokens are compared in Unicode's form NFC: accents may be characters of their own in either.
    """
    if isinstance(word, str):
        forms = [unicodedata.normalize("NFC", token) for token in tokens]
        form = unicodedata.normalize("NFC", word)
        if form not in forms:
            raise DataError(f"{word!r} is not among the sentence's tokens: {' '.join(tokens)}", "Name one of them.")
        return forms.index(form)
    if not tokens:
        raise DataError("The sentence has no words.")
    position = whole_number(word)
    if position is None or not 0 <= position < len(tokens):
        raise ConfigError(f"position is {word!r}; the sentence has words 0 to {len(tokens) - 1}.")
    return position
