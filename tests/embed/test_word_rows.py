"""Words by row: each once, in the order they come, and long ones without keeping them."""

from __future__ import annotations

import numpy as np

from elmo.embed.run.word_rows import FIRST_ROW, WordRows
from elmo.text.indexer import ByteIndexer


def number(rows: WordRows, sentences: list[list[str]]) -> tuple[list[int], np.ndarray]:
    found, fresh = rows.number(sentences, np.array([len(s) for s in sentences]))
    return found.tolist(), fresh


def test_words_are_numbered_once_and_encoded_once() -> None:
    indexer = ByteIndexer()
    rows = WordRows(indexer)
    first, fresh = number(rows, [["the", "cat", "the"], [], ["漢字"]])
    assert first == [FIRST_ROW, FIRST_ROW + 1, FIRST_ROW, FIRST_ROW + 2]
    assert (fresh == np.stack([indexer.row(w) for w in ("the", "cat", "漢字")])).all()
    again, fresh = number(rows, [["cat", "dog", "the"]])
    assert again == [FIRST_ROW + 1, FIRST_ROW + 3, FIRST_ROW]
    assert (fresh == indexer.row("dog")).all()
    assert len(rows) == 4
    rows.clear()
    assert number(rows, [["dog"]])[0] == [FIRST_ROW]


def test_tokens_cut_to_the_same_row_of_ids_are_one_word() -> None:
    rows = WordRows(ByteIndexer())
    found, fresh = number(rows, [["x" * 1_000_000, "x" * 100, "y" * 70, "x" * 65]])
    assert found == [FIRST_ROW, FIRST_ROW, FIRST_ROW + 1, FIRST_ROW]
    assert fresh.shape == (2, 50)


def test_nothing_is_numbered_where_nothing_is_given() -> None:
    found, fresh = number(WordRows(ByteIndexer()), [[], []])
    assert found == []
    assert fresh.shape == (0, 50)
