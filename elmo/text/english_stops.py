"""The rules for English by which `sentences` decides whether a full stop or another stop ends a sentence.

A stop (. ! ? …) ends a sentence if the text after it looks like the start of a sentence and the word before it is not
an abbreviation, an initial or a list number. The stops of other scripts (。！？ ؟ ।) always end a sentence.
"""

from __future__ import annotations

import re

# The lookbehind lets the pattern match a run of stops only at its start; nothing after a run can fail: no backtracking.
STOP = re.compile(
    r"(?<![.!?\u2026\u203c\u2047-\u2049])(?P<soft>[.!?\u2026\u203c\u2047-\u2049]+)[\"'\u2019\u201d\u00bb\u203a)\]}*_]*"
    r"|(?P<hard>[\u3002\uff01\uff1f\uff61\u061f\u06d4\u0964\u0965]+)[\"'\u2019\u201d\u00bb\u203a)\]}\u300d\u300f\uff09\u3011]*"
)
_WORD_BEFORE = re.compile(r"[^\s\"'\u2018\u2019\u201c\u201d\u00ab\u2039(\[{*_/-]*\Z")
_GAP = re.compile(r"\s+")
OPENERS = "\"'`\u2018\u201c\u201e\u00ab\u2039([{*_\u00bf\u00a1"
_LABEL = re.compile(r"\s*[(\[]?(?:\d{1,3}|[ivxIVX]{1,5}|[a-zA-Z])")
_WORD_AFTER = re.compile(r"[A-Za-z]+(?=[\s,'\u2019])")


def words(text: str) -> frozenset[str]:
    """The words of a text without repetition."""
    return frozenset(text.split())


# These words with a stop never end a sentence.
_TITLES = words(
    "Mr Mrs Ms Messrs Mme Mlle Dr Drs Prof St Sen Sens Rep Reps Gov Govs Gen Lt Sgt Col Capt Maj Brig Cpl Pvt Cmdr Adm "
    "Supt Insp Rev Hon Pres Mt Ft Fig Figs mr mrs ms dr prof vs v cf e.g i.e viz al approx esp incl E.g I.e"
)
# These do not end a sentence before a number.
_MONTHS = "Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec"
_BEFORE_NUMBER = words(
    f"No Nos no nos p pp Vol vol vols Ch ch Sec sec Art art Eq eq eqs ed ref refs par para {_MONTHS}"
)
# These, and all dotted abbreviations such as U.S. and p.m., end a sentence only before a word that often starts one.
_MAYBE_LAST = words(
    "Inc Corp Co Cos Ltd Bros Jr Sr Esq Ave Blvd Rd Dept Univ Assn Ala Ariz Ark Calif Colo Conn Del Fla Ga Ill Ind Kan "
    "Ky La Md Mass Mich Minn Miss Mo Mont Neb Nev Okla Ore Pa Tenn Tex Va Vt Wash Wis Wyo inc corp ltd jr sr etc Ph.D "
    f"{_MONTHS}"
)
_STARTERS = words(
    "A An The This That These Those There Here He She It We You They I His Her Its Our Your Their My But And Or So Yet "
    "Nor In On At By For From To With Without Under Over After Before Since Until Although Though Because While When "
    "Where Whether Who What Why How If As Then Now Still Also However Meanwhile Moreover Instead Indeed Once Some Many "
    "Most Several Both Each Every All Another Other Others No Not Yes Even Only One Two Three Last Next"
)


def ends_sentence(text: str, start: int, match: re.Match[str], end: int, lower_starts: bool) -> bool:
    """Whether the stop ends a sentence; the paragraph begins or the last sentence ended at `start`."""
    if match["hard"]:
        return True
    following = sentence_start(text, match.end(), end, lower_starts)
    if following is None:
        return False
    if match["soft"] != ".":
        return True
    word = word_before(text, start, match.start())
    next_text = following.lstrip(OPENERS)
    if word in _BEFORE_NUMBER and next_text[:1].isdigit():
        return False
    if word in _TITLES or is_label(text, start, match.start()):
        return False
    if len(word) == 1 and word.isupper() and word != "I":
        return False  # an initial
    if word in _MAYBE_LAST or "." in word and word.replace(".", "").isalpha() and len(word.rpartition(".")[2]) == 1:
        first = _WORD_AFTER.match(next_text)
        return first is not None and first[0] in _STARTERS
    return True


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
