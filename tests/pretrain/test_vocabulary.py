"""Counting words, building a vocabulary from the counts, and judging one made elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ConfigError, DataError
from elmo.pretrain.data.corpus import Reading
from elmo.pretrain.data.vocabulary import (
    WordCounts,
    build_vocabulary,
    count_words,
    order_score,
    read_vocabulary,
    require_sorted,
)
from elmo.text.vocab import Vocabulary

TRAIN = Path(__file__).resolve().parent.parent / "fixtures" / "bilm-tf" / "train"
SPECIALS = ["<S>", "</S>", "<UNK>"]


def add(counts: WordCounts, words: list[str]) -> np.ndarray:
    found = Counter(words)
    return counts.add(list(found), np.array(list(found.values()), dtype=np.int64))


def test_words_are_sorted_by_count_then_by_code_points(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("b a a c Ā\nb z a\n", encoding="utf-8")
    counts = count_words([path])
    assert counts.count("a") == 3
    assert build_vocabulary(counts).words == [*SPECIALS, "a", "b", "c", "z", "Ā"]
    assert build_vocabulary(counts, min_count=2).words == [*SPECIALS, "a", "b"]
    assert build_vocabulary(counts, max_size=4).words == [*SPECIALS, "a"]
    with pytest.raises(ConfigError, match="too small"):
        build_vocabulary(counts, max_size=3)


def test_counting_agrees_with_a_counter_on_real_text():
    expected = Counter((TRAIN / "data.txt").read_text(encoding="utf-8").split())
    counts = count_words([TRAIN / "data.txt"])
    assert {word: counts.count(word) for word in expected} == expected
    built = build_vocabulary(counts, min_count=2)
    # the reference's list: the same words, and no word before a more frequent one
    published = read_vocabulary(TRAIN / "vocab.txt")
    falling = [expected[word] for word in published.words[3:]]
    assert falling == sorted(falling, reverse=True)
    assert set(published.words) <= set(built.words)


def test_raw_text_is_tokenised_before_counting(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("The cat. The dog.\n", encoding="utf-8")
    counts = count_words([path], Reading(tokenize="default"))
    assert [counts.count(word) for word in ("The", "cat", "cat.", ".")] == [2, 1, 0, 2]


@given(st.lists(st.lists(st.sampled_from("abcdefghij"), max_size=20), max_size=8))
def test_numbers_of_words_never_change(parts):
    counts = WordCounts(SPECIALS)
    numbers: dict[str, int] = dict(zip(SPECIALS, range(3), strict=True))
    for part in parts:
        for word, number in zip(Counter(part), add(counts, part), strict=True):
            assert numbers.setdefault(word, int(number)) == number
    total = Counter(word for part in parts for word in part)
    assert {word: counts.count(word) for word in total} == total
    words, found, train, heldout = counts.table()
    assert dict(zip(words, found.tolist(), strict=True)) == numbers
    assert train.tolist() == sorted(train.tolist(), reverse=True)
    assert not heldout.any()


def test_too_many_words_forget_the_rarest_and_keep_the_given():
    counts = WordCounts(["<S>", "kept"], max_types=50)
    add(counts, ["often"] * 9 + [f"w{i}" for i in range(200)])
    assert counts.num_evicted == counts.num_evicted_tokens == 200
    assert len(counts) == 3
    assert counts.count("often") == 9
    assert counts.count("w7") == 0
    new = int(add(counts, ["w7"])[0])
    assert new == counts.num_ids - 1 == 203, "a word that returns gets a new number"
    assert int(add(counts, ["kept"])[0]) == 1


def test_order_score_tells_sorted_from_random_and_reversed():
    words = [*SPECIALS, *(f"w{i}" for i in range(1000))]
    counts = np.concatenate([[0, 0, 0], 100_000 // np.arange(1, 1001)])  # Zipf's law
    vocab = Vocabulary(words)
    assert order_score(vocab, counts) == pytest.approx(1)
    assert order_score(vocab, np.concatenate([counts[:3], counts[:2:-1]])) < 0
    shuffled = [
        order_score(vocab, np.concatenate([counts[:3], np.random.default_rng(seed).permutation(counts[3:])]))
        for seed in range(50)
    ]
    assert abs(np.mean(shuffled)) < 0.1
    # another domain: every word's frequency off by a factor of up to e in either direction
    noisy = counts * np.exp(np.random.default_rng(0).uniform(-1, 1, len(counts)))
    assert order_score(vocab, noisy) > 0.9
    assert order_score(vocab, np.zeros(len(vocab))) == 1.0


def test_an_unsorted_vocabulary_is_refused_for_the_sampled_softmax():
    require_sorted(0.9, "vocab.txt")
    with pytest.raises(ConfigError, match=r"vocab\.txt is not sorted by falling frequency"):
        require_sorted(0.1, "vocab.txt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<S>\n</S>\nthe\na\n", "<UNK> missing"),
        ("<S>\n</S>\n<UNK>\nthe\nthe\n", "lines 4 and 5"),
        ("<S>\n</S>\n<UNK>\nthe\n\na\n", ":5: a blank line"),
        ("<S>\n</S>\n<UNK>\nthe\nof 12\n", ":5: 'of 12' contains a space"),
        ("<S>\n</S>\n<UNK>\n", "only 3 lines"),
        ("", "missing"),
    ],
)
def test_a_bad_vocabulary_is_named(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_vocabulary(path)


def test_windows_line_ends_and_two_million_lines_are_fine(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join([*SPECIALS, *map(str, range(2_000_000))]).encode())
    start = time.monotonic()
    vocab = read_vocabulary(path)
    assert time.monotonic() - start < 30
    assert len(vocab) == 2_000_003
    assert vocab.id("1999999") == 2_000_002
