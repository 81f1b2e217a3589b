"""The rules for any language by which `sentences` decides whether a full stop or another stop ends a sentence.

A stop (. ! ? …) ends a sentence if whitespace follows and the text after it does not begin with a small letter. A full
stop does not end one after an initial, a number up to 31 after a word (an ordinal: "am 3. Mai"), letters with stops
(z.B., т.е.) and a few abbreviations that precede names and numbers in many languages. In Greek, a semicolon is a
question mark. The stops of other scripts (。！？ ؟ ۔ । ॥ ። ။ ។ ։ ...) always end a sentence. Thai has no stop: a
sentence ends with its line.
"""

from __future__ import annotations

import re

from elmo.text.stop_context import OPENERS, is_label, word_before, words

_SOFT = r".!?\u2026\u203c\u2047-\u2049"
_HARD = (
    r"\u3002\uff01\uff0e\uff1f\uff61"  # Chinese and Japanese
    r"\u061d-\u061f\u06d4\u0700-\u0702\u0964\u0965\u0df4"  # Arabic, Urdu, Syriac, Hindi and other Indic, Sinhala
    r"\u104a\u104b\u17d4\u17d5\u1362\u1367\u1368\u0589\u1803\u1809\u0f0d\u0f0e"  # Burmese ... Tibetan
    r"\u1b5a\u1b5b\ua9c8\ua9c9\u1c7e\u1c7f\uabeb\ua4ff"
)
_CLOSERS = (  # quotes that open in one language and close in another are directly after the stop here
    r"[\"'\u2018\u2019\u201c\u201d\u00ab\u00bb\u2039\u203a)\]}*_\u300d\u300f\uff09\u3011\u300b\u3009\u2e29]*"
    r"(?:[ \u00a0\u202f]\u00bb(?!\w))?"  # French: oui. »
)
# The lookbehind lets the pattern match a run of stops only at its start; nothing after a run can fail: no backtracking.
STOP = re.compile(
    rf"(?<![{_SOFT}])(?P<soft>[{_SOFT}]+){_CLOSERS}"
    rf"|(?P<hard>[{_HARD}]+){_CLOSERS}"
    rf"|(?<=[\u0370-\u03ff\u1f00-\u1fff])(?P<greek>[;\u037e]){_CLOSERS}"
)
_ABBREVIATIONS = words(
    "Mr Mrs Ms Dr Drs Prof St Ste Sr Sra Srta Jr Hr Fr Nr No Mme Mlle MM Sig Dott Avv Ing Mgr Sen Rep Gov Gen Lt Col "
    "Capt Sgt Art art Abs Kap Bd Bl bl Vol vol pp p S s str Str č č.p tzv tj r stol mr dr prof v vs cf fig Fig Abb ca "
    "kl nr tel Tel o.s s.a d.h z.B u.a f.eks m.a.w t.ex t.o.m d.v.s н.э т.е т.д т.п св гр ул им рис стр тов "
    "проф акад ген им пл д кв млн млрд тыс"
)


def full_stop_ends_sentence(text: str, start: int, stop: int, following: str) -> bool:
    """Whether the full stop at `stop` ends a sentence that begins at `start`; `following` is the text after it."""
    word = word_before(text, start, stop)
    if word in _ABBREVIATIONS or is_label(text, start, stop):
        return False
    if len(word) == 1 and word.isalpha() and word.isupper():
        return False  # an initial
    if len(word) <= 2 and word.isdecimal() and int(word) <= 31:
        before = text[max(start, stop - len(word) - 2) : stop - len(word)].strip()
        return following.lstrip(OPENERS)[:1].isdigit() or not before[-1:].isalpha()  # not an ordinal: 7 - 4.
    return not ("." in word and word.replace(".", "").isalpha() and len(word.rpartition(".")[2]) == 1)
