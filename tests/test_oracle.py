"""The oracle against what the two reference implementations computed, its derivatives against finite differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import oracle
import oracle_train
import pytest
from oracle_train import Batch, Negatives

FIXTURES = Path(__file__).parents[1] / "elmo" / "golden"
GOLDEN = {"allennlp": "sentences.json", "bilm-tf": "lm_embeddings_sentences.json"}
VOCAB = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "on", "a", "mat", ".", "naïve"]  # as many as random_model's rows
SENTENCES = [["the", "naïve", "cat", "sat", "."], [], ["mat"], ["internationalization", "on", "日本", "<S>"]]


def golden_batches(name: str) -> list[tuple[list[list[str]], list[np.ndarray]]]:
    """Per batch: its 3 sentences and the expected top layers (n, 2P), [forward ; backward]."""
    folder = FIXTURES / name
    rows = json.loads((folder / GOLDEN[name]).read_text(encoding="utf-8"))
    batches = []
    for b in range(10):
        expected = []
        for k in range(len(rows)):
            with h5py.File(folder / f"lm_embeddings_{k}.hdf5", "r") as file:
                expected.append(np.concatenate(list(file[str(b)][...]), axis=1))
        batches.append(([row[b].split() for row in rows], expected))
    return batches


def difference(layers: list[np.ndarray], expected: list[np.ndarray]) -> float:
    return max(np.abs(ours[-1, 1:-1] - theirs).max() for ours, theirs in zip(layers, expected, strict=True))


# ---- the network ----


@pytest.mark.parametrize("name", GOLDEN)
def test_oracle_replays_golden_batches_with_carried_state(name: str) -> None:
    options, weights = oracle.load(FIXTURES / name / "options.json", FIXTURES / name / "lm_weights.hdf5")
    state = None
    for b, (sentences, expected) in enumerate(golden_batches(name)):
        carried, state = oracle.run(options, weights, sentences, state)
        assert difference(carried, expected) < 2e-6  # the expected vectors are float32
        fresh, _ = oracle.run(options, weights, sentences)
        assert (difference(fresh, expected) > 1e-3) == (b > 0)


def test_oracle_char_ids_match_known_vectors() -> None:
    ids = oracle.char_ids(["The", chr(256) + "t", "\ud800", "x" * 60, "</S>"], 50)
    assert ids.shape == (7, 50)
    assert ids[0].tolist() == [259, 257, 260] + [261] * 47
    assert ids[1].tolist() == [259, 85, 105, 102, 260] + [261] * 45
    assert ids[2].tolist() == [259, 197, 129, 117, 260] + [261] * 45
    assert ids[3].tolist() == [259, 260] + [261] * 48  # a lone surrogate has no bytes
    assert ids[4].tolist() == [259] + [ord("x") + 1] * 48 + [260]
    assert ids[5].tolist() == ids[6].tolist() == [259, 258, 260] + [261] * 47


def test_oracle_masked_token_is_the_network_of_the_bias() -> None:
    options, weights = oracle.random_model(
        np.random.default_rng(0), char_input=True, n_highway=0, cnn_projection=False, activation="tanh", max_chars=8
    )
    bias = np.concatenate([weights["CNN/b_cnn_0"], weights["CNN/b_cnn_1"]]).astype(np.float64)
    assert np.allclose(oracle.token_vectors(options, weights, np.zeros((1, 8), int))[0], np.tanh(bias), atol=1e-12)


@pytest.mark.parametrize("size", [(1024, 128, 1, 13_593_296), (2048, 256, 1, 28_027_728), (4096, 512, 2, 93_600_848)])
def test_oracle_weight_shapes_count_the_published_parameters(size: tuple[int, int, int, int]) -> None:
    dim, projection_dim, n_highway, expected = size
    filters = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
    options = {
        "lstm": {"dim": dim, "projection_dim": projection_dim, "n_layers": 2},
        "char_cnn": {"embedding": {"dim": 16}, "filters": filters, "n_highway": n_highway},
    }
    assert sum(int(np.prod(shape)) for shape in oracle.weight_shapes(options).values()) == expected


def test_oracle_weight_shapes_are_those_of_the_fixtures() -> None:
    for name in GOLDEN:
        options, weights = oracle.load(FIXTURES / name / "options.json", FIXTURES / name / "lm_weights.hdf5")
        assert oracle.weight_shapes(options) == {key: array.shape for key, array in weights.items()}


def test_random_models_survive_writing_and_bind_their_clips(tmp_path: Path) -> None:
    bound = {"cell_clip": 0, "proj_clip": 0}
    kinds = set()
    for seed in range(60):
        options, weights = oracle.random_model(np.random.default_rng(seed))
        lstm = options["lstm"]
        read_options, read_weights = oracle.load(*oracle.write(tmp_path, options, weights))
        assert read_options == options
        assert read_weights.keys() == weights.keys()
        assert all((read_weights[name] == weights[name]).all() for name in weights)
        layers, _ = oracle.run(options, weights, SENTENCES, vocab=VOCAB)
        for tokens, array in zip(SENTENCES, layers, strict=True):
            assert array.shape == (lstm["n_layers"] + 1, len(tokens) + 2, 2 * lstm["projection_dim"])
            assert np.isfinite(array).all()
        for clip in bound:
            free, _ = oracle.run({**options, "lstm": {**lstm, clip: None}}, weights, SENTENCES[:1], vocab=VOCAB)
            bound[clip] += not np.array_equal(free[0], layers[0])
        kinds.add(("char_cnn" in options, lstm["n_layers"], lstm["dim"] == lstm["projection_dim"]))
    assert min(bound.values()) >= 10
    assert len(kinds) == 12  # words and characters, 1 to 3 layers, with and without a projected cell


def test_oracle_proj_clip_needs_a_projection() -> None:
    options, weights = oracle.random_model(np.random.default_rng(0), lstm_projection=False, proj_clip=0.01)
    top = oracle.run(options, weights, SENTENCES[:1], vocab=VOCAB)[1][0][0][0][0]
    assert np.abs(top).max() > 0.01


@pytest.mark.parametrize("bidirectional", [True, False])
def test_oracle_dumped_names_give_the_same_layers(bidirectional: bool) -> None:
    choices = {"n_layers": 1, "bidirectional": bidirectional}
    options, weights = oracle.random_model(np.random.default_rng(5), **choices)
    same_options, dumped = oracle.random_model(np.random.default_rng(5), **choices, dumped_names=True)
    assert dumped.keys() != weights.keys()
    ours, _ = oracle.run(options, weights, SENTENCES, vocab=VOCAB)
    theirs, _ = oracle.run(same_options, dumped, SENTENCES, vocab=VOCAB)
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_oracle_unidirectional_is_the_forward_half() -> None:
    options, weights = oracle.random_model(np.random.default_rng(6), n_layers=2)
    both, _ = oracle.run(options, weights, SENTENCES, vocab=VOCAB)
    one, state = oracle.run({**options, "bidirectional": False}, weights, SENTENCES, vocab=VOCAB)
    half = options["lstm"]["projection_dim"]
    assert all(np.array_equal(a[..., :half], b) for a, b in zip(both, one, strict=True))
    assert len(state[0]) == 1


def test_oracle_state_rows_are_carried_kept_and_not_changed() -> None:
    options, weights = oracle.random_model(np.random.default_rng(7), n_layers=2)
    _, state = oracle.run(options, weights, SENTENCES[:3], vocab=VOCAB)
    before = json.dumps([[[[v.tolist() for v in pair] for pair in side] for side in row] for row in state])
    _, after = oracle.run(options, weights, SENTENCES[:1], state, vocab=VOCAB)
    assert json.dumps([[[[v.tolist() for v in pair] for pair in side] for side in row] for row in state]) == before
    assert not np.array_equal(after[0][0][0][0], state[0][0][0][0])
    assert after[1:] == state[1:]


# ---- on top ----


def test_oracle_mix_by_hand() -> None:
    layers = np.array([[[1.0, 3.0], [9.0, 9.0]], [[2.0, 6.0], [0.0, 0.0]]])  # (2 layers, 2 positions, D = 2)
    mask = np.array([1, 0])
    w = np.array([0.0, np.log(3.0)])  # shares 1/4 and 3/4
    assert np.allclose(oracle.mix(layers, mask, w, 2.0), [[3.5, 10.5], [4.5, 4.5]])
    # layer 0: mean 2, variance 1; layer 1: mean 4, variance 4; the masked position is normed with the same two numbers
    assert np.allclose(oracle.mix(layers, mask, w, 1.0, layer_norm="batch"), [[-1.0, 1.0], [7 / 4 - 6 / 4] * 2])
    assert np.allclose(oracle.mix(layers, mask, None, 0.5, layer_norm="batch", top_only=True), [[1.0, 3.0], [0.0, 0.0]])


def test_oracle_lm_reads_the_top_layer_at_the_right_positions() -> None:
    options, weights = oracle.random_model(np.random.default_rng(8), n_layers=2, softmax=True)
    tokens = ["the", "dog", "sat"]
    forward, backward, _ = oracle.lm_log_probs(
        options, weights, tokens, VOCAB, weights["softmax/W"], weights["softmax/b"]
    )
    assert backward is not None
    top = oracle.run(options, weights, [tokens], vocab=VOCAB)[0][0][-1]
    half = options["lstm"]["projection_dim"]
    ids = [0, 3, 2, 5, 1]  # <S> the <UNK> sat </S>
    for k in range(4):
        ahead = np.exp(weights["softmax/W"] @ top[k, :half] + weights["softmax/b"])
        back = np.exp(weights["softmax/W"] @ top[k + 1, half:] + weights["softmax/b"])
        assert np.isclose(forward[k], np.log(ahead[ids[k + 1]] / ahead.sum()))
        assert np.isclose(backward[k], np.log(back[ids[k]] / back.sum()))


# ---- training ----

CASES: dict[str, dict[str, Any]] = {
    "characters, tanh, skips": {"char_input": True, "activation": "tanh", "skip": True, "n_highway": 1},
    "characters, relu, sampled": {"char_input": True, "activation": "relu", "n_highway": 2, "sampled": True},
    "characters, bare, sampled": {"char_input": True, "n_highway": 0, "cnn_projection": False, "sampled": True},
    "characters, relu, one layer": {"char_input": True, "activation": "relu", "n_highway": 1, "n_layers": 1},
    "words": {"char_input": False, "skip": False},
    "words, skips, sampled": {"char_input": False, "skip": True, "sampled": True},
    "words, unprojected, three layers": {"char_input": False, "lstm_projection": False, "n_layers": 3, "skip": True},
    "words, tied": {"char_input": False, "tied": True},
    "words, tied, sampled": {"char_input": False, "tied": True, "sampled": True},
    "words, one direction": {"char_input": False, "bidirectional": False},
}
SMALL: dict[str, Any] = {
    "n_layers": 2,
    "projection_dim": 4,
    "lstm_projection": True,
    "cnn_projection": True,
    "cell_clip": 0.8,
    "proj_clip": 0.5,
    "max_chars": 8,
    "softmax": True,
}


def training_case(case: str) -> tuple[oracle.Options, oracle.Weights, list[Batch], oracle_train.States]:
    """A tiny model with clips that bind, one batch a direction (2 rows of 4 steps), and states that are not zero."""
    rng = np.random.default_rng(list(CASES).index(case))
    choices = SMALL | CASES[case]
    sampled = choices.pop("sampled", False)
    options, weights = oracle.random_model(rng, **choices)
    weights = {name: array.astype(np.float64) for name, array in weights.items()}
    num_words = len(weights["softmax/b"])
    batches, states = [], []
    for _ in range(oracle.num_directions(options)):
        if "char_cnn" in options:
            tokens = [VOCAB[k] for k in rng.integers(3, num_words, size=6)]
            ids = oracle.char_ids(tokens, 8).reshape(2, 4, 8) - 1
        else:
            ids = rng.integers(num_words, size=(2, 4))
        targets = rng.integers(num_words, size=(2, 4))
        negatives = None
        if sampled:
            drawn = np.array([0, 3, 4, 7, targets[0, 0]])  # one at least is an accidental hit
            drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
            negatives = Negatives(
                ids=drawn,
                expected=oracle_train.log_uniform_expected(drawn, 9, num_words),
                true_expected=oracle_train.log_uniform_expected(targets, 9, num_words),
            )
        batches.append(Batch(ids=ids, targets=targets, negatives=negatives))
        lstm = options["lstm"]
        states.append(
            [
                (rng.normal(size=(2, lstm["projection_dim"])) / 4, rng.normal(size=(2, lstm["dim"])) / 2)
                for _ in range(lstm["n_layers"])
            ]
        )
    return options, weights, batches, states


@pytest.mark.parametrize("case", CASES)
def test_training_gradients_are_finite_differences(case: str) -> None:
    options, weights, batches, states = training_case(case)
    unroll, eps = 20, 1e-6
    _, grads, _ = oracle_train.losses_and_gradients(options, weights, batches, states, unroll)
    assert grads.keys() == weights.keys()

    def total(name: str, where: tuple[int, ...], change: float) -> float:
        moved = {**weights, name: weights[name].copy()}
        moved[name][where] += change
        losses, _, _ = oracle_train.losses_and_gradients(options, moved, batches, states, unroll)
        return float(np.mean(losses)) * unroll

    rng = np.random.default_rng(1)
    for name, grad in grads.items():
        assert np.abs(grad).max() > 0.0, name
        used = np.argwhere(grad != 0.0)
        for where in map(tuple, np.concatenate([used[rng.permutation(len(used))[:8]], [[0] * grad.ndim]])):
            numeric = (total(name, where, eps) - total(name, where, -eps)) / (2 * eps)
            assert np.isclose(grad[where], numeric, rtol=1e-5, atol=1e-6), (name, where)


@pytest.mark.parametrize("case", CASES)
def test_training_cases_bind_clips(case: str) -> None:
    options, weights, batches, states = training_case(case)
    losses, _, _ = oracle_train.losses_and_gradients(options, weights, batches, states)
    for clip in ("cell_clip", "proj_clip"):
        free = {**options, "lstm": {**options["lstm"], clip: None}}
        changed = oracle_train.losses_and_gradients(free, weights, batches, states)[0] != losses
        assert changed or (clip == "proj_clip" and not oracle_train.has_projection(options))


@pytest.mark.parametrize("char_input", [True, False])
def test_training_full_softmax_loss_is_the_oracle_log_likelihood(char_input: bool) -> None:
    options, weights = oracle.random_model(
        np.random.default_rng(9), char_input=char_input, n_layers=2, max_chars=8, softmax=True
    )
    state, states = None, None
    for tokens in (["the", "cat"], ["on", "a", "mat"]):  # the second sentence checks the state handed on
        forward, backward, state = oracle.lm_log_probs(
            options, weights, tokens, VOCAB, weights["softmax/W"], weights["softmax/b"], state
        )
        assert backward is not None
        ids, words = oracle.input_ids(options, tokens, VOCAB) - 1, oracle.vocab_ids(tokens, VOCAB)
        batches = [
            Batch(ids=ids[None, :-1], targets=words[None, 1:]),
            Batch(ids=ids[None, :0:-1], targets=words[None, -2::-1]),
        ]
        losses, _, states = oracle_train.losses_and_gradients(options, weights, batches, states)
        assert np.allclose(losses, [-forward.mean(), -backward.mean()], atol=1e-12)


def test_training_sampled_loss_over_all_words_with_equal_counts_is_the_full_loss() -> None:
    options, weights, batches, states = training_case("words")
    losses, grads, _ = oracle_train.losses_and_gradients(options, weights, batches, states)
    everything = Negatives(ids=np.arange(11), expected=np.full(11, 0.3), true_expected=np.full((2, 4), 0.3))
    sampled = [Batch(ids=batch.ids, targets=batch.targets, negatives=everything) for batch in batches]
    same_losses, same_grads, _ = oracle_train.losses_and_gradients(options, weights, sampled, states)
    assert np.allclose(losses, same_losses, atol=1e-12)
    assert all(np.allclose(grads[name], same_grads[name], atol=1e-12) for name in grads)


def test_training_sampled_loss_by_hand() -> None:
    """Logits 1 (true), 2 and 1 (sampled; the last is the target again); expected counts 1/2, 1/4 and 1/8."""
    weights = {"softmax/W": np.array([[1.0], [2.0], [5.0]]), "softmax/b": np.zeros(3)}
    negatives = Negatives(ids=np.array([1, 0]), expected=np.array([0.25, 0.125]), true_expected=np.array([[0.5]]))
    batch = Batch(ids=np.array([[2]]), targets=np.array([[0]]), negatives=negatives)
    grads = {name: np.zeros(array.shape) for name, array in weights.items()}
    loss, d_x = oracle_train.softmax_loss({}, weights, np.ones((1, 1, 1)), batch, 1.0, grads)
    chance = 2 * np.e / (2 * np.e + 4 * np.e**2)  # exp(logit) / expected, the hit left out
    assert np.isclose(loss, -np.log(chance))
    assert np.allclose(grads["softmax/b"], [chance - 1.0, 1.0 - chance, 0.0])
    assert np.allclose(grads["softmax/W"][:, 0], [chance - 1.0, 1.0 - chance, 0.0])
    assert np.isclose(d_x[0, 0, 0], (chance - 1.0) * 1.0 + (1.0 - chance) * 2.0)


def test_training_expected_counts_of_one_try_are_the_chances() -> None:
    chances = oracle_train.log_uniform_expected(np.arange(11), 1, 11)
    assert np.isclose(chances.sum(), 1.0)
    assert np.isclose(chances[0], np.log(2) / np.log(12))


def test_training_step_scales_clips_and_updates() -> None:
    options, weights, batches, states = training_case("words")
    ones = oracle_train.initial_accumulators(weights)
    _, grads, _ = oracle_train.losses_and_gradients(options, weights, batches, states, unroll_steps=1)
    norm = np.sqrt(sum((grad**2).sum() for grad in grads.values()))

    step = oracle_train.train_step(options, weights, ones, batches, states, clip_norm=None)  # unroll_steps = T = 4
    assert np.isclose(step.grad_norm, 4 * norm)
    for name, grad in grads.items():
        assert np.allclose(step.accumulators[name], 1.0 + (4 * grad) ** 2)
        assert np.allclose(step.weights[name], weights[name] - 0.2 * 4 * grad / np.sqrt(1.0 + (4 * grad) ** 2))

    clipped = oracle_train.train_step(options, weights, ones, batches, states, clip_norm=0.01)
    assert np.isclose(clipped.grad_norm, 4 * norm)
    moved = np.sqrt(sum((clipped.accumulators[name] - 1.0).sum() for name in weights))
    assert np.isclose(moved, 0.01)
    loose = oracle_train.train_step(options, weights, ones, batches, states, clip_norm=1e6)
    assert all(np.array_equal(loose.weights[name], step.weights[name]) for name in weights)


@pytest.mark.parametrize("case", CASES)
def test_training_steps_lower_the_loss(case: str) -> None:
    options, weights, batches, states = training_case(case)
    accumulators = oracle_train.initial_accumulators(weights)
    losses = []
    for _ in range(60):
        step = oracle_train.train_step(options, weights, accumulators, batches, states)
        weights, accumulators = step.weights, step.accumulators
        losses.append(np.mean(step.losses))
    assert losses[-1] < 0.5 * losses[0]
