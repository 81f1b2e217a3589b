"""Splits text into tokens with offsets into the raw text: the first step of the data path.

`default` follows the 1 Billion Word benchmark, the training text of the published English models: "didn 't", "it 's",
"O 'Neal", "$ 5.5", "3 : 30 p.m.", "AT & T"; hyphenated words are one token. It never changes a character, and it gives
the same tokens again for its own output joined by spaces. It is for English only: text written without spaces (Thai,
Japanese) is one token between punctuation marks, and NFC and NFD spellings are different tokens. `unicode` is for all
other languages (see `unicode_pattern`).

It deliberately differs from that corpus in four points: "word--word" is three tokens; "example.com." and "2009." are
split before the full stop; "U.N.'s" ends in the token "'s"; and an apostrophe inside a word that is neither a
contraction nor after a single letter ("Qur'an") is a separate token, because joined to the letters after it, it would
look like an opening quote when the output is tokenised again.
"""

from __future__ import annotations

import difflib
import logging
import re
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

from elmo.errors import ConfigError, DataError
from elmo.files import require_extra
from elmo.text.character_sets import marks, word_characters
from elmo.text.unicode_pattern import unicode_pattern

log = logging.getLogger(__name__)

NAMES = ("default", "unicode", "whitespace", "spacy", "moses")  # the last two also as spacy:LANG, moses:LANG


class Token(NamedTuple):
    """One token and its position: raw[start:end] is the text it covers."""

    text: str
    start: int
    end: int


class Tokenizer(Protocol):
    """A function from a text to its tokens: in order, not overlapping, covering everything but whitespace."""

    def __call__(self, text: str, /) -> list[Token]: ...


def tokenizer(name: str) -> Tokenizer:
    """The tokenizer called `name`: default, unicode, whitespace, spacy[:LANG] or moses[:LANG] (default: en)."""
    kind, _, language = name.partition(":")
    if name == "default":
        return partial(_by_pattern, default_pattern())
    if name == "unicode":
        return partial(_by_pattern, unicode_pattern())
    if name == "whitespace":
        return partial(_by_pattern, re.compile(r"\S+"))
    if kind == "spacy":
        return _spacy_tokenizer(language or "en")
    if kind == "moses":
        return _moses_tokenizer(language or "en")
    similar = difflib.get_close_matches(kind.lower(), NAMES, n=1, cutoff=0.5)
    hint = f"Did you mean {similar[0]!r}? " if similar else ""
    known = "Known: default, unicode, whitespace, spacy:LANG, moses:LANG."
    raise ConfigError(f"There is no tokenizer {name!r}.", hint + known)


def _by_pattern(pattern: re.Pattern[str], text: str, /) -> list[Token]:
    new = tuple.__new__  # three times as fast as Token(...), which checks its arguments in Python
    return [new(Token, (match[0], *match.span())) for match in pattern.finditer(text)]


# ---- default -------------------------------------------------------------------------------------------------------

# Which words keep their full stop was counted in the benchmark's text, not derived from a grammar.
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
# characters of \w that are separate tokens in the benchmark: the underscore, superscripts and fractions ("1 ½")
_NOT_WORD = r"_\u00b2\u00b3\u00b9\u00bc-\u00be"


@lru_cache(maxsize=1)
def default_pattern() -> re.Pattern[str]:
    """The regular expression of `default`; every branch is greedy and nothing after it can fail, so time is linear."""
    word_chars = word_characters(_NOT_WORD)
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
    # x-y, x.y, U.S.-led and 1,000 are one token; a trailing hyphen belongs to the word, as in "mid- to late"
    word = rf"[{word_chars}]+(?:(?:\.-|[.-]|(?<=\d),(?=\d))[{word_chars}]+)*(?:-(?!-))?(?:\.(?!\.)(?:{stop}))?"
    # 's, 't ...: the same after a letter and after a space, so that "it 's" is not changed
    clitic = r"(?=(?:[stmd]|re|ve|ll)(?!\w)|(?:[STMD]|RE|VE|LL)(?![\w-]))"
    # O'Neal, l'Aquila, y'all: after one letter that is not a word, with or without a space in between
    name = "|".join(rf"(?<={b}[b-zB-HJ-Z]{space}['\u2019])" for b in ("^", r"[^\w'\u2019.]") for space in ("", r"\s"))
    before = rf"-|['\u2019](?:{clitic}|{name})|\.(?:(?=\d)|(?<!\S.))"  # -10  's  .302  .com
    modifiers = f"[{marks()}\U0001f3fb-\U0001f3ff]*"
    return re.compile(
        rf"(?=\S)(?:{word}|(?:{before}){word}"
        r"|\.\.+|--+|``+|''+"
        rf"|[\U0001f1e6-\U0001f1ff]{{2}}"  # a flag is two letters
        rf"|\S{modifiers}(?:\u200d[^\w\s]{modifiers})*)"  # any other mark is one token; so are joined emoji
    )


def _after(words: str) -> str:
    return "|".join(rf"(?<=\b{word}\.)" for word in words.split())


# ---- external tokenizers -------------------------------------------------------------------------------------


def _spacy_tokenizer(language: str) -> Tokenizer:
    spacy = require_extra("spacy", "spacy")
    try:
        spacy_tokenize = spacy.blank(language).tokenizer
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"spacy has no language {language!r}.",
            "Its codes are listed at spacy.io/usage/models: spacy:en, spacy:xx ...",
        ) from error

    def tokenize(text: str, /) -> list[Token]:
        # spacy encodes to UTF-8, which fails for lone surrogates; the replacement has the same length
        pieces = spacy_tokenize(re.sub("[\ud800-\udfff]", "\ufffd", text))
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
            tokens += align(text, pieces, *part.span(), "Moses")
        return tokens

    return tokenize


_DROPPED = r"\x00-\x08\x0e-\x1b"  # control characters that Moses deletes; here each one is a token


def align(text: str, pieces: list[str], start: int, end: int, name: str) -> list[Token]:
    """Tokens for the pieces of the tokenizer `name`, located in text[start:end]; only whitespace may be between."""
    tokens: list[Token] = []
    for piece in [*pieces, ""]:
        position = text.find(piece, start, end) if piece else end
        if position < 0 or text[start:position].strip():
            raise DataError(
                f"The tokens of {name} do not match the text at character {start}: {text[start : start + 40]!r}.",
                f"{name} changed the text here; use the default tokenizer, or pass the sentence as a list of tokens.",
            )
        if piece:
            tokens.append(Token(piece, position, position + len(piece)))
        start = position + len(piece)
    return tokens
