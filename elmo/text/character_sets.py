"""Contents of regular-expression character sets that `re` cannot name: word characters with their marks, lower case.

Python's \\w omits combining accents and the vowel signs of Indic scripts. For the tokenizers `default` and `unicode`.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

JOINERS = r"\u00ad\u200c\u200d"  # soft hyphen, zero width non-joiner and joiner: they stand inside words


def word_characters(excluded: str) -> str:
    """Letters, digits, combining marks and joiners, without the \\w characters in `excluded` (contents of a set)."""
    letters = re.finditer(rf"[^\W{excluded}]+", _every_character())
    return _ranges([(run.start(), run.end() - 1) for run in letters]) + marks() + JOINERS


@lru_cache(maxsize=1)
def marks() -> str:
    """Combining marks and variation selectors."""
    found = (c for c in re.findall(r"[^\w\s]", _every_character()) if unicodedata.category(c)[0] == "M")
    return _ranges([(ord(c), ord(c)) for c in found]) + r"\U000e0100-\U000e01ef"


def letters_of_case(case: str) -> str:
    """The letters of the Unicode category `case`: Ll (lower case) or Lu (upper case)."""
    return _ranges([(i, i) for i, c in enumerate(_every_character()) if unicodedata.category(c) == case])


def _every_character() -> str:
    """All characters up to the last assigned letter; the only marks beyond it are variation selectors."""
    return "".join(map(chr, range(0x33480)))


def _ranges(runs: list[tuple[int, int]]) -> str:
    """The contents of a regex character set; unassigned gaps beyond the BMP are filled, because ranges cost time."""
    merged = [runs[0]]
    for first, last in runs[1:]:
        gap = range(merged[-1][1] + 1, first)
        if not gap or gap[0] > 0xFFFF and all(unicodedata.category(chr(code)) == "Cn" for code in gap):
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in merged)
