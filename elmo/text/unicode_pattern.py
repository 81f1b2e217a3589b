"""The regular expression of the tokenizer `unicode`, for text in any language and script, also mixed in one text.

Words are runs of letters, digits, combining marks and joiners, after the word boundaries of Unicode (UAX #29), with the
changes that a language model with a vocabulary of words needs:

- An apostrophe ends a word that is elided before another ("l' uomo", "qu' il", "dell' arte", Irish "d' fhág"), and
  starts a clitic ("it 's", "didn 't", Welsh "i 'r", German "geht 's"); any other one between letters is part of its
  word (aujourd'hui, O'Neal, п'ять, Ankara'da).
- A hyphen between letters is part of the word (porte-parole, covid-19), also before a space and a small letter ("Vor-
  und Nachteile"); between two numbers it is not (1990 - 1995).
- A full stop is part of a number, a name (3.14, example.org) and an abbreviation: a single letter, letters with stops
  (z.B., т.е.), and a short word or a number before a small letter or a comma ("ca. hundert", "am 3. mai", "etc.,").
- Numbers keep their separators (1,000.50, 12:30, ١٬٠٠٠). Addresses (https://example.org/x, a@b.org), @names and #tags
  are one token.
- Text without spaces: each Chinese character and each hiragana is a token, a run of katakana is one token; Thai, Lao,
  Khmer and Burmese are split into syllable parts, a consonant with the vowels and marks around it. No dictionary of
  words is used.
- Zero-width spaces, byte order marks and marks of direction separate tokens as spaces do and belong to none.

Nothing else is left out and no character is changed. The rules are the same for every language, because the text of one
model, and one sentence, may be in several.
"""

from __future__ import annotations

import re
from functools import lru_cache

from elmo.text.character_sets import letters_of_case, marks, word_characters

FORMAT = r"\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff"  # separate tokens without being visible
_NOT_WORD = r"_\u00b2\u00b3\u00b9\u00bc-\u00be"  # \w characters that are separate: underscore, superscripts, fractions
_SINGLE = (  # Chinese characters and hiragana
    r"\u3005\u3007\u3021-\u3029\u3038-\u303b\u3041-\u3096\u309d-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U0001b001-\U0001b11f\U00020000-\U000323af"
)
_SYLLABIC = (  # letters of Thai, Lao, Burmese and Khmer; their digits are ordinary digits
    r"\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd\u0ec0-\u0ec6\u0edc-\u0edf"
    r"\u1000-\u102a\u103f\u1050-\u1055\u105a-\u105d\u1061\u1065\u1066\u106e-\u1070\u1075-\u1081\u108e"
    r"\u1780-\u17b3\u17d7\u17dc\ua9e0-\ua9e4\ua9e6-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a\uaa7e\uaa7f"
)
_BEFORE_CONSONANT = r"\u0e40-\u0e44\u0ec0-\u0ec4"  # Thai and Lao vowels that are written before their consonant
_AFTER_CONSONANT = r"\u0e30\u0e32\u0e33\u0e45\u0eb0\u0eb2\u0eb3"
_SUBSCRIPT = r"\u1039\u17d2"  # the next consonant is written below this one
_APOSTROPHES = r"'\u2019"
_HYPHENS = r"\-\u2010\u2011"
_QUOTES = r"\"'\u2018\u2019\u201c\u201d\u00ab\u00bb\u2039\u203a"

# Words that are written with an apostrophe before a vowel: French, Italian, Catalan, Irish.
_ELIDED = (
    "[bcdjlmnstvz]|qu|jusqu|lorsqu|puisqu|quoiqu|entr|un|gl|degl|agl|dagl|negl|sugl|dell|all|dall|nell|sull|coll|"
    "quell|quest|bell|sant|nessun|ciascun|qualcun|alcun|cos|dov|com|tutt|mezz|anch|senz|cent|vent|nient|ch"
)
# Endings that follow an apostrophe: English, German, Catalan, Welsh.
_CLITICS = "s|t|m|d|re|ve|ll|r|n|w|l|ls|ns|hi|ch|th"
_TITLES = (  # they keep their stop before any word
    "Mr|Mrs|Ms|Dr|Drs|Prof|St|Sr|Sra|Srta|Jr|Hr|Fr|Nr|No|Mme|Mlle|Sig|Dott|Avv|Ing|Mgr|Sen|Rep|Gov|Gen|Lt|Col|Capt|"
    "kl|ca|bl|nr|art|Art|str|č|tzv|tj|св|гр|ул|им|г|стр|рис|см"
)


@lru_cache(maxsize=1)
def unicode_pattern() -> re.Pattern[str]:
    """The regular expression; every branch looks at a bounded distance or is greedy, so time is linear."""
    char = word_characters(_NOT_WORD + _SINGLE + _SYLLABIC)
    lower, upper, mark = letters_of_case("Ll"), letters_of_case("Lu"), marks()
    apostrophe, hyphen = f"[{_APOSTROPHES}]", f"[{_HYPHENS}]"
    ends = f"(?![{char}])"
    clitic = rf"{apostrophe}(?:(?i:{_CLITICS}){ends}|[iu](?:(?<=[aeoâ].[iu])|(?<=[aeoâ]\s.[iu])){ends})"
    elided = rf"(?<![{_APOSTROPHES}\u2018])(?i:{_ELIDED}){apostrophe}(?=\s?[{char}])|(?i:po)'{ends}"
    inner = "|".join(
        [
            rf"(?<!\d){hyphen}|{hyphen}(?!\d)",
            r"(?<=\d)[.,:\u066b\u066c](?=\d)|(?<!\d)\.(?!\d)|\.(?=[^\W\d])",
            rf"(?!{clitic}){apostrophe}",
            r"(?<=[^\W\d]):(?=[^\W\d])|[\u00b7\u0387\u2027]|_+",
            r"(?<=[\u05d0-\u05ea])[\"\u05f4\u05f3\u201d](?=[\u05d0-\u05ea])",
        ]
    )
    # words of one to four letters
    short = "|".join(rf"(?<=[^\w.{_HYPHENS}][^\W\d_]{{{n}}}\.)|(?<=^[^\W\d_]{{{n}}}\.)" for n in range(1, 5))
    stop = "|".join(
        [
            rf"(?<=[^\W\d_]\.[^\W\d_]\.)(?![{char}])",  # z.B.
            rf"(?:(?<=[^\w{_HYPHENS}{_APOSTROPHES}][{upper}]\.)|(?<=^[{upper}]\.))(?=\s*[^\s{_QUOTES})])",  # initials
            rf"(?<=\d\.)(?=\s[{lower}])",
            *(rf"(?<=\b{word}\.)(?=\s?[^\W_])" for word in _TITLES.split("|")),
            rf"(?:{short})(?=\s[{lower}]|[,;])",
        ]
    )
    word = rf"[{char}]+(?:(?:{inner})[{char}]+)*(?:\u05f3|(?<=[^\W\d])-(?=\s[{lower}]))?(?:\.(?!\.)(?:{stop}))?"
    syllable = (
        rf"[{_BEFORE_CONSONANT}]*[{_SYLLABIC}][{mark}]*(?:(?<=[{_SUBSCRIPT}])[{_SYLLABIC}][{mark}]*)*"
        rf"(?:[{_AFTER_CONSONANT}][{mark}]*)*"
    )
    modifiers = f"[{mark}\U0001f3fb-\U0001f3ff]*"
    return re.compile(
        rf"(?:https?|ftp)://[^\s<>{FORMAT}]*[^\s<>{FORMAT}{_QUOTES}.,;:!?()\[\]{{}}\u2026\u3001\u3002]"
        r"|[\w.+-]{1,64}@[^\W_][\w-]{0,62}(?:\.[^\W_][\w-]{0,62})+"
        rf"|(?<![{char}])[@#](?=[^\W\d])[{char}_]+"
        rf"|{elided}|{word}|{clitic}|{syllable}"
        rf"|[{_SINGLE}][{mark}]*"
        r"|\.\.+|--+|``+|''+|!!+|\?\?+"
        rf"|[\U0001f1e6-\U0001f1ff]{{2}}"  # a flag is two letters
        rf"|[^\s{FORMAT}]{modifiers}(?:\u200d[^\w\s]{modifiers})*"  # any other mark is one token; so are joined emoji
    )
