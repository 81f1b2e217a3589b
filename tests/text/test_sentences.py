"""Sentence splitting: English stops and abbreviations, other scripts, arbitrary strings, linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elmo.text.sentences import split_sentences


def pieces(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


# sentences that are joined by a space and must be split at the same places
JOINED = [
    ["The cat sat.", "The dog ran.", "It rained."],
    ["Mr. Smith met Dr. Jones.", "They spoke with Sen. J. K. Lee."],
    ["He lives in the U.S.", "The U.S. Senate met at 3 p.m. on Monday.", "It ended at 8 p.m.", "Then all left."],
    ["Apple Inc. said so.", "He works at Apple Inc.", "It grew."],
    ["It rose 3.5 percent to 1,000.50 on Jan. 5.", "Nobody knew."],
    ["See No. 5, e.g. Smith et al. 2018, i.e. the paper.", "Fig. 3 shows it."],
    ['"Really?" he asked.', '"Yes!" she said.', '"I left."', "Then silence."],
    ["“Go.”", "‘Now!’", "(It was late.)", "[End.]"],
    ["Wait... what?", "She left...", "He stayed.", "So… it goes on.", "Well…", "Fine."],
    ["What?!", "No!!!", "Yes."],
    ["He fell ill.", "Bob took a miss.", "Yes, no.", "Peter did ten reps.", "Lee agreed."],
    ["It was better than I.", "He agreed."],
    ["Visit www.example.com. now or later.", "Version 2.0.1 is out."],
    ["He paid $5.", "$10 was too much.", "5 people came."],
    ["Why not?", "2008 was good.", "“Was it?”", "Ça va.", "Été came.", "Über is a word."],
    ["1. First item.", "2. Second item.", "A. Third item."],
    ["Fishing, hunting, etc. are allowed.", "Bring food, etc.", "They will wait."],
    ["Then . . . he went on.", "It was over."],
]


@pytest.mark.parametrize("sentences", JOINED, ids=lambda sentences: sentences[0][:20])
def test_joined_sentences_are_split_again(sentences: list[str]) -> None:
    assert pieces(" ".join(sentences)) == sentences


@pytest.mark.parametrize("sentences", JOINED, ids=lambda sentences: sentences[0][:20])
def test_line_breaks_are_whitespace(sentences: list[str]) -> None:
    text = " ".join(sentences).replace(" ", "\n")
    assert pieces(text) == [sentence.replace(" ", "\n") for sentence in sentences]


@pytest.mark.parametrize("blank", ["\n\n", "\n \t\n", "\r\n\r\n", "\n\n\n\n", "\r\r", "\u2029", "\n\x0c\n"])
def test_a_blank_line_always_splits(blank: str) -> None:
    assert pieces(f"a title without stop{blank}and more, Mr.{blank}Smith") == [
        "a title without stop",
        "and more, Mr.",
        "Smith",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("今日は。元気ですか？「はい。」終わり！", ["今日は。", "元気ですか？", "「はい。」", "終わり！"]),
        ("هل أنت بخير؟ نعم.", ["هل أنت بخير؟", "نعم."]),
        ("यह है। ठीक है॥ हाँ", ["यह है।", "ठीक है॥", "हाँ"]),
        ("שלום עולם. מה שלומך?", ["שלום עולם.", "מה שלומך?"]),
    ],
)
def test_stops_of_other_scripts(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


def test_lower_case_text_splits_before_small_letters() -> None:
    assert pieces("the cat sat. the dog, e.g. rex, ran! ok") == ["the cat sat.", "the dog, e.g. rex, ran!", "ok"]
    assert pieces("The cat approved. ltd. firms, too. said so.") == ["The cat approved. ltd. firms, too. said so."]


@pytest.mark.parametrize("text", ["", " \n\t\u3000", "\n\n\n", "\u2029"])
def test_whitespace_has_no_sentences(text: str) -> None:
    assert split_sentences(text) == []


@given(
    st.text(st.characters(codec=None), max_size=80)
    | st.lists(st.sampled_from([*"aAIi1. .!?…。\n\r\"')(-—", "Mr.", "U.S. ", "Inc. ", "\n\n", "\ud800", "no. "])).map(
        "".join
    )
)
@example("\x1c.\x85A")
def test_spans_cover_all_but_whitespace(text: str) -> None:
    end = 0
    for span in split_sentences(text):
        assert span.start < span.end
        assert text[span.start : span.end].strip() == text[span.start : span.end]
        assert not text[end : span.start].strip()
        end = span.end
    assert not text[end:].strip()
    assert split_sentences(text) == split_sentences(text)


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        ".",
        ". ",
        ".'",
        "'",
        " ",
        "\n",
        "\n ",
        "\r",
        "A. ",
        "1. ",
        "。",
        "あ。",
        "Mr. A",
        "a! B",
        "_",
        ".\ud800",
        "U.S. ",
    ],
)
def test_time_is_linear_in_the_text(piece: str) -> None:
    text = "x." + piece * (250_000 // len(piece)) + "a"
    start = time.process_time()
    split_sentences(text)
    assert time.process_time() - start < 1.5  # about 0.2; a quadratic algorithm takes minutes
