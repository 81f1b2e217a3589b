"""Input normalisation: every accepted kind of input, and errors that name the index of a wrong item."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from golden import golden_embedder
from hypothesis import given
from hypothesis import strategies as st

from elmo.compat.allennlp import batch_to_ids
from elmo.errors import ConfigError, DataError
from elmo.text.indexer import ByteIndexer, LexiconIndexer, WordIndexer
from elmo.text.inputs import normalize_input, tokenization_warning
from elmo.text.tokenize import tokenizer
from elmo.text.vocab import Vocabulary

default = tokenizer("default")
TWO = [["It", "'s", "late", "."], ["Go", "!"]]
RAW = ["It's late.", "Go!"]


def test_a_string_is_one_sentence() -> None:
    result = normalize_input("It's late. Go!", default)
    assert result.single
    assert result.sentences == [["It", "'s", "late", ".", "Go", "!"]]
    assert result.offsets == [[(0, 2), (2, 4), (5, 9), (9, 10), (11, 13), (13, 14)]]


@pytest.mark.parametrize(
    "texts",
    [
        RAW,
        tuple(RAW),
        iter(RAW),
        (text for text in RAW),
        dict.fromkeys(RAW).keys(),
        np.array(RAW),
        np.array(RAW, dtype=object),
    ],
    ids=["list", "tuple", "iterator", "generator", "keys", "numpy str", "numpy object"],
)
def test_any_iterable_of_strings_is_sentences(texts: Any) -> None:
    result = normalize_input(texts, default)
    assert result.sentences == TWO
    assert all(type(token) is str for tokens in result.sentences for token in tokens)
    assert not result.single


def test_a_pandas_series_is_sentences() -> None:
    pandas = pytest.importorskip("pandas")
    assert normalize_input(pandas.Series(RAW, index=[7, 3]), default).sentences == TWO
    with pytest.raises(TypeError, match=r"texts\[1\] is (a float|None)"):
        normalize_input(pandas.Series(["a", None]), default)
    with pytest.raises(TypeError, match="DataFrame"):
        normalize_input(pandas.DataFrame({"text": RAW}), default)


@pytest.mark.parametrize("texts", [TWO, tuple(map(tuple, TWO)), [np.array(tokens) for tokens in TWO], iter(TWO)])
def test_token_lists_are_not_changed(texts: Any) -> None:
    result = normalize_input(texts, default)
    assert result.sentences == TWO
    assert result.offsets == [None, None]
    assert all(type(token) is str for tokens in result.sentences for token in tokens)


def test_a_two_dimensional_array_is_rows_of_tokens() -> None:
    assert normalize_input(np.array([["a", "b."], ["c", "d"]]), default).sentences == [["a", "b."], ["c", "d"]]


def test_strings_and_token_lists_may_be_mixed() -> None:
    result = normalize_input(["Go!", ["It's", "late."], ""], default)
    assert result.sentences == [["Go", "!"], ["It's", "late."], []]
    assert result.offsets == [[(0, 2), (2, 3)], None, []]


@pytest.mark.parametrize(
    ("texts", "sentences", "single"),
    [
        ([], [], False),
        ("", [[]], True),
        (" \n\u3000", [[]], True),
        ([""], [[]], False),
        ([[]], [[]], False),
        (["", "a", [], " ", ["b"]], [[], ["a"], [], [], ["b"]], False),
    ],
)
def test_empty_input_keeps_its_position(texts: Any, sentences: list[list[str]], single: bool) -> None:
    result = normalize_input(texts, default)
    assert (result.sentences, result.single) == (sentences, single)
    assert len(result.offsets) == len(sentences)


def test_odd_tokens_are_text() -> None:
    tokens = ["<S>", "</S>", "<UNK>", "<bos>", "", "two words", "tab\there", "\x00", "\u2028", "x" * 1_000_000]
    assert normalize_input([tokens], default).sentences == [tokens]


@pytest.mark.parametrize(
    "texts", [5, 2.5, None, b"bytes", bytearray(b"x"), {"a": 1}, {"a", "b"}, np.array("a"), object()]
)
def test_input_that_is_not_a_list_is_refused(texts: Any) -> None:
    with pytest.raises(TypeError, match=r"texts is .*expected a string"):
        normalize_input(texts, default)


@pytest.mark.parametrize(
    "item", [5, 2.5, None, b"bytes", {"a": 1}, {"a"}, np.float32(1), np.array([["a"]]), float("nan")]
)
def test_error_for_a_wrong_item_names_its_index(item: Any) -> None:
    with pytest.raises(TypeError, match=r"texts\[2\] is .*expected a string or a list of tokens"):
        normalize_input(["a", ["b"], item], default)


@pytest.mark.parametrize("token", [5, None, b"bytes", ["nested"], ("nested",), {"a": 1}, np.array(["a"])])
def test_error_for_a_wrong_token_names_its_index(token: Any) -> None:
    with pytest.raises(TypeError, match=r"texts\[1\]\[2\] is .*expected a token"):
        normalize_input(["a", ["b", "c", token]], default)


def test_an_array_of_bytes_is_refused() -> None:
    with pytest.raises(TypeError, match=r"texts\[0\]"):
        normalize_input(np.array([b"a", b"b"]), default)


def test_lone_surrogates_give_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        result = normalize_input(["a \ud800b", ["\udcff", "ok"], "fine 😀"], default)
    assert result.sentences == [["a", "\ufffd", "b"], ["\ufffd", "ok"], ["fine", "😀"]]
    assert len(caplog.records) == 1
    assert caplog.records[0].args is not None
    assert caplog.records[0].args[0] == 2  # type: ignore[index, unused-ignore]  # args is a tuple here


def test_clean_text_gives_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    normalize_input(["naïve 😀 \ufffd", "a"], default)
    assert not caplog.records


@pytest.mark.parametrize("texts", ["a\ud800", ["ok", "a\ud800"], [["ok", "\udcff"]]])
def test_lone_surrogates_are_refused_when_strict(texts: Any) -> None:
    with pytest.raises(DataError, match="surrogate"):
        normalize_input(texts, default, errors="strict")


def test_unknown_errors_mode_is_refused() -> None:
    with pytest.raises(ConfigError):
        normalize_input("a", default, errors="ignore")  # type: ignore[arg-type]  # on purpose


@given(st.lists(st.text(st.characters(codec=None), max_size=20), max_size=5))
def test_offsets_are_positions_in_the_original_strings(texts: list[str]) -> None:
    result = normalize_input(texts, default)
    for text, tokens, offsets in zip(texts, result.sentences, result.offsets, strict=True):
        assert offsets is not None
        covered = [text[start:end] for start, end in offsets]
        assert ["".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in piece) for piece in covered] == tokens
        "".join(tokens).encode()  # valid Unicode


@pytest.mark.parametrize(
    "sentences",
    [
        [],
        [[]],
        [["Hello"]],
        TWO * 30,
        [["Mr.", "Smith", "lives", "in", "the", "U.S.", "."]] * 20,
        [["The", "show", "is", "at", "8", "p.m."]] * 20,
        [["see", "it", "."]],  # too short to be called lower-cased
        [["。", "今日は"]] * 40,
    ],
)
def test_tokenised_text_gives_no_warning(sentences: list[list[str]]) -> None:
    assert tokenization_warning(sentences) is None


@pytest.mark.parametrize(
    "sentences",
    [
        [["The", "cat", "sat."]],
        [["Well,", "I", "went", "home", "."]],
        [text.split() for text in ['He said, "Go," and left.', "She stayed."]] * 10,
        [["Yes", "!"]] * 10 + [["Why", "not?"]] * 10,
    ],
)
def test_text_split_at_spaces_gives_a_warning(sentences: list[list[str]]) -> None:
    assert "punctuation" in (tokenization_warning(sentences) or "")


def test_lower_cased_text_gives_a_warning() -> None:
    assert "capital" in (tokenization_warning([["the", "cat", "sat", "."]] * 30) or "")


def test_warning_checks_a_sample_only() -> None:
    class Counted(list[list[str]]):
        num_read = 0

        def __getitem__(self, index: Any) -> Any:
            items = super().__getitem__(index)
            Counted.num_read += len(items)
            return items

    tokenization_warning(Counted([["A", "b", "."]] * 100_000))
    assert Counted.num_read <= 400


@pytest.mark.parametrize("token", ["\ud800", "a\udcffb", "é\udfff"])
def test_lone_surrogates_are_replaced_in_every_way_to_embed(token: str) -> None:
    """`layers` replaced them by U+FFFD, `stream` dropped them, so the same sentence had two sets of vectors."""
    embedder = golden_embedder("allennlp")
    replaced = token.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    expected = embedder.layers([[replaced, "x"]])[0]
    np.testing.assert_array_equal(embedder.layers([[token, "x"]])[0], expected)
    np.testing.assert_array_equal(next(iter(embedder.stream([[token, "x"]], layers="all"))), expected)
    assert ByteIndexer().row(token).tolist() == ByteIndexer().row(replaced).tolist()
    assert batch_to_ids([[token]]).tolist() == batch_to_ids([[replaced]]).tolist()
    symbols = {s: n for n, s in enumerate(["<oov>", "<pad>", "<bos>", "<eos>", "<bow>", "<eow>", "\ufffd", replaced])}
    lexicon = LexiconIndexer(symbols, symbols)
    assert lexicon.row(token).tolist() == lexicon.row(replaced).tolist()
    words = WordIndexer(Vocabulary(["<S>", "</S>", "<UNK>", replaced]))
    assert words.row(token).tolist() == [4]
