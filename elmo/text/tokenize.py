"""Tokens with offsets back into the raw text: the first step of the data path.

`default` follows the 1 Billion Word benchmark, the text the published English models were trained on: "didn 't",
"it 's", "O 'Neal", "$ 5.5", "3 : 30 p.m.", "AT & T", hyphenated words whole. It never changes a character, and
tokenising its own output joined by spaces gives the same tokens again. It knows English only: text written without
spaces (Thai, Japanese) stays one token between punctuation marks, and NFC and NFD spellings stay different tokens.

Where it is tidier than that corpus, on purpose: "word--word" is three tokens, "example.com." and "2009." lose their
full stop, "U.N.'s" ends in "'s", and an apostrophe inside a word that is neither a contraction nor after one letter
("Qur'an") stands alone, for glued to its right half it could not be told from an opening quote the second time.
"""

from __future__ import annotations

import difflib
import logging
import re
import unicodedata
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

from elmo.errors import ConfigError, DataError
from elmo.files import require_extra

log = logging.getLogger(__name__)

NAMES = ("default", "whitespace", "spacy", "moses")  # the last two also as spacy:LANG and moses:LANG


class Token(NamedTuple):
    """A piece of text and where it stands: raw[start:end] is what it covers."""

    text: str
    start: int
    end: int


class Tokenizer(Protocol):
    """Anything that cuts a text into tokens: in order, not overlapping, covering all but whitespace."""

    def __call__(self, text: str, /) -> list[Token]: ...


def tokenizer(name: str) -> Tokenizer:
    """The tokenizer called `name`: default, whitespace, spacy[:LANG] or moses[:LANG] (LANG is en unless given)."""
    kind, _, language = name.partition(":")
    if name == "default":
        return partial(_by_pattern, default_pattern())
    if name == "whitespace":
        return partial(_by_pattern, re.compile(r"\S+"))
    if kind == "spacy":
        return _spacy_tokenizer(language or "en")
    if kind == "moses":
        return _moses_tokenizer(language or "en")
    near = difflib.get_close_matches(kind.lower(), NAMES, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise ConfigError(f"There is no tokenizer {name!r}.", f"{hint}Known: default, whitespace, spacy:LANG, moses:LANG.")


def _by_pattern(pattern: re.Pattern[str], text: str, /) -> list[Token]:
    new = tuple.__new__  # a third of the time of Token(...), which counts the arguments in Python
    return [new(Token, (match[0], *match.span())) for match in pattern.finditer(text)]


# ---- default -------------------------------------------------------------------------------------------------------

# Which words keep their full stop was counted in the benchmark's text, not taken from a grammar.
_KEEP_STOP = (
    "Mr Mrs Ms Dr Drs St Sen Sens Gov Govs Rep Reps Corp Gen Lt Sgt Col Capt Maj Brig Supt Prof Rev Bros Adm Hon Pvt "
    "Cpl Cmdr Messrs Mme Mlle Insp vs v mr mrs ms dr"
)
_KEEP_BEFORE_NUMBER = "No Nos no nos pp Fig Figs Vol"
_KEEP_BEFORE_LOWER = (
    "Inc Co Cos Ltd Jr Sr Mt Ft Ave Blvd Rd Assn Dept Univ etc est approx Jan Feb Mar Apr Jun Jul Aug Sept Sep Oct Nov "
    "Dec Ala Ariz Ark Calif Colo Conn Del Fla Ga Ill Ind Kan Ky La Md Mass Mich Minn Miss Mo Mont Neb Nev Okla Ore Pa "
    "Tenn Tex Va Vt Wash Wis Wyo"
)
# in \w, but tokens of their own in the benchmark: the underscore, superscripts and fractions ("1 ½")
_NOT_WORD = r"_\u00b2\u00b3\u00b9\u00bc-\u00be"


@lru_cache(maxsize=1)
def default_pattern() -> re.Pattern[str]:
    """The one expression behind `default`; every branch eats what it can and nothing after it can fail: linear time."""
    word_chars, marks = _character_classes()
    upper = "A-Z\u00c0-\u00d6\u00d8-\u00de\u0391-\u03a9\u0410-\u042f"
    stop = "|".join(
        [
            rf"(?<=[^\W{_NOT_WORD}]\.[^\W\d_]\.)",  # p.m.  U.S.  Ph.D.
            rf"(?:(?<=[^\w-][{upper}]\.)|(?<=^[{upper}]\.))(?:(?<!I\.)|(?=\s[A-Z]))",  # initials; I. only before a name
            _after(_KEEP_STOP),
            rf"(?:{_after(_KEEP_BEFORE_NUMBER)})(?=\s?\d)",
            rf"(?:{_after(_KEEP_BEFORE_LOWER)})(?=\s[a-z])",
        ]
    )
    # x-y, x.y, U.S.-led, 1,000 are whole; so is a hyphen left hanging, as in "mid- to late"
    word = rf"[{word_chars}]+(?:(?:\.-|[.-]|(?<=\d),(?=\d))[{word_chars}]+)*(?:-(?!-))?(?:\.(?!\.)(?:{stop}))?"
    # 's, 't ...: the same after a letter and after a space, so that "it 's" stays as it is
    clitic = r"(?=(?:[stmd]|re|ve|ll)(?!\w)|(?:[STMD]|RE|VE|LL)(?![\w-]))"
    # O'Neal, l'Aquila, y'all: after one letter that is no word of its own, with or without a space between
    name = "|".join(rf"(?<={b}[b-zB-HJ-Z]{space}['\u2019])" for b in ("^", r"[^\w'\u2019.]") for space in ("", r"\s"))
    before = rf"-|['\u2019](?:{clitic}|{name})|\.(?:(?=\d)|(?<!\S.))"  # -10  's  .302  .com
    modifiers = f"[{marks}\U0001f3fb-\U0001f3ff]*"
    return re.compile(
        rf"(?=\S)(?:{word}|(?:{before}){word}"
        r"|\.\.+|--+|``+|''+"
        rf"|[\U0001f1e6-\U0001f1ff]{{2}}"  # a flag is two letters
        rf"|\S{modifiers}(?:\u200d[^\w\s]{modifiers})*)"  # any other mark alone; emoji joined to one stay one
    )


def _after(words: str) -> str:
    return "|".join(rf"(?<=\b{word}\.)" for word in words.split())


def _character_classes() -> tuple[str, str]:
    """Bodies of two sets: what words are made of (letters, digits, marks, joiners), and marks alone.

    The marks are why \\w will not do: Python's leaves out combining accents and the vowel signs of Indic scripts.
    """
    every = "".join(map(chr, range(0x33480)))  # beyond it no letter is assigned, and only variation selectors as marks
    marks = "".join(c for c in re.findall(r"[^\w\s]", every) if unicodedata.category(c)[0] == "M")
    mark_ranges = _ranges([(ord(c), ord(c)) for c in marks]) + r"\U000e0100-\U000e01ef"
    letters = re.finditer(rf"[^\W{_NOT_WORD}]+", every)
    joiners = r"\u00ad\u200c\u200d"
    return _ranges([(run.start(), run.end() - 1) for run in letters]) + mark_ranges + joiners, mark_ranges


def _ranges(runs: list[tuple[int, int]]) -> str:
    """The body of a regex set; unassigned gaps beyond the BMP are filled, for there each range costs time."""
    merged = [runs[0]]
    for first, last in runs[1:]:
        gap = range(merged[-1][1] + 1, first)
        if not gap or gap[0] > 0xFFFF and all(unicodedata.category(chr(code)) == "Cn" for code in gap):
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in merged)


# ---- other people's tokenizers -------------------------------------------------------------------------------------


def _spacy_tokenizer(language: str) -> Tokenizer:
    spacy = require_extra("spacy", "spacy")
    try:
        cut = spacy.blank(language).tokenizer
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"spacy has no language {language!r}.",
            "Its codes are listed at spacy.io/usage/models: spacy:en, spacy:xx ...",
        ) from error

    def tokenize(text: str, /) -> list[Token]:
        # spacy encodes to UTF-8, which a lone surrogate cannot be; the stand-in has the same length
        pieces = cut(re.sub("[\ud800-\udfff]", "\ufffd", text))
        spans = ((piece.idx, piece.idx + len(piece.text)) for piece in pieces if not piece.is_space)
        return [Token(text[start:end], start, end) for start, end in spans]

    return tokenize


def _moses_tokenizer(language: str) -> Tokenizer:
    sacremoses = require_extra("sacremoses", "moses")
    if not re.fullmatch(r"[a-z]{2,3}", language):
        raise ConfigError(f"{language!r} is not a language code.", "Write moses:en, moses:de, moses:fr ...")
    if language not in require_extra("sacremoses.corpus", "moses").NonbreakingPrefixes().available_langs:
        log.warning("Moses has no abbreviations for %r and uses its English ones.", language)
    moses: Any = sacremoses.MosesTokenizer(lang=language)

    def tokenize(text: str, /) -> list[Token]:
        tokens: list[Token] = []
        for part in re.finditer(f"[^{_DROPPED}]+|[{_DROPPED}]", text):
            dropped = re.match(f"[{_DROPPED}]", part[0])
            pieces = [part[0]] if dropped else moses.tokenize(part[0], escape=False)
            tokens += _align(text, pieces, *part.span())
        return tokens

    return tokenize


_DROPPED = r"\x00-\x08\x0e-\x1b"  # control characters that Moses deletes; here each is a token


def _align(text: str, pieces: list[str], start: int, end: int) -> list[Token]:
    """Where each piece stands in text[start:end]; nothing but whitespace may lie between them."""
    tokens: list[Token] = []
    for piece in [*pieces, ""]:
        place = text.find(piece, start, end) if piece else end
        if place < 0 or text[start:place].strip():
            raise DataError(
                f"Moses' tokens cannot be found again in the text at character {start}: {text[start : start + 40]!r}.",
                "Moses changed the text here; use the default tokenizer, or give the sentence as a list of tokens.",
            )
        if piece:
            tokens.append(Token(piece, place, place + len(piece)))
        start = place + len(piece)
    return tokens
