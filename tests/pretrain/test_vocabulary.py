"""Counting words, building a vocabulary from the counts, and checking a given vocabulary."""

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
    counter = Counter(words)
    return counts.add(list(counter), np.array(list(counter.values()), dtype=np.int64))


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
    # the list of the reference implementation has the same words, and no word before a more frequent one
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
def test_ids_of_words_never_change(jobs):
    counts = WordCounts(SPECIALS)
    ids: dict[str, int] = dict(zip(SPECIALS, range(3), strict=True))
    for job in jobs:
        for word, word_id in zip(Counter(job), add(counts, job), strict=True):
            assert ids.setdefault(word, int(word_id)) == word_id
    total = Counter(word for job in jobs for word in job)
    assert {word: counts.count(word) for word in total} == total
    words, word_ids, train, heldout = counts.table()
    assert dict(zip(words, word_ids.tolist(), strict=True)) == ids
    assert train.tolist() == sorted(train.tolist(), reverse=True)
    assert not heldout.any()


def test_too_many_words_evict_the_rarest_but_no_reserved_ones():
    counts = WordCounts(["<S>", "reserved"], max_types=50)
    add(counts, ["often"] * 9 + [f"w{i}" for i in range(200)])
    assert counts.num_evicted == counts.num_evicted_tokens == 200
    assert len(counts) == 3
    assert counts.count("often") == 9
    assert counts.count("w7") == 0
    new_id = int(add(counts, ["w7"])[0])
    assert new_id == counts.num_ids - 1 == 203, "an evicted word that occurs again gets a new id"
    assert int(add(counts, ["reserved"])[0]) == 1


def test_order_score_of_sorted_random_and_reversed_vocabularies():
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
    # another domain: the frequency of every word differs by a factor of up to e in either direction
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
def test_the_error_of_a_bad_vocabulary_says_what_is_wrong(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_vocabulary(path)


def test_windows_line_ends_and_two_million_lines_are_read(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join([*SPECIALS, *map(str, range(2_000_000))]).encode())
    start = time.process_time()
    vocab = read_vocabulary(path)
    assert time.process_time() - start < 30
    assert len(vocab) == 2_000_003
    assert vocab.id("1999999") == 2_000_002
