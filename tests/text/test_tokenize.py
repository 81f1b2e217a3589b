"""Tokenizers: the benchmark's style on real sentences, exact offsets on arbitrary strings, linear time."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elmo.errors import ConfigError, DataError, MissingExtra
from elmo.text.tokenize import Token, tokenizer

default = tokenizer("default")
whitespace = tokenizer("whitespace")

# raw sentence, tokens as in the benchmark
SENTENCES = [
    ("The cat sat.", "The cat sat ."),
    ("They didn't have time.", "They didn 't have time ."),
    (
        "It's what we've done, and they're sure he'll say I'd go.",
        "It 's what we 've done , and they 're sure he 'll say I 'd go .",
    ),
    ("We cannot wait.", "We cannot wait ."),
    ("I'm gonna go.", "I 'm gonna go ."),
    ("Standard & Poor's 500 rose.", "Standard & Poor 's 500 rose ."),
    ("AT&T and the S&P 500", "AT & T and the S & P 500"),
    ("Shaquille O'Neal had 23 points.", "Shaquille O 'Neal had 23 points ."),
    ("of L'Aquila and Giscard d'Estaing", "of L 'Aquila and Giscard d 'Estaing"),
    ('"Y\'all come back," he said.', '" Y \'all come back , " he said .'),
    ("DON'T shout, EUROPE'S bank", "DON 'T shout , EUROPE 'S bank"),
    ("a will-he-or-won't-he flirtation", "a will-he-or-won 't-he flirtation"),
    ("the Lord's-based team", "the Lord 's-based team"),
    ("the players' union", "the players ' union"),
    ("He said 'yes' twice.", "He said ' yes ' twice ."),
    ("the '60s and the 1990's", "the ' 60s and the 1990 's"),
    ("at $2,900 a month", "at $ 2,900 a month"),
    ("£20,700 - £28,500", "£ 20,700 - £ 28,500"),
    ("a $5.5bn loss, up 13.5%.", "a $ 5.5bn loss , up 13.5 % ."),
    ("to close at 14,087.55.", "to close at 14,087.55 ."),
    ("hitting .302 with 15 homers", "hitting .302 with 15 homers"),
    ("1,000, 2,000 and 3,4", "1,000 , 2,000 and 3,4"),
    ("at 3:30 p.m. on Monday", "at 3 : 30 p.m. on Monday"),
    ("The show is at 8 p.m.", "The show is at 8 p.m."),
    ("in the U.S. on Monday", "in the U.S. on Monday"),
    ("the U.S.-led invasion", "the U.S.-led invasion"),
    ("Cupertino, Calif.-based Apple", "Cupertino , Calif.-based Apple"),
    ("Tampa, Fla., and Erie, Pa.", "Tampa , Fla . , and Erie , Pa ."),
    ("the U.N.'s headquarters", "the U.N. 's headquarters"),
    ("Mr. and Mrs. Smith met Dr. Jones and Gov. Lee.", "Mr. and Mrs. Smith met Dr. Jones and Gov. Lee ."),
    ("Christopher J. Dodd", "Christopher J. Dodd"),
    ("Better than I.", "Better than I ."),
    ("ranked No. 5, not No.", "ranked No. 5 , not No ."),
    ("Apple Inc. said Citigroup Inc.", "Apple Inc. said Citigroup Inc ."),
    ("Microsoft Corp. Each of the", "Microsoft Corp. Each of the"),
    ("Joseph A. Gardella Jr., a chemist", "Joseph A. Gardella Jr . , a chemist"),
    ("taxes, etc.", "taxes , etc ."),
    ("visit www.palm.com/Pre.", "visit www.palm.com / Pre ."),
    ("at http://www.sec.gov/ today", "at http : / / www.sec.gov / today"),
    ("e-mail info@elguild.org", "e-mail info @ elguild.org"),
    ("ECSP_Focus #2", "ECSP _ Focus # 2"),
    ("9/11 and/or part-run", "9 / 11 and / or part-run"),
    ("an 18-year-old, al-Qaida, Port-au-Prince", "an 18-year-old , al-Qaida , Port-au-Prince"),
    ("mid- to late forties", "mid- to late forties"),
    ("about 5 -10 minutes", "about 5 -10 minutes"),
    ("opponents -- beating them", "opponents -- beating them"),
    ("the votes he needs--and more", "the votes he needs -- and more"),
    ("the war—and peace – now", "the war — and peace – now"),
    ("Wait a minute...did we say....", "Wait a minute ... did we say ...."),
    ("in the U.S...", "in the U.S ..."),
    ("What?! No!!", "What ? ! No ! !"),
    ("(AP) [sic] {x} <b>", "( AP ) [ sic ] { x } < b >"),
    ("McDonald® and 1½ acres", "McDonald ® and 1 ½ acres"),
    ("Tévez's fiancée", "Tévez 's fiancée"),
    ("don’t say “it’s” ‘so’", "don ’t say “ it ’s ” ‘ so ’"),
    ("Penn's ``quotes''", "Penn 's `` quotes ''"),
    ("5ft 7in, 6.35pm and 1.3m", "5ft 7in , 6.35pm and 1.3m"),
    ("100,000+ people; 7*8=56", "100,000 + people ; 7 * 8 = 56"),
    ("I should've: he'd've", "I should 've : he 'd 've"),
    ("five o'clock in N'djamena", "five o 'clock in N 'djamena"),
]


@pytest.mark.parametrize(("raw", "expected"), SENTENCES)
def test_default_gives_the_tokens_of_the_benchmark(raw: str, expected: str) -> None:
    assert [token.text for token in default(raw)] == expected.split(" ")


@pytest.mark.parametrize(("raw", "expected"), SENTENCES)
def test_default_does_not_change_tokenised_text(raw: str, expected: str) -> None:
    assert [token.text for token in default(expected)] == expected.split(" ")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("👩‍💻 👍🏽ok 🇫🇷🇩🇪", ["👩‍💻", "👍🏽", "ok", "🇫🇷", "🇩🇪"]),
        ("ete\u0301s été", ["ete\u0301s", "été"]),  # NFD and NFC are not changed
        ("a" + "\u0301" * 1000 + ".", ["a" + "\u0301" * 1000, "."]),
        ("हिन्दी भाषा।", ["हिन्दी", "भाषा", "।"]),
        ("ภาษาไทย", ["ภาษาไทย"]),
        ("今日は、元気。", ["今日は", "、", "元気", "。"]),
        ("שלום, עולם!", ["שלום", ",", "עולם", "!"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("co\u00adop", ["co\u00adop"]),
        ("\ud800 a\udfffb", ["\ud800", "a", "\udfff", "b"]),
        ("a\x00b\ufeff", ["a", "\x00", "b", "\ufeff"]),
        ("a\u2028b\x85c\x0bd\re", ["a", "b", "c", "d", "e"]),
        ("\ue000 \uffff \U0010ffff", ["\ue000", "\uffff", "\U0010ffff"]),
        ("𝒜𝒷 x𐐀y", ["𝒜𝒷", "x𐐀y"]),
        ("", []),
        (" \t\n\u00a0\u3000", []),
    ],
)
def test_default_accepts_any_unicode(raw: str, expected: list[str]) -> None:
    assert [token.text for token in default(raw)] == expected


@pytest.mark.parametrize("raw", ["<S>", "</S>", "<UNK>", "<bos>"])
def test_whitespace_does_not_split_special_tokens(raw: str) -> None:
    assert whitespace(f"a {raw}\tb") == [
        Token("a", 0, 1),
        Token(raw, 2, 2 + len(raw)),
        Token("b", len(raw) + 3, len(raw) + 4),
    ]


def check_offsets(text: str, tokens: list[Token]) -> None:
    end = 0
    for token in tokens:
        assert text[token.start : token.end] == token.text
        assert token.start < token.end
        assert not text[end : token.start].strip()
        end = token.end
    assert not text[end:].strip()


ANY_TEXT = st.text(st.characters(codec=None), max_size=60)  # with surrogates
# dense mixtures of the characters that the rules depend on
TRICKY = st.lists(
    st.sampled_from(list("aOsdtIZ15é.,-'’\"`_$/ \n\u0301\u200d👍\ud800") + ["U.S.", "Inc.", " ", "n't", "No.", "O'"]),
    max_size=30,
).map("".join)


@given(ANY_TEXT | TRICKY)
@example("\x1c\x85 \u2029")
@example("Mr." * 5)
def test_default_offsets_are_exact_and_cover_every_character(text: str) -> None:
    check_offsets(text, default(text))


@given(ANY_TEXT)
def test_whitespace_offsets_are_exact_and_cover_every_character(text: str) -> None:
    check_offsets(text, whitespace(text))
    assert [token.text for token in whitespace(text)] == text.split()


ORDINARY = st.lists(
    st.sampled_from(
        list("abIOosStd'’.,-\"`_$%/()&:;!? 0123éñ\n")
        + ["U.S.", "Inc. said", "'s ", " 'em", "n't", "No. 5", "O'Neal", "--"]
    ),
    max_size=25,
).map("".join)


@given(ORDINARY | st.text(st.characters(min_codepoint=32, max_codepoint=0x24F), max_size=40))
@example("'.a. ½.b. _.c.")
@example("a-'s-b 'x y'z")
@example("x'y'z 'tis O 'Neal")
def test_default_is_idempotent_on_its_own_output(text: str) -> None:
    tokens = [token.text for token in default(text)]
    assert [token.text for token in default(" ".join(tokens))] == tokens


@given(ORDINARY, ORDINARY)
def test_default_does_not_depend_on_text_before_a_line_break_and_a_mark(left: str, right: str) -> None:
    # position does not matter: a text has the same tokens after other text as alone
    alone = [token.text for token in default("; " + right)]
    after = [token.text for token in default(left + "\n; " + right)]
    assert after[len(after) - len(alone) :] == alone


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        ".",
        "'",
        "-",
        " ",
        '"',
        "a'",
        "a.",
        "a-",
        "1,",
        ".-",
        "Mr.",
        "No.",
        "O'",
        "😀",
        "😀\u200d",
        "e\u0301",
        "é",
        "ก็",
        "I. ",
        "\ud800",
    ],
)
def test_default_takes_linear_time(piece: str) -> None:
    quarter = piece * (250_000 // len(piece))
    start = time.process_time()
    default(quarter)
    assert time.process_time() - start < 1.5  # about 0.3; a quadratic algorithm takes minutes


@pytest.mark.parametrize(
    ("name", "near"), [("defualt", "default"), ("spcay:en", "spacy"), ("Moses:de", "moses"), ("white", "whitespace")]
)
def test_error_for_an_unknown_name_suggests_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tokenizer(name)
    assert name in caught.value.message
    assert f"{near!r}" in caught.value.hint


@pytest.mark.parametrize("name", ["", "default:en", "whitespace:x", "zzz"])
def test_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        tokenizer(name)


@pytest.mark.parametrize(("name", "module"), [("spacy", "spacy"), ("moses:de", "sacremoses")])
def test_error_for_a_missing_library_names_the_extra(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(MissingExtra) as caught:
        tokenizer(name)
    assert "pip install" in caught.value.hint


ODD_TEXTS = [raw for raw, _ in SENTENCES] + [
    "",
    "  two  spaces \n here\t.",
    "a\x00b \x01",
    "\ud800 x",
    "&amp; &lt; [x|y] @-@",
    "日本語。שלום",
    unicodedata.normalize("NFD", "été"),
    "....a.. b",
]


@pytest.mark.parametrize("name", ["spacy", "spacy:de", "spacy:xx"])
def test_spacy_offsets_are_exact_and_cover_every_character(name: str) -> None:
    pytest.importorskip("spacy")
    tokenize = tokenizer(name)
    for text in ODD_TEXTS:
        check_offsets(text, tokenize(text))


def test_spacy_gives_the_tokens_of_spacy() -> None:
    pytest.importorskip("spacy")
    assert [token.text for token in tokenizer("spacy:en")("I don't.")] == ["I", "do", "n't", "."]


def test_spacy_unknown_language_is_refused() -> None:
    pytest.importorskip("spacy")
    with pytest.raises(ConfigError):
        tokenizer("spacy:qqq")


@pytest.mark.parametrize("name", ["moses", "moses:de", "moses:fr"])
def test_moses_offsets_are_exact_and_cover_every_character(name: str) -> None:
    pytest.importorskip("sacremoses")
    tokenize = tokenizer(name)
    for text in ODD_TEXTS:
        check_offsets(text, tokenize(text))


def test_moses_gives_the_tokens_of_moses() -> None:
    pytest.importorskip("sacremoses")
    assert [token.text for token in tokenizer("moses:en")("I don't & won't.")] == [
        "I",
        "don",
        "'t",
        "&",
        "won",
        "'t",
        ".",
    ]


def test_moses_that_changes_the_text_is_a_data_error() -> None:
    pytest.importorskip("sacremoses")
    with pytest.raises(DataError):
        tokenizer("moses:en")("say DOTMULTI now")  # Moses' own placeholder, which it replaces by a full stop


def test_moses_language_must_be_a_code() -> None:
    pytest.importorskip("sacremoses")
    with pytest.raises(ConfigError):
        tokenizer("moses:../x")
