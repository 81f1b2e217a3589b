"""Rows of words: each word has one, in order of appearance; long tokens are not stored."""

from __future__ import annotations

import numpy as np

from elmo.embed.run.word_rows import FIRST_ROW, WordRows
from elmo.text.indexer import ByteIndexer


def number(rows: WordRows, sentences: list[list[str]]) -> tuple[list[int], np.ndarray]:
    numbers, new_ids = rows.number(sentences, np.array([len(s) for s in sentences]))
    return numbers.tolist(), new_ids


def test_words_are_numbered_once_and_encoded_once() -> None:
    indexer = ByteIndexer()
    rows = WordRows(indexer)
    first, new_ids = number(rows, [["the", "cat", "the"], [], ["漢字"]])
    assert first == [FIRST_ROW, FIRST_ROW + 1, FIRST_ROW, FIRST_ROW + 2]
    assert (new_ids == np.stack([indexer.row(w) for w in ("the", "cat", "漢字")])).all()
    second, new_ids = number(rows, [["cat", "dog", "the"]])
    assert second == [FIRST_ROW + 1, FIRST_ROW + 3, FIRST_ROW]
    assert (new_ids == indexer.row("dog")).all()
    assert len(rows) == 4
    rows.clear()
    assert number(rows, [["dog"]])[0] == [FIRST_ROW]


def test_tokens_that_are_cut_to_the_same_ids_are_one_word() -> None:
    rows = WordRows(ByteIndexer())
    numbers, new_ids = number(rows, [["x" * 1_000_000, "x" * 100, "y" * 70, "x" * 65]])
    assert numbers == [FIRST_ROW, FIRST_ROW, FIRST_ROW + 1, FIRST_ROW]
    assert new_ids.shape == (2, 50)


def test_sentences_without_tokens_have_no_rows() -> None:
    numbers, new_ids = number(WordRows(ByteIndexer()), [[], []])
    assert numbers == []
    assert new_ids.shape == (0, 50)
