"""The log-uniform sampler compared with its formula and with drawing one word at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from elmo.pretrain.train.sampler import draw, expected_count


def probabilities(vocab_size: int) -> np.ndarray:
    """P(k) = ln((k+2)/(k+1)) / ln(V+1)."""
    k = np.arange(vocab_size)
    return np.log((k + 2) / (k + 1)) / math.log(vocab_size + 1)


def test_first_draws_follow_the_formula() -> None:
    vocab_size, num_draws = 50, 20_000
    firsts = [int(draw(vocab_size, 1, seed).ids[0]) for seed in range(num_draws)]
    counts, expected = np.bincount(firsts, minlength=vocab_size), num_draws * probabilities(vocab_size)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 49 + 5 * math.sqrt(2 * 49)  # 49 degrees of freedom, five standard deviations


def test_frequency_of_a_word_in_samples_is_its_expected_count() -> None:
    vocab_size, num_samples, repeats = 30, 8, 4000
    seen, expected = np.zeros(vocab_size), np.zeros(vocab_size)
    for seed in range(repeats):
        sample = draw(vocab_size, num_samples, seed)
        seen[sample.ids.numpy()] += 1
        expected += expected_count(torch.arange(vocab_size), sample.num_tries, vocab_size).numpy()
    # the formula assumes a fixed number of draws, which is only approximately true for sampling without repetition
    assert np.abs(seen - expected).max() / repeats < 0.03
    assert seen.sum() == num_samples * repeats


@pytest.mark.parametrize(("vocab_size", "num_samples"), [(40, 1), (40, 16), (40, 39), (40, 40), (5000, 300)])
def test_sample_equals_drawing_one_word_at_a_time(vocab_size: int, num_samples: int) -> None:
    """The same uniform numbers are used one at a time; words that were drawn before are skipped."""
    for seed in range(5):
        sample = draw(vocab_size, num_samples, seed)
        words: list[int] = []
        num_tries, size = 0, 4 * num_samples
        while len(words) < num_samples:  # after too few draws the sampler starts over with four times as many
            generator = torch.Generator().manual_seed(seed)
            words, num_tries = [], 0
            for number in torch.rand(size, generator=generator, dtype=torch.float64).tolist():
                num_tries += 1
                word = min(int(math.exp(number * math.log(vocab_size + 1))) - 1, vocab_size - 1)
                if word not in words:
                    words.append(word)
                if len(words) == num_samples:
                    break
            size *= 4
        assert sample.ids.tolist() == words
        assert int(sample.num_tries) == num_tries


def test_sampled_words_are_distinct_and_in_the_vocabulary() -> None:
    for seed in range(50):
        ids = draw(100, 60, seed).ids
        assert len(set(ids.tolist())) == 60
        assert int(ids.min()) >= 0
        assert int(ids.max()) < 100


def test_sample_is_a_function_of_the_seed() -> None:
    assert draw(1000, 50, 3).ids.tolist() == draw(1000, 50, 3).ids.tolist()
    assert draw(1000, 50, 3).ids.tolist() != draw(1000, 50, 4).ids.tolist()


@pytest.mark.parametrize("num_tries", [1, 16, 9000])
def test_expected_counts_follow_the_formula(num_tries: int) -> None:
    vocab_size = 793_471
    ids = torch.tensor([0, 1, 2, 100, 10_000, vocab_size - 1])
    p = probabilities(vocab_size)[ids.numpy()]
    expected = -np.expm1(num_tries * np.log1p(-p))
    counts = expected_count(ids, torch.tensor(num_tries), vocab_size).numpy()
    np.testing.assert_allclose(counts, expected, rtol=1e-6)
    if num_tries == 1:
        np.testing.assert_allclose(counts, p, rtol=1e-6)
