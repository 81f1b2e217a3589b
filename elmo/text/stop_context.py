"""What is before and after a stop: the helpers of the rules that decide whether it ends a sentence."""

from __future__ import annotations

import re

_WORD_BEFORE = re.compile(  # a dash after a letter belongs to the word, because Z in "A–Z." is not an initial
    r"(?:[^\s\"'\u2018-\u201a\u201c-\u201e\u00ab\u2039\u00bf\u00a1(\[{*_/\u2013\u2014-]"
    r"|(?<=[^\W\d_])[\u2013\u2014])*\Z"
)
_GAP = re.compile(r"\s+")
OPENERS = "\"'`\u2018\u201c\u201e\u00ab\u2039([{*_\u00bf\u00a1"
_LABEL = re.compile(r"\s*[(\[]?(?:\d{1,3}|[ivxIVX]{1,5}|[a-zA-Z])")


def words(text: str) -> frozenset[str]:
    """The words of a text without repetition."""
    return frozenset(text.split())


def sentence_start(text: str, position: int, end: int, lower_starts: bool) -> str | None:
    """The text that follows whitespace at `position`, if it looks like the start of a sentence; else None."""
    gap = _GAP.match(text, position, end)
    if gap is None or gap.end() == end:
        return None
    following = text[gap.end() : gap.end() + 40]
    return following if _starts_sentence(following, "\n" in gap[0], lower_starts) else None


def word_before(text: str, start: int, stop: int) -> str:
    """The word that ends at `stop`, at most 30 characters of it."""
    match = _WORD_BEFORE.search(text[max(start, stop - 30) : stop])
    return match[0] if match else ""


def is_label(text: str, start: int, stop: int) -> bool:
    """Whether the text before the stop is only a list number: "1." "12." "iv." """
    return stop - start < 40 and _LABEL.fullmatch(text, start, stop) is not None


def _starts_sentence(following: str, new_line: bool, lower_starts: bool) -> bool:
    first = following.lstrip(OPENERS)[:1]
    if first.islower():
        return lower_starts
    if following[0] in "-\u2013\u2014\u2022":  # a dash continues the sentence, a bullet on a new line does not
        return new_line
    return following[0] not in ",;:.!?\u2026)]}%/&\u2019\u201d"
