"""The rules for English by which `sentences` decides whether a full stop or another stop ends a sentence.

A stop (. ! ? …) ends a sentence if the text after it looks like the start of a sentence and the word before it is not
an abbreviation, an initial or a list number. The stops of other scripts (。！？ ؟ ।) always end a sentence.
"""

from __future__ import annotations

import re

from elmo.text.stop_context import OPENERS, is_label, word_before, words

# The lookbehind lets the pattern match a run of stops only at its start; nothing after a run can fail: no backtracking.
STOP = re.compile(
    r"(?<![.!?\u2026\u203c\u2047-\u2049])(?P<soft>[.!?\u2026\u203c\u2047-\u2049]+)[\"'\u2019\u201d\u00bb\u203a)\]}*_]*"
    r"|(?P<hard>[\u3002\uff01\uff1f\uff61\u061f\u06d4\u0964\u0965]+)[\"'\u2019\u201d\u00bb\u203a)\]}\u300d\u300f\uff09\u3011]*"
)
_WORD_AFTER = re.compile(r"[A-Za-z]+(?=[\s,'\u2019])")

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


def full_stop_ends_sentence(text: str, start: int, stop: int, following: str) -> bool:
    """Whether the full stop at `stop` ends a sentence that begins at `start`; `following` is the text after it."""
    word = word_before(text, start, stop)
    next_text = following.lstrip(OPENERS)
    if word in _BEFORE_NUMBER and next_text[:1].isdigit():
        return False
    if word in _TITLES or is_label(text, start, stop):
        return False
    if len(word) == 1 and word.isupper() and word != "I":
        return False  # an initial
    if word in _MAYBE_LAST or "." in word and word.replace(".", "").isalpha() and len(word.rpartition(".")[2]) == 1:
        first = _WORD_AFTER.match(next_text)
        return first is not None and first[0] in _STARTERS
    return True
