"""Splits documents into sentences, as spans of the raw text; the step before `tokenize`.

The rules are for English. A stop (. ! ? …) ends a sentence if the text after it looks like the start of a sentence and
the word before it is not an abbreviation, an initial or a list number. A blank line always ends a sentence; a single
line break counts as whitespace. The stops of other scripts (。！？ ؟ ।) always end a sentence. Each decision examines a
bounded distance around the stop, so the time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Span(NamedTuple):
    """Offsets of one sentence: text[start:end], without whitespace around it."""

    start: int
    end: int


def split_sentences(text: str) -> list[Span]:
    """The span of each sentence in `text`; spans are not empty, and only whitespace is between them.

    In text without any capital letter, a sentence may also start with a small letter.
    """
    lower_starts = text.lower() == text
    spans: list[Span] = []
    start = 0
    for blank in _BLANK_LINE.finditer(text):
        spans += _split_paragraph(text, start, blank.start(), lower_starts)
        start = blank.end()
    spans += _split_paragraph(text, start, len(text), lower_starts)
    return spans


_BLANK_LINE = re.compile(r"\n[^\S\n]*\n|\r[^\S\r\n]*\r|[\f\u2029]")
# The lookbehind lets the pattern match a run of stops only at its start; nothing after a run can fail: no backtracking.
_STOP = re.compile(
    r"(?<![.!?\u2026\u203c\u2047-\u2049])(?P<soft>[.!?\u2026\u203c\u2047-\u2049]+)[\"'\u2019\u201d\u00bb\u203a)\]}*_]*"
    r"|(?P<hard>[\u3002\uff01\uff1f\uff61\u061f\u06d4\u0964\u0965]+)[\"'\u2019\u201d\u00bb\u203a)\]}\u300d\u300f\uff09\u3011]*"
)
_WORD_BEFORE = re.compile(r"[^\s\"'\u2018\u2019\u201c\u201d\u00ab\u2039(\[{*_/-]*\Z")
_GAP = re.compile(r"\s+")
_OPENERS = "\"'`\u2018\u201c\u201e\u00ab\u2039([{*_\u00bf\u00a1"
_LABEL = re.compile(r"\s*[(\[]?(?:\d{1,3}|[ivxIVX]{1,5}|[a-zA-Z])")
_WORD_AFTER = re.compile(r"[A-Za-z]+(?=[\s,'\u2019])")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# These words with a stop never end a sentence.
_TITLES = _words(
    "Mr Mrs Ms Messrs Mme Mlle Dr Drs Prof St Sen Sens Rep Reps Gov Govs Gen Lt Sgt Col Capt Maj Brig Cpl Pvt Cmdr Adm "
    "Supt Insp Rev Hon Pres Mt Ft Fig Figs mr mrs ms dr prof vs v cf e.g i.e viz al approx esp incl E.g I.e"
)
# These do not end a sentence before a number.
_MONTHS = "Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec"
_BEFORE_NUMBER = _words(
    f"No Nos no nos p pp Vol vol vols Ch ch Sec sec Art art Eq eq eqs ed ref refs par para {_MONTHS}"
)
# These, and all dotted abbreviations such as U.S. and p.m., end a sentence only before a word that often starts one.
_MAYBE_LAST = _words(
    "Inc Corp Co Cos Ltd Bros Jr Sr Esq Ave Blvd Rd Dept Univ Assn Ala Ariz Ark Calif Colo Conn Del Fla Ga Ill Ind Kan "
    "Ky La Md Mass Mich Minn Miss Mo Mont Neb Nev Okla Ore Pa Tenn Tex Va Vt Wash Wis Wyo inc corp ltd jr sr etc Ph.D "
    f"{_MONTHS}"
)
_STARTERS = _words(
    "A An The This That These Those There Here He She It We You They I His Her Its Our Your Their My But And Or So Yet "
    "Nor In On At By For From To With Without Under Over After Before Since Until Although Though Because While When "
    "Where Whether Who What Why How If As Then Now Still Also However Meanwhile Moreover Instead Indeed Once Some Many "
    "Most Several Both Each Every All Another Other Others No Not Yes Even Only One Two Three Last Next"
)


def _split_paragraph(text: str, start: int, end: int, lower_starts: bool) -> Iterator[Span]:
    for match in _STOP.finditer(text, start, end):
        if _ends_sentence(text, start, match, end, lower_starts):
            yield from _trim(text, start, match.end())
            start = match.end()
    yield from _trim(text, start, end)


def _trim(text: str, start: int, end: int) -> Iterator[Span]:
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    if left < len(piece):
        yield Span(start + left, start + len(piece.rstrip()))


def _ends_sentence(text: str, start: int, match: re.Match[str], end: int, lower_starts: bool) -> bool:
    if match["hard"]:
        return True
    gap = _GAP.match(text, match.end(), end)
    if gap is None or gap.end() == end:
        return False
    following = text[gap.end() : gap.end() + 40]
    if not _starts_sentence(following, "\n" in gap[0], lower_starts):
        return False
    stop = match["soft"]
    if stop != ".":
        return True
    word = _word_before(text, start, match.start())
    next_text = following.lstrip(_OPENERS)
    if word in _BEFORE_NUMBER and next_text[:1].isdigit():
        return False
    if word in _TITLES or _is_label(text, start, match.start()):
        return False
    if len(word) == 1 and word.isupper() and word != "I":
        return False  # an initial
    if word in _MAYBE_LAST or "." in word and word.replace(".", "").isalpha() and len(word.rpartition(".")[2]) == 1:
        first = _WORD_AFTER.match(next_text)
        return first is not None and first[0] in _STARTERS
    return True


def _word_before(text: str, start: int, stop: int) -> str:
    match = _WORD_BEFORE.search(text[max(start, stop - 30) : stop])
    return match[0] if match else ""


def _is_label(text: str, start: int, stop: int) -> bool:
    """Whether the text before the stop is only a list number: "1." "12." "iv." """
    return stop - start < 40 and _LABEL.fullmatch(text, start, stop) is not None


def _starts_sentence(following: str, new_line: bool, lower_starts: bool) -> bool:
    first = following.lstrip(_OPENERS)[:1]
    if first.islower():
        return lower_starts
    if following[0] in "-\u2013\u2014\u2022":  # a dash continues the sentence, a bullet on a new line does not
        return new_line
    return following[0] not in ",;:.!?\u2026)]}%/&\u2019\u201d"
