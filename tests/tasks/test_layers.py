"""Layers of the task models: equal to brute force, and independent of padding."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmo.tasks.elmo_input import CharCNN
from elmo.tasks.layers.attention import (
    attend,
    bi_attention,
    masked_log_softmax,
    masked_max,
    masked_mean,
    masked_min,
    masked_softmax,
)
from elmo.tasks.layers.crf import CRF
from elmo.tasks.layers.dropout import TimeDropout
from elmo.tasks.layers.encoder import BiRNN
from elmo.tasks.layers.gru import run_gru
from elmo.tasks.layers.packing import make_packing
from elmo.tasks.layers.viterbi import as_scores, bio_rules, viterbi
from elmo.tasks.sst.model import Maxout

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def random_crf(num_labels: int, seed: int, rules: tuple[Tensor, Tensor, Tensor] | None = None) -> CRF:
    torch.manual_seed(seed)
    crf = CRF(num_labels, rules)
    for weight in crf.parameters():
        torch.nn.init.normal_(weight)
    return crf


@torch.no_grad()
def path_scores(crf: CRF, scores: Tensor) -> dict[tuple[int, ...], float]:
    """Every label sequence for scores (T, K), with its score."""
    totals = {}
    for path in itertools.product(range(scores.shape[1]), repeat=len(scores)):
        total = float(crf.start[path[0]] + crf.end[path[-1]])
        total += sum(float(scores[t, label]) for t, label in enumerate(path))
        total += sum(float(crf.transitions[a, b]) for a, b in itertools.pairwise(path))
        totals[path] = total
    return totals


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(2, 4), st.integers(0, 10**6))
@settings(max_examples=20)
def test_crf_equals_the_sum_over_all_paths(lengths, num_labels, seed):
    crf = random_crf(num_labels, seed)
    scores = torch.randn(len(lengths), max(lengths), num_labels)
    labels = torch.randint(num_labels, scores.shape[:2])
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    likelihood = crf.log_likelihood(scores, labels, mask)
    best = crf.best(scores, mask)
    for row, length in enumerate(lengths):
        paths = path_scores(crf, scores[row, :length])
        total = torch.logsumexp(torch.tensor(list(paths.values())), 0)
        expected = paths[tuple(labels[row, :length].tolist())] - float(total)
        assert float(likelihood[row].detach()) == pytest.approx(expected, abs=1e-4)
        assert paths[tuple(best[row])] == pytest.approx(max(paths.values()), abs=1e-4)


@pytest.mark.parametrize("length", [1, 2, 9, 37])
def test_crf_with_pairwise_products_equals_step_by_step(length):
    crf = random_crf(5, 3)
    scores = torch.randn(1, length, 5)
    total = crf.start + scores[0, 0]  # (K,)
    for step in scores[0, 1:]:
        total = torch.logsumexp(total[:, None] + crf.transitions, dim=0) + step
    labels = torch.zeros(1, length, dtype=torch.long)
    path = scores[0, :, 0].sum() + (length - 1) * crf.transitions[0, 0] + crf.start[0] + crf.end[0]
    padded = torch.cat([scores, torch.randn(1, 3, 5)], dim=1)  # the values of padding are ignored
    mask = torch.arange(length + 3) < length
    likelihood = crf.log_likelihood(padded, torch.cat([labels, torch.ones(1, 3, dtype=torch.long)], dim=1), mask[None])
    torch.testing.assert_close(likelihood[0], path - torch.logsumexp(total + crf.end, dim=0), rtol=1e-4, atol=1e-4)


@given(st.integers(1, 4), st.integers(0, 10**6))
@settings(max_examples=15)
def test_best_path_under_rules_is_the_best_allowed_one(length, seed):
    rules = bio_rules(LABELS)
    crf = random_crf(len(LABELS), seed, rules)
    scores = torch.randn(1, length, len(LABELS)) * 3
    allowed = {
        path: score
        for path, score in path_scores(crf, scores[0]).items()
        if rules[1][path[0]] and all(rules[0][a, b] for a, b in itertools.pairwise(path))
    }
    best = crf.best(scores, torch.ones(1, length, dtype=torch.bool))[0]
    assert allowed[tuple(best)] == pytest.approx(max(allowed.values()), abs=1e-4)
    total = torch.logsumexp(torch.tensor(list(allowed.values())), 0)
    labels = torch.tensor([best])
    expected = allowed[tuple(best)] - float(total)
    likelihood = crf.log_likelihood(scores, labels, torch.ones(1, length, dtype=torch.bool))
    assert float(likelihood.detach()) == pytest.approx(expected, abs=2e-3)  # sums near -1e4 round to 1e-3 in float32


def test_bio_rules_by_hand():
    allowed, start, end = bio_rules(LABELS)
    number = LABELS.index
    assert allowed[number("B-PER"), number("I-PER")]
    assert allowed[number("I-PER"), number("I-PER")]
    assert not allowed[number("O"), number("I-PER")]
    assert not allowed[number("B-LOC"), number("I-PER")]
    assert allowed[number("I-LOC"), number("B-LOC")]
    assert start.tolist() == [True, True, False, True, False]
    assert end.all()


def test_viterbi_returns_the_score_and_handles_one_token_and_an_empty_row():
    scores = torch.tensor([[[1.0, 3.0], [0.0, 0.0]], [[5.0, 1.0], [0.0, 0.0]]])
    mask = torch.tensor([[True, False], [False, False]])
    zero = torch.zeros(2)
    rows, total = viterbi(scores, mask, torch.zeros(2, 2), zero, zero)
    assert rows == [[1], []]
    assert float(total[0]) == 3.0


def test_as_scores_is_far_below_other_scores_where_not_allowed():
    assert as_scores(torch.tensor([True, False])).tolist() == [0.0, -1e4]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5))
def test_packing_equals_torchs_packing_and_unpacking_inverts_it(lengths):
    vectors = torch.randn(len(lengths), 6, 3)
    packing = make_packing(lengths, 6)
    inside = torch.arange(6) < torch.tensor(lengths)[:, None]
    packed = packing.pack(vectors)
    torch.testing.assert_close(packing.unpack(packed.data, len(lengths), 6), vectors * inside[:, :, None])
    if min(lengths) > 0:  # torch cannot pack an empty row
        expected = pack_padded_sequence(vectors, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        assert torch.equal(packed.batch_sizes, expected.batch_sizes)
        by_torch = pad_packed_sequence(expected._replace(data=packed.data), batch_first=True, total_length=6)[0]
        torch.testing.assert_close(by_torch, vectors * inside[:, :, None])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_encoder_does_not_depend_on_padding(cell):
    torch.manual_seed(0)
    encoder = BiRNN(5, 4, 2, cell=cell).eval()
    short, long = torch.randn(1, 3, 5), torch.randn(1, 7, 5)
    padded = torch.full((3, 7, 5), 9.0)
    padded[0, :3], padded[1] = short, long
    mask = torch.arange(7) < torch.tensor([3, 7, 0])[:, None]
    encoded = encoder(padded, mask)
    assert encoded.shape == (3, 7, encoder.dim)
    torch.testing.assert_close(encoded[:1, :3], encoder(short, mask[:1, :3]))
    torch.testing.assert_close(encoded[1:2], encoder(long, mask[1:2]))
    assert not encoded[0, 3:].any()
    assert not encoded[2].any()
    assert torch.equal(encoder(padded, mask, make_packing([3, 7, 0], 7)), encoded)


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=8).filter(any),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(0, 10**6),
)
@settings(max_examples=40, deadline=None)
def test_gru_by_hand_equals_torchs_with_all_gradients(lengths, input_dim, hidden_dim, seed):
    torch.manual_seed(seed)
    layer = nn.GRU(input_dim, hidden_dim, batch_first=True, bidirectional=True).double()
    packed = make_packing(lengths, max(lengths)).pack(torch.randn(len(lengths), max(lengths), input_dim).double())
    tokens, batch_sizes = packed.data.requires_grad_(), packed.batch_sizes
    expected, result = layer(packed)[0].data, run_gru(layer, tokens, batch_sizes.tolist())
    factors = torch.randn_like(expected)
    gradients = [
        torch.autograd.grad((out * factors).sum(), [tokens, *layer.parameters()]) for out in (result, expected)
    ]
    for a, b in zip([result, *gradients[0]], [expected, *gradients[1]], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_char_cnn_does_not_depend_on_padding_and_accepts_one_letter_words():
    torch.manual_seed(0)
    cnn = CharCNN(4, 6, 3).eval()
    narrow = torch.tensor([[257, 98, 258]])
    wide = torch.nn.functional.pad(narrow, (0, 9))
    torch.testing.assert_close(cnn(narrow), cnn(wide))
    assert cnn(torch.zeros(1, 4, dtype=torch.long)).isfinite().all()  # padding


def test_masked_functions_ignore_masked_positions():
    vectors = torch.tensor([[[1.0, -5.0], [3.0, -1.0], [99.0, -99.0]]])
    mask = torch.tensor([[True, True, False]])
    none = torch.zeros(1, 3, dtype=torch.bool)
    assert masked_max(vectors, mask).tolist() == [[3.0, -1.0]]
    assert masked_min(vectors, mask).tolist() == [[1.0, -5.0]]
    assert masked_mean(vectors, mask).tolist() == [[2.0, -3.0]]
    assert masked_softmax(torch.tensor([[0.0, 0.0, 50.0]]), mask).tolist() == [[0.5, 0.5, 0.0]]
    assert masked_log_softmax(torch.zeros(1, 3), mask)[0, :2].exp().tolist() == pytest.approx([0.5, 0.5])
    for function in (masked_max, masked_min, masked_mean):
        assert not function(vectors, none).any()
    assert not masked_softmax(torch.zeros(1, 3), none).any()


def test_attention_is_a_mean_over_the_mask():
    values = torch.tensor([[[2.0], [4.0], [100.0]]])
    mask = torch.tensor([[True, True, False]])
    assert attend(torch.zeros(1, 2, 3), values, mask).flatten().tolist() == pytest.approx([3.0, 3.0])


def test_bi_attention_of_both_sides_by_hand():
    a, b = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[[1.0, 0.0]]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    of_a, of_b = bi_attention(a, b, mask, mask[:, :1])
    assert torch.equal(of_a, b.expand(1, 2, 2))  # b has only one position
    weights = torch.softmax(torch.tensor([1.0, 0.0]), 0)
    torch.testing.assert_close(of_b[0, 0], weights)


def test_time_dropout_is_the_same_at_every_step():
    torch.manual_seed(0)
    dropped = TimeDropout(0.5)(torch.ones(3, 5, 40))
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(dropped[0], dropped[1])
    assert torch.equal(TimeDropout(0.5).eval()(torch.ones(1, 2, 3)), torch.ones(1, 2, 3))


def test_maxout_takes_the_largest_piece():
    layer = Maxout(2, 1, 2).eval()
    with torch.no_grad():
        layer.project.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        layer.project.bias.zero_()
    assert layer(torch.tensor([[3.0, 1.0]])).item() == pytest.approx(1.0, abs=1e-4)  # (3, 1) normalised is (1, -1)
