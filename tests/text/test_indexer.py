"""Indexers and batches: rows of bytes, words and lexicon characters, with boundaries; grouping by length."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from elmo.text.batch import make_batch, plan_batches, windows_of
from elmo.text.chars import boundary_row, encode_token
from elmo.text.indexer import ByteIndexer, LexiconIndexer, WordIndexer, sentence_rows, token_rows
from elmo.text.vocab import Vocabulary


def decode_row(row: np.ndarray) -> str:
    """The token that a row of ids encodes."""
    return bytes(i - 1 for i in row.tolist() if 0 < i <= 256).decode()


def test_published_rows() -> None:
    assert encode_token("The").tolist()[:6] == [259, 85, 105, 102, 260, 261]
    assert encode_token("Āt").tolist()[:6] == [259, 197, 129, 117, 260, 261]
    assert encode_token("").tolist()[:3] == [259, 260, 261]
    assert boundary_row(256).tolist()[:4] == [259, 257, 260, 261]
    assert boundary_row(257).tolist()[:4] == [259, 258, 260, 261]
    assert set(encode_token("The")[5:]) == {261}


@hypothesis.given(st.lists(st.text(max_size=60), max_size=8), st.booleans())
def test_many_tokens_give_the_same_rows_as_single_ones(tokens: list[str], specials: bool) -> None:
    tokens = [*tokens, "<S>", "", "x" * 300, "\ud800a"]
    for width in (5, 50):
        indexer = ByteIndexer(width, specials=specials)
        np.testing.assert_array_equal(token_rows(indexer, tokens), np.stack([indexer.row(t) for t in tokens]))
    assert token_rows(indexer, []).shape == (0, 50)
    words = WordIndexer(Vocabulary(["<S>", "</S>", "<UNK>", "x"]))
    assert token_rows(words, ["x", "y"]).tolist() == [words.row("x").tolist(), words.row("y").tolist()]
    assert token_rows(words, []).shape == (0, 1)


def test_width_five_as_in_the_tests_of_bilm_tf() -> None:
    # unshifted: 258,116,104,259,260 and 258,116,104,104,259 and 258,196,128,116,259
    assert (encode_token("th", 5) - 1).tolist() == [258, 116, 104, 259, 260]
    assert (encode_token("thhhhh", 5) - 1).tolist() == [258, 116, 104, 104, 259]
    assert (encode_token("Āt", 5) - 1).tolist() == [258, 196, 128, 116, 259]


def test_a_batch_as_in_the_tests_of_bilm_tf() -> None:
    batch = make_batch([["The", "first", "sentence"], ["Second", "."]], ByteIndexer())
    assert batch.ids.shape == (2, 5, 50)
    assert batch.mask.tolist() == [[True] * 5, [True] * 4 + [False]]
    assert not batch.ids[1, 4].any()
    assert batch.ids[0, 0].tolist() == boundary_row(256).tolist()
    assert batch.ids[1, 3].tolist() == boundary_row(257).tolist()


def test_word_ids_with_specials_in_odd_order() -> None:
    vocab = Vocabulary(["</S>", "<S>", "<UNK>", "The", ".", "first"])
    rows = sentence_rows(WordIndexer(vocab), ["The", "second", "."])
    assert rows[:, 0].tolist() == [2, 4, 3, 5, 1]


def test_special_tokens_are_boundaries_only_with_specials() -> None:
    assert ByteIndexer(specials=True).row("<S>").tolist() == boundary_row(256).tolist()
    assert decode_row(ByteIndexer().row("<S>")) == "<S>"
    assert ByteIndexer().row("<S>")[1] == ord("<") + 1


def test_lexicon_rows_have_swapped_word_marks() -> None:
    chars = {"<bos>": 0, "<eos>": 1, "<oov>": 2, "<pad>": 3, "<bow>": 4, "<eow>": 5, "a": 6, "b": 7}
    words = {"<oov>": 0, "<bos>": 1, "<eos>": 2, "<pad>": 3, "ab": 4, "aba": 5}
    indexer = LexiconIndexer(chars, words, max_chars=5)
    assert (indexer.row("ab") - 1).tolist() == [5, 6, 7, 4, 3, 4]
    assert (indexer.row("abax") - 1).tolist() == [5, 6, 7, 6, 4, 5]  # cut to "aba", which is a word
    assert (indexer.row("z") - 1).tolist() == [5, 2, 4, 3, 3, 0]
    assert (indexer.begin - 1).tolist() == [5, 0, 4, 3, 3, 1]
    assert LexiconIndexer(None, words, max_chars=None).row("ab").tolist() == [5]


@hypothesis.given(st.text(max_size=30))
def test_short_tokens_decode_back(token: str) -> None:
    if len(token.encode("utf-8", "surrogatepass")) <= 48 and not any("\ud800" <= c <= "\udfff" for c in token):
        assert decode_row(encode_token(token)) == token


@hypothesis.given(st.text())
def test_rows_are_always_well_formed(token: str) -> None:
    row = encode_token(token)
    assert row.shape == (50,)
    assert row.min() >= 1
    assert row.max() <= 261
    assert (row == 260).sum() == 1


@hypothesis.given(st.lists(st.integers(0, 60), max_size=80), st.integers(1, 200), st.integers(1, 20))
def test_every_sentence_is_in_one_batch_under_the_budget(lengths: list[int], tokens: int, rows: int) -> None:
    batches = plan_batches(lengths, max_tokens=tokens, max_rows=rows)
    numbers = sorted(int(i) for batch in batches for i in batch)
    assert numbers == [i for i, n in enumerate(lengths) if n > 0]
    for batch in batches:
        assert len(batch) <= rows
        assert len(batch) == 1 or (max(lengths[i] for i in batch) + 2) * len(batch) <= tokens


@hypothesis.given(
    st.lists(st.lists(st.just("w"), max_size=9), max_size=40), st.integers(1, 50), st.none() | st.integers(1, 5)
)
def test_windows_contain_all_sentences_in_order(sentences: list[list[str]], tokens: int, rows: int | None) -> None:
    windows = list(windows_of(sentences, tokens, rows))
    assert [s for window in windows for s in window] == sentences
    if rows:
        assert all(len(window) == rows for window in windows[:-1])


def test_vocabulary_order_and_unknown_words() -> None:
    vocab = Vocabulary(["<S>", "</S>", "<UNK>", "the", "."])
    assert vocab.ids(["the", "unknown", "."]).tolist() == [3, 2, 4]
    assert "the" in vocab
    assert len(vocab) == 5
    np.testing.assert_array_equal(vocab.ids([]), [])
    for words, message in ((["<S>", "</S>", "a"], "<UNK>"), (["<S>", "</S>", "<UNK>", "a", "a"], "lines 4 and 5")):
        with pytest.raises(Exception, match=message):
            Vocabulary(words)
