"""The language model against the oracle: scores, perplexity, substitutes, bounded memory."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import oracle
import pytest
import torch
from compiled_kernels import needs_kernels
from golden import SENTENCES, golden_embedder, random_bilm

from elmo.embed.embedder import Embedder
from elmo.embed.lm import LanguageModel
from elmo.errors import ConfigError, DataError, WeightsError
from elmo.model.bilm import BiLM
from elmo.model.config import HeadConfig
from elmo.model.head import AdaptiveHead, Head, SoftmaxHead
from elmo.text.indexer import ByteIndexer
from elmo.text.vocab import Vocabulary

VOCAB = ["<S>", "</S>", "<UNK>", "the", "bank", "of", "river", "was", ".", "one", "steep"]


def model_with_softmax(seed: int, *, bidirectional: bool = True):
    """A random biLM with a random softmax over VOCAB, as an embedder and as arrays for the oracle."""
    options, weights, plain = random_bilm(seed, char_input=True, bidirectional=bidirectional)
    model = BiLM(dataclasses.replace(plain.config, head=HeadConfig(vocab_size=len(VOCAB))))
    model.load_state_dict(plain.state_dict(), strict=False)
    rng = np.random.default_rng(seed)
    W = rng.normal(size=tuple(model.head.weight.shape)).astype(np.float32)
    b = rng.normal(size=len(VOCAB)).astype(np.float32)
    model.head.weight.data, model.head.bias.data = torch.from_numpy(W), torch.from_numpy(b)
    indexer = ByteIndexer(plain.config.chars.max_chars)
    return options, weights, W, b, Embedder(model, indexer, vocab=Vocabulary(VOCAB))


@pytest.mark.parametrize("seed", range(4))
def test_scores_agree_with_the_oracle(seed: int) -> None:
    options, weights, W, b, embedder = model_with_softmax(seed)
    for scores, tokens in zip(LanguageModel(embedder).scores(SENTENCES), SENTENCES, strict=True):
        forward, backward, _ = oracle.lm_log_probs(options, weights, tokens, VOCAB, W, b)
        np.testing.assert_allclose(scores.forward, forward, atol=1e-4)
        np.testing.assert_allclose(scores.backward, backward, atol=1e-4)
        assert scores.tokens == tokens
        assert scores.log_prob == pytest.approx((forward.sum() + backward.sum()) / 2, abs=1e-3)


def test_unknown_words_are_named_because_they_have_the_probability_of_all_unknown_words() -> None:
    lm = LanguageModel(model_with_softmax(0)[-1])
    known, unknown = lm.scores([["the", "bank"], ["the", "bnak", "<UNK>"]])
    assert (known.unknown, unknown.unknown) == ([False, False], [False, True, False])
    assert "unknown" not in repr(known)
    assert repr(unknown).endswith(", unknown=1)")
    assert unknown.forward[1] == lm.scores([["the", "qwrtz"]])[0].forward[1]
    assert lm.perplexity([["the", "bnak"], ["qwrtz"]]).num_unknown == 2


@needs_kernels
def test_scores_are_the_same_bits_alone_and_with_other_sentences() -> None:
    lm = LanguageModel(model_with_softmax(0)[-1])
    for together, tokens in zip(lm.scores(SENTENCES), SENTENCES, strict=True):
        (alone,) = lm.scores([tokens])
        assert np.array_equal(alone.forward, together.forward)
        assert np.array_equal(alone.backward, together.backward)


def test_perplexity_follows_its_definition() -> None:
    options, weights, W, b, embedder = model_with_softmax(1)
    perplexity = LanguageModel(embedder).perplexity([*SENTENCES, ""])
    expected = [oracle.lm_log_probs(options, weights, tokens, VOCAB, W, b)[:2] for tokens in SENTENCES]
    forward = -np.concatenate([f for f, _ in expected]).mean()
    backward = -np.concatenate([f for _, f in expected]).mean()
    assert perplexity.forward == pytest.approx(math.exp(forward), rel=1e-4)
    assert perplexity.backward == pytest.approx(math.exp(backward), rel=1e-4)
    assert perplexity.mean == pytest.approx(math.sqrt(perplexity.forward * perplexity.backward), rel=1e-6)
    assert perplexity.num_words == sum(map(len, SENTENCES))
    assert perplexity.num_predictions == perplexity.num_words + len(SENTENCES)
    assert perplexity.num_unknown == sum(w not in VOCAB for s in SENTENCES for w in s)
    assert "state reset" in perplexity.definition


def test_text_without_words_has_no_perplexity() -> None:
    """It was 1, the best possible value, and the log-probability of an empty sentence 0."""
    lm = LanguageModel(model_with_softmax(1)[-1])
    for texts in ([], [""], [[], ""]):
        with pytest.raises(DataError, match="text without words"):
            lm.perplexity(texts)
    empty, filled = lm.scores(["", "the bank"])
    assert math.isnan(empty.log_prob)
    assert math.isnan(empty.perplexity)
    assert not empty.log_prob > filled.log_prob
    assert len(empty.forward) == len(empty.backward) == 0


def expected_log_probs(seed: int, tokens: list[str], position: int) -> np.ndarray:
    """The sum of both directions' log-probabilities of every word at a position, (V,), by the oracle."""
    options, weights, W, b, _ = model_with_softmax(seed)
    layers, _ = oracle.run(options, weights, [tokens])
    P = W.shape[1]
    total = np.zeros(len(VOCAB))
    for state in (layers[0][-1, position, :P], layers[0][-1, position + 2, P:]):  # before and after the word
        logits = W @ state + b
        total += logits - np.log(np.exp(logits).sum())
    return total


@pytest.mark.parametrize("seed", range(4))
def test_substitutes_count_the_frequency_of_a_word_once(seed: int) -> None:
    *_, embedder = model_with_softmax(seed)
    tokens = SENTENCES[0]
    (substitutes,) = LanguageModel(embedder).substitutes(tokens, 1, k=5)
    log_probs = expected_log_probs(seed, tokens, 1)
    log_priors = np.log(1 / np.arange(1, 12) / sum(1 / rank for rank in range(1, 12)))  # Zipf's law
    best = [i for i in np.argsort(log_priors - log_probs) if i > 2][:5]
    assert [s.word for s in substitutes] == [VOCAB[i] for i in best]
    np.testing.assert_allclose([s.log_prob for s in substitutes], log_probs[best], atol=1e-4)
    np.testing.assert_allclose([s.score for s in substitutes], (log_probs - log_priors)[best], atol=1e-4)
    assert len(LanguageModel(embedder).substitutes(tokens, k=2)) == len(tokens)


def test_substitutes_use_word_counts_that_are_given() -> None:
    *_, embedder = model_with_softmax(2)
    tokens, counts = SENTENCES[0], np.array([5, 5, 5, 0, 1000, 3, 3, 3, 3, 3, 3])
    (substitutes,) = LanguageModel(embedder, word_counts=counts).substitutes(tokens, 1, k=8)
    log_priors = np.log((counts + 1) / (counts + 1).sum())  # a word that was not counted has a small probability
    scores = expected_log_probs(2, tokens, 1) - log_priors
    assert [s.word for s in substitutes] == [VOCAB[i] for i in np.argsort(-scores) if i > 2]
    for wrong in ([1.0, 2.0], [*counts[:10], -1], [*counts[:10], np.inf], [*counts[:10], np.nan]):
        with pytest.raises(ConfigError, match="expected 11 finite counts"):
            _ = LanguageModel(embedder, word_counts=wrong).unigram_log_probs


def test_substitutes_by_direction_read_a_string_as_a_sentence() -> None:
    *_, embedder = model_with_softmax(2)
    model = LanguageModel(embedder)
    of_text = model.substitutes_by_direction("the bank was steep .", k=3)
    assert of_text == model.substitutes_by_direction(["the", "bank", "was", "steep", "."], k=3)
    of_both = [[s.word for s in lists.both] for lists in of_text]
    assert of_both == [[s.word for s in words] for words in model.substitutes("the bank was steep .", k=3)]
    with pytest.raises(TypeError, match="expected a token"):
        model.substitutes_by_direction([["the", "bank"]], k=3)


@pytest.mark.parametrize("head", [SoftmaxHead(1000, 16), AdaptiveHead(1000, 16, (100, 400))])
def test_an_offset_changes_the_ranking_and_not_the_values(head: Head) -> None:
    hidden, offset = torch.randn(7, 16), torch.randn(1000)
    targets = torch.arange(1000)
    with torch.no_grad():
        rows = [head.log_probs(state.expand(1000, -1), targets) for state in hidden]
        values, ids = head.best([hidden, hidden], 10, block=37, offset=offset)
    expected = 2 * torch.stack(rows)  # (7, 1000)
    expected_ids = (expected + offset).topk(10).indices
    assert torch.equal(ids, expected_ids)
    torch.testing.assert_close(values, expected.gather(1, expected_ids), atol=1e-4, rtol=0)


def test_vocabulary_blocks_do_not_change_the_result() -> None:
    head = SoftmaxHead(1000, 16)
    hidden = torch.randn(7, 16)
    with torch.no_grad():
        scores = hidden @ head.weight.t() + head.bias
        expected = torch.log_softmax(scores, dim=-1)
        normalizers = head.log_normalizer(hidden, block=37)
        values, ids = head.best([hidden, hidden], 10, block=37)
    torch.testing.assert_close(normalizers, scores.logsumexp(dim=-1), atol=1e-5, rtol=0)
    expected_values, expected_ids = (2 * expected).topk(10)
    torch.testing.assert_close(values, expected_values, atol=1e-4, rtol=0)
    assert torch.equal(ids, expected_ids)


def test_a_model_without_a_softmax_is_refused() -> None:
    with pytest.raises(WeightsError, match="no softmax"):
        LanguageModel(golden_embedder("allennlp"))


def test_a_vocabulary_of_another_size_is_refused() -> None:
    *_, embedder = model_with_softmax(0)
    embedder.vocab = Vocabulary(VOCAB[:-1])
    with pytest.raises(WeightsError, match="11 words and the vocabulary has 10"):
        LanguageModel(embedder)


def test_a_position_outside_the_sentence_is_refused() -> None:
    *_, embedder = model_with_softmax(0)
    number = np.int64(1)  # of numpy
    assert len(LanguageModel(embedder).substitutes("the bank .", number, k=np.int64(2))[0]) == 2
    with pytest.raises(ConfigError, match="position is 9"):
        LanguageModel(embedder).substitutes("the bank .", 9)
    for position in (True, 1.0):
        with pytest.raises(ConfigError, match=f"position is {position}"):
            LanguageModel(embedder).substitutes("the bank .", position)


def test_carried_state_continues_from_sentence_to_sentence() -> None:
    options, weights, W, b, embedder = model_with_softmax(3)
    embedder.state = "carry"
    sentences = [SENTENCES[0], SENTENCES[2], SENTENCES[3]]
    layers, state = [], None
    for tokens in sentences:  # one row of running text
        rows, state = oracle.run(options, weights, [tokens], state)
        layers.append(rows[0])
    P = W.shape[1]
    for scores, tokens, expected in zip(LanguageModel(embedder).scores(sentences), sentences, layers, strict=True):
        logits = expected[-1, : len(tokens) + 1, :P] @ W.T + b
        targets = [VOCAB.index(t) if t in VOCAB else 2 for t in tokens] + [1]
        log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(scores.forward, log_probs[np.arange(len(targets)), targets], atol=1e-4)


def test_model_with_one_direction_has_forward_scores_only() -> None:
    """It was refused before."""
    options, weights, W, b, embedder = model_with_softmax(1, bidirectional=False)
    lm = LanguageModel(embedder)
    total = 0.0
    for scores, tokens in zip(lm.scores(SENTENCES), SENTENCES, strict=True):
        forward, _, _ = oracle.lm_log_probs(options, weights, tokens, VOCAB, W, b)
        np.testing.assert_allclose(scores.forward, forward, atol=1e-4)
        assert scores.backward is None
        assert scores.log_prob == pytest.approx(forward.sum(), abs=1e-3)
        assert scores.perplexity == pytest.approx(math.exp(-forward.mean()), rel=1e-4)
        total -= forward.sum()
    perplexity = lm.perplexity(SENTENCES)
    assert perplexity.backward is None
    assert (
        perplexity.forward == perplexity.mean == pytest.approx(math.exp(total / perplexity.num_predictions), rel=1e-4)
    )
    assert "forward direction only" in perplexity.definition
    assert [len(words) for words in lm.substitutes(SENTENCES[0], k=2)] == [2] * len(SENTENCES[0])


def test_autocast_of_the_caller_changes_no_score():
    embedder = model_with_softmax(seed=3)[-1]
    expected = embedder.perplexity(SENTENCES).mean, embedder.substitutes(SENTENCES[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert (embedder.perplexity(SENTENCES).mean, embedder.substitutes(SENTENCES[0])) == expected
