"""The CPU implementations against plain PyTorch: random models of odd shapes, sentences of odd lengths, all states."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from compiled_kernels import missing_reason, num_threads
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import ConfigError
from elmo.kernels import api as kernels
from elmo.kernels.cpu.native import NativeBiLM
from elmo.kernels.cpu.pytorch import TorchBiLM
from elmo.kernels.cpu.request import StateArrays, make_request
from elmo.kernels.cpu.slots import plan_slots
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, CharConfig, LSTMConfig, WordConfig
from elmo.model.lstm import State

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 2e-5  # float32 sums in another order, through three layers and sixty steps
IMPLEMENTATIONS = ("native", "avx2", "torch")
NATIVE = ("native", "avx2")


def environment(implementation: str) -> contextlib.AbstractContextManager[None]:
    return kernels.kernels_set_to("" if implementation == "native" else implementation)


def why_missing(implementation: str, dtype: str) -> str:
    if implementation == "torch":
        return ""
    with environment(implementation):
        return missing_reason(dtype)


def make_kernels(implementation: str, model: BiLM, dtype: str = "float32") -> NativeBiLM | TorchBiLM:
    if reason := why_missing(implementation, dtype):
        pytest.skip(reason)
    with environment(implementation):
        return TorchBiLM(model, dtype) if implementation == "torch" else NativeBiLM(model, dtype)


def make_model(config: BiLMConfig, seed: int = 0, scale: float = 1.0) -> BiLM:
    torch.manual_seed(seed)
    model = BiLM(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.mul_(scale)
    for stack in model.stacks:
        for layer in stack.layers:
            layer.bias.uniform_(-1.0, 1.0)
    for linear in (m for m in model.token_encoder.modules() if isinstance(m, torch.nn.Linear)):
        linear.bias.uniform_(-1.0, 1.0)
    return model


def words_only(P: int, num_words: int = 40) -> dict:
    return {"chars": None, "words": WordConfig(num_words=num_words, word_dim=P)}


def plain(model: BiLM, table: np.ndarray, sentence: np.ndarray, state: State) -> tuple[np.ndarray, State]:
    """All layers (L + 1, n, D) of one sentence of table rows in plain PyTorch, and the state after it."""
    tokens = torch.from_numpy(table[sentence])[None]  # (1, n, P)
    output = model.contextualize(tokens, torch.ones(1, len(sentence), dtype=torch.bool), state)
    return output.layers[:, 0].numpy(), output.state


def make_table(model: BiLM, num_words: int, seed: int = 0) -> np.ndarray:
    P = model.config.lstm.proj_dim
    return np.random.default_rng(seed).normal(size=(num_words, P)).astype(np.float32)  # (words, P)


def make_sentences(lengths: list[int], num_words: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, num_words, n) for n in lengths]


def check_against_plain(model: BiLM, bilm: NativeBiLM | TorchBiLM, lengths: list[int], seed: int, rows: str) -> None:
    """rows: the initial state: "zero", "one" for all sentences, or one for "each"."""
    config, rng = model.config, np.random.default_rng(seed)
    table, sentences = make_table(model, 17, seed), make_sentences(lengths, 17, seed)
    shape = (config.num_directions, config.lstm.num_layers, {"zero": 1, "one": 1, "each": len(lengths)}[rows])
    h = rng.uniform(-1, 1, (*shape, config.lstm.proj_dim)).astype(np.float32) * (rows != "zero")
    c = rng.uniform(-1, 1, (*shape, config.lstm.cell_dim)).astype(np.float32) * (rows != "zero")
    initial = None if rows == "zero" else StateArrays(h=h, c=c)
    mix = np.eye(config.num_layers, dtype=np.float32)
    request = make_request(table, sentences, mix, boundaries=True, initial=initial, want_state=True)
    result = bilm.contextualize(request)
    assert result.state is not None
    start = 0
    for number, sentence in enumerate(sentences):
        if not len(sentence):
            continue
        row = slice(number, number + 1) if rows == "each" else slice(0, 1)
        state = State(torch.from_numpy(h[:, :, row]), torch.from_numpy(c[:, :, row]))
        layers, after = plain(model, table, sentence, state)
        np.testing.assert_allclose(result.out[:, start : start + len(sentence)], layers, atol=TOLERANCE, rtol=0)
        np.testing.assert_allclose(result.state.h[:, :, number], after.h[:, :, 0], atol=TOLERANCE, rtol=0)
        np.testing.assert_allclose(result.state.c[:, :, number], after.c[:, :, 0], atol=TOLERANCE, rtol=0)
        start += len(sentence)
    assert start == result.out.shape[1]


clips = st.sampled_from([None, 0.05, 0.5, 3.0])


@st.composite
def lstm_configs(draw: st.DrawFn) -> LSTMConfig:
    P = draw(st.integers(1, 150))
    H = P if draw(st.booleans()) else draw(st.integers(1, 100))  # equal: no projection
    return LSTMConfig(
        num_layers=draw(st.integers(1, 3)),
        cell_dim=H,
        proj_dim=P,
        cell_clip=draw(clips),
        proj_clip=draw(clips),
        skip=draw(st.booleans()),
        forget_bias=draw(st.sampled_from([0.0, 1.0])),
    )


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@settings(max_examples=25)
@given(
    lstm=lstm_configs(),
    bidirectional=st.booleans(),
    lengths=st.lists(st.integers(0, 12), max_size=9),
    rows=st.sampled_from(["zero", "one", "each"]),
    seed=st.integers(0, 1000),
)
def test_layers_and_states_equal_plain_pytorch(implementation, lstm, bidirectional, lengths, rows, seed):
    config = BiLMConfig(lstm=lstm, bidirectional=bidirectional, **words_only(lstm.proj_dim))
    model = make_model(config, seed)
    check_against_plain(model, make_kernels(implementation, model), lengths, seed, rows if lengths else "zero")


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_large_dimensions_are_computed_in_blocks(implementation):
    lstm = LSTMConfig(cell_dim=1100, proj_dim=530)
    model = make_model(BiLMConfig(lstm=lstm, **words_only(530)))
    check_against_plain(model, make_kernels(implementation, model), [7, 3], 0, "one")


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_more_sentences_than_slots_and_more_steps_than_a_chunk(implementation):
    model = make_model(BiLMConfig(lstm=LSTMConfig(cell_dim=40, proj_dim=24), **words_only(24)))
    lengths = np.random.default_rng(0).integers(0, 40, 230).tolist()
    check_against_plain(model, make_kernels(implementation, model), lengths, 1, "each")


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_saturated_gates_stay_finite_and_equal_plain_pytorch(implementation):
    model = make_model(BiLMConfig(lstm=LSTMConfig(cell_dim=48, proj_dim=32), **words_only(32)))
    table, sentences = 300 * make_table(model, 9), make_sentences([11, 4], 9)
    actual = (
        make_kernels(implementation, model)
        .contextualize(make_request(table, sentences, np.eye(3), boundaries=True))
        .out
    )
    expected = [plain(model, table, s, model.zero_state(1))[0] for s in sentences]
    assert np.isfinite(actual).all()
    # the sums of the gates are in the hundreds, where neighbouring float32 values differ by 3e-5
    np.testing.assert_allclose(actual, np.concatenate(expected, axis=1), atol=5e-4, rtol=0)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@settings(max_examples=10)
@given(
    weights=st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.25, -2.0]), min_size=3, max_size=3), min_size=1, max_size=4),
    boundaries=st.booleans(),
)
def test_results_are_weighted_layers_of_the_requested_tokens(implementation, weights, boundaries):
    model = make_model(BiLMConfig(lstm=LSTMConfig(cell_dim=20, proj_dim=9), **words_only(9)))
    table, sentences = make_table(model, 9), make_sentences([5, 0, 2, 8], 9)
    mix = np.array(weights, dtype=np.float32)
    request = make_request(table, sentences, mix, boundaries=boundaries)
    actual = make_kernels(implementation, model).contextualize(request).out
    inner = slice(None) if boundaries else slice(1, -1)
    layers = [plain(model, table, s, model.zero_state(1))[0][:, inner] for s in sentences if len(s)]
    expected = np.einsum("kl,lnd->knd", mix, np.concatenate(layers, axis=1))
    np.testing.assert_allclose(actual, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("boundaries", [True, False])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_padded_results_are_equal_with_zeros_between_sentences(implementation, boundaries):
    model = make_model(BiLMConfig(lstm=LSTMConfig(cell_dim=20, proj_dim=9), **words_only(9)))
    bilm, table, sentences = make_kernels(implementation, model), make_table(model, 9), make_sentences([5, 0, 2, 8], 9)
    flat = bilm.contextualize(make_request(table, sentences, np.eye(3), boundaries=boundaries)).out
    request = make_request(table, sentences, np.eye(3), boundaries=boundaries, pad_to=8)
    padded = bilm.contextualize(request).out.reshape(3, 4, 8, 18)
    cut = 0 if boundaries else 2
    parts = [padded[:, row, : max(len(s) - cut, 0)] for row, s in enumerate(sentences)]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), flat, atol=1e-6, rtol=0)
    assert all((padded[:, row, max(len(s) - cut, 0) :] == 0).all() for row, s in enumerate(sentences))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_results_are_written_to_the_given_array(implementation):
    model = make_model(BiLMConfig(lstm=LSTMConfig(cell_dim=20, proj_dim=9), **words_only(9)))
    out = np.full((3, 7, 18), np.nan, dtype=np.float32)
    request = make_request(make_table(model, 9), make_sentences([4, 3], 9), np.eye(3), boundaries=True, out=out)
    assert make_kernels(implementation, model).contextualize(request).out is out
    assert np.isfinite(out).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("implementation", NATIVE)
def test_a_sentence_is_independent_of_other_sentences_bit_for_bit(implementation, dtype):
    model = make_model(BiLMConfig(lstm=LSTMConfig(cell_dim=75, proj_dim=37), **words_only(37)))
    bilm, table = make_kernels(implementation, model, dtype), make_table(model, 700)
    sentences = make_sentences(np.random.default_rng(2).integers(1, 30, 150).tolist(), 700)
    mix = np.eye(3, dtype=np.float32)
    alone = [bilm.contextualize(make_request(table, [s], mix, boundaries=True)).out for s in sentences]
    order = np.random.default_rng(3).permutation(len(sentences))
    for number in (1, 2, 5):
        with num_threads(number):
            shuffled = [sentences[i] for i in order]
            together = bilm.contextualize(make_request(table, shuffled, mix, boundaries=True)).out
        assert np.array_equal(together, np.concatenate([alone[i] for i in order], axis=1))


@pytest.mark.parametrize("implementation", NATIVE)
def test_evicted_input_products_are_recomputed_bit_for_bit(implementation, monkeypatch):
    model = make_model(BiLMConfig(lstm=LSTMConfig(cell_dim=75, proj_dim=37), **words_only(37)))
    request = make_request(make_table(model, 3000), make_sentences([40] * 150, 3000), np.eye(3, dtype=np.float32))
    bilm = make_kernels(implementation, model)
    cached = bilm.contextualize(request).out
    monkeypatch.setattr("elmo.kernels.cpu.native.INPUT_PRODUCT_BYTES", 0)
    assert np.array_equal(bilm.contextualize(request).out, cached)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("implementation", NATIVE)
def test_a_word_is_independent_of_other_words_bit_for_bit(implementation, dtype):
    model = make_model(BiLMConfig(chars=CharConfig(num_highways=1), lstm=LSTMConfig(cell_dim=32, proj_dim=20)))
    bilm, rows = make_kernels(implementation, model, dtype), make_rows(model.config, 230, 0)
    with num_threads(1):
        alone = np.concatenate([bilm.encode_rows(rows[i : i + 1]) for i in range(60)])
    for number in (1, 2, 3):  # 230 words: three chunks, two chunks, one chunk of two blocks
        with num_threads(number):
            assert np.array_equal(bilm.encode_rows(rows)[:60], alone)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("implementation", NATIVE)
def test_few_words_on_many_threads_bit_for_bit(implementation, dtype):
    chars = CharConfig(filters=((1, 3), (2, 70), (3, 200)), num_highways=2)
    model = make_model(BiLMConfig(chars=chars, lstm=LSTMConfig(cell_dim=8, proj_dim=70)))
    bilm, rows = make_kernels(implementation, model, dtype), make_rows(model.config, 7, 0)
    with num_threads(1):
        alone = np.concatenate([bilm.encode_rows(rows[i : i + 1]) for i in range(7)])
    for number in range(1, 6):
        with num_threads(number):
            for count in range(1, 8):
                assert np.array_equal(bilm.encode_rows(rows[:count]), alone[:count])


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("implementation", NATIVE)
def test_threads_that_share_a_sentence_compute_the_same_bits(implementation, dtype, in_turn):
    # the weights of the larger model, 42 MB in float32, exceed a shared cache: its directions run one after the other
    lstm = LSTMConfig(cell_dim=4096, proj_dim=256, num_layers=1) if in_turn else LSTMConfig(cell_dim=75, proj_dim=37)
    model = make_model(BiLMConfig(lstm=lstm, **words_only(lstm.proj_dim)))
    bilm, table, mix = make_kernels(implementation, model, dtype), make_table(model, 40), np.eye(1 + lstm.num_layers)
    for lengths in ([1], [9], [5, 0, 3], [] if in_turn else [400]):
        for layers in (mix, mix[:1]):  # all layers; layer 0 only, which needs no LSTM step
            request = make_request(
                table, make_sentences(lengths, 40), layers, boundaries=True, want_state=len(layers) > 1
            )
            with num_threads(1):
                alone = bilm.contextualize(request)
            for number in (2, 3, 5):
                with num_threads(number):
                    together = bilm.contextualize(request)
                assert np.array_equal(together.out, alone.out)
                if together.state is not None and alone.state is not None:
                    assert np.array_equal(together.state.h, alone.state.h)
                    assert np.array_equal(together.state.c, alone.state.c)


def make_rows(config: BiLMConfig, num_words: int, seed: int) -> np.ndarray:
    """Rows of ids (N, W): words of all lengths, one that fills its row and one that is all padding."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((num_words, config.row_width), dtype=np.int32)
    if config.chars:
        for row in rows:
            n = rng.integers(1, config.chars.max_chars + 1)
            row[:n] = rng.integers(1, config.chars.num_chars + 1, n)
        rows[0] = config.chars.num_chars
        rows[-1] = 0
    if config.words:
        rows[:, -1] = rng.integers(0, config.words.num_words + 1, num_words)
    return rows


@st.composite
def token_configs(draw: st.DrawFn) -> BiLMConfig:
    filters = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 90)), min_size=1, max_size=3)
    chars = CharConfig(
        num_chars=draw(st.integers(1, 60)),
        char_dim=draw(st.integers(1, 20)),
        max_chars=draw(st.integers(5, 14)),
        filters=tuple(draw(filters)),
        activation=draw(st.sampled_from(["relu", "tanh"])),
        num_highways=draw(st.integers(0, 2)),
    )
    word_dim = draw(st.integers(1, 40))
    words = draw(st.sampled_from([None, WordConfig(num_words=12, word_dim=word_dim)]))
    chars = draw(st.sampled_from([chars, None])) if words else chars
    width = (chars.num_filters if chars else 0) + (words.word_dim if words else 0)
    P = width if draw(st.booleans()) else draw(st.integers(1, 80))  # equal: no projection
    return BiLMConfig(chars=chars, words=words, lstm=LSTMConfig(cell_dim=8, proj_dim=P, num_layers=1))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@settings(max_examples=25)
@given(config=token_configs(), num_words=st.integers(1, 40), seed=st.integers(0, 1000))
def test_token_vectors_equal_plain_pytorch(implementation, config, num_words, seed):
    model = make_model(config, seed)
    rows = make_rows(config, num_words, seed)
    expected = model.token_encoder(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(
        make_kernels(implementation, model).encode_rows(rows), expected, atol=TOLERANCE, rtol=1e-5
    )


@pytest.mark.parametrize("implementation", NATIVE)
def test_too_many_characters_for_a_table_of_responses(implementation, monkeypatch):
    monkeypatch.setattr("elmo.kernels.cpu.native.RESPONSE_BYTES", 0)
    chars = CharConfig(char_dim=7, filters=((1, 3), (4, 70), (7, 130)), activation="tanh", num_highways=1)
    model = make_model(BiLMConfig(chars=chars, lstm=LSTMConfig(cell_dim=8, proj_dim=20)))
    rows = make_rows(model.config, 40, 0)
    expected = model.token_encoder(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(
        make_kernels(implementation, model).encode_rows(rows), expected, atol=TOLERANCE, rtol=1e-5
    )


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_no_words_and_no_sentences_are_accepted(implementation):
    model = make_model(BiLMConfig(chars=CharConfig(filters=((1, 4),)), lstm=LSTMConfig(cell_dim=8, proj_dim=5)))
    bilm = make_kernels(implementation, model)
    assert bilm.encode_rows(np.zeros((0, 50), np.int32)).shape == (0, 5)
    for sentences in ([], [[], []]):
        assert bilm.contextualize(make_request(np.zeros((1, 5)), sentences, np.eye(3))).out.shape == (3, 0, 10)


def test_unknown_characters_and_words_are_refused():
    model = make_model(BiLMConfig(chars=CharConfig(filters=((1, 4),)), lstm=LSTMConfig(cell_dim=8, proj_dim=5)))
    bilm = make_kernels("native", model)
    for unknown in (262, -1):
        with pytest.raises(IndexError, match="the model has 0 to 261"):
            bilm.encode_rows(np.full((1, 50), unknown, np.int32))
    for unknown in (3, -1):
        with pytest.raises(IndexError):
            bilm.contextualize(make_request(make_table(model, 3), [[0, unknown, 1]], np.eye(3)))


@given(length=st.integers(0, 9), boundaries=st.booleans(), pad_to=st.sampled_from([None, 9, 12]))
def test_one_sentence_is_placed_like_the_first_of_two(length, boundaries, pad_to):
    table, sentence, mix = np.zeros((3, 4)), [1] * length, np.eye(3)
    one = make_request(table, [sentence], mix, boundaries=boundaries, pad_to=pad_to)
    two = make_request(table, [sentence, []], mix, boundaries=boundaries, pad_to=pad_to)
    assert one.places.tolist() == two.places.tolist()
    assert one.tokens.tolist() == two.tokens.tolist()
    assert one.offsets.tolist() == two.offsets[:2].tolist()
    assert one.num_places == (two.num_places if pad_to is None else pad_to)


@pytest.mark.parametrize(
    ("implementation", "dtype"), [("native", "bfloat16"), ("native", "int8"), ("torch", "bfloat16")]
)
def test_smaller_dtypes_stay_close(implementation, dtype):
    chars = CharConfig(filters=((1, 16), (3, 64)), num_highways=1)
    model = make_model(BiLMConfig(chars=chars, lstm=LSTMConfig(cell_dim=256, proj_dim=64)))
    exact, bilm = make_kernels("torch", model), make_kernels(implementation, model, dtype)
    table = exact.encode_rows(make_rows(model.config, 50, 0))
    assert cosines(bilm.encode_rows(make_rows(model.config, 50, 0)), table).min() > 0.9995
    request = make_request(table, make_sentences([9, 20, 3], 50), np.eye(3))
    # int8 has 256 levels per row, about one percent; bfloat16 has eight bits of mantissa, less than half a percent
    limit = 0.998 if dtype == "int8" else 0.9999
    assert cosines(bilm.contextualize(request).out, exact.contextualize(request).out).min() > limit


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


class Interrupted(Exception):
    """Raised by the signal handler below."""


def test_a_signal_ends_a_long_call():
    model = make_model(BiLMConfig(lstm=LSTMConfig(cell_dim=256, proj_dim=64), **words_only(64)))
    bilm = make_kernels("native", model)
    request = make_request(make_table(model, 9), make_sentences([2000] * 200, 9), np.eye(3))  # takes seconds

    def handler(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupted):
            bilm.contextualize(request)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    again = make_request(make_table(model, 9), make_sentences([5], 9), np.eye(3))
    assert np.isfinite(bilm.contextualize(again).out).all()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_pickled_implementation_computes_the_same(implementation):
    model = make_model(BiLMConfig(lstm=LSTMConfig(cell_dim=20, proj_dim=9), **words_only(9)))
    bilm = make_kernels(implementation, model)
    request = make_request(make_table(model, 9), make_sentences([4, 3], 9), np.eye(3))
    with environment(implementation):
        copy = pickle.loads(pickle.dumps(bilm))
    assert np.array_equal(copy.contextualize(request).out, bilm.contextualize(request).out)


@given(lengths=st.lists(st.integers(0, 9), max_size=40), num_slots=st.integers(1, 12), reverse=st.booleans())
def test_slots_read_every_token_once_in_order(lengths, num_slots, reverse):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    visits, begins, ends, active = plan_slots(offsets, num_slots, reverse=reverse)
    assert sorted(visits[visits >= 0]) == list(range(offsets[-1]))
    assert visits.shape[1] <= num_slots
    for t, count in enumerate(active):
        assert (visits[t, :count] >= 0).all()
        assert (visits[t, count:] < 0).all()
    for (t, slot), sentence in np.ndenumerate(begins):
        if sentence >= 0:
            tokens = np.arange(offsets[sentence], offsets[sentence + 1])
            assert (visits[t : t + len(tokens), slot] == (tokens[::-1] if reverse else tokens)).all()
            assert ends[t + len(tokens) - 1, slot] == sentence


def test_the_environment_variable_selects_the_implementation():
    with environment("off"):
        assert kernels.find_kernel("bilm", "cpu", "float32") is None
    with environment("torch"):
        assert kernels.find_kernel("bilm", "cpu", "float32").func is TorchBiLM
        assert kernels.find_kernel("bilm", "cpu", "int8") is None
    with environment("native"):
        assert kernels.find_kernel("bilm", "cpu", "float64") is None
        assert kernels.find_kernel("no such thing", "cpu", "float32") is None
    with environment("bilm"), pytest.raises(ConfigError):
        kernels.find_kernel("bilm", "cpu", "float32")


def lookup_in_a_new_process(home: Path, path: str) -> str:
    code = (
        "from elmo.kernels.api import describe, find_kernel\n"
        "print(describe()['cpu_kernels'], find_kernel('bilm', 'cpu', 'float32').func.__name__)"
    )
    variables = {"ELMO_HOME": str(home), "PATH": path, "HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_without_a_compiler_the_pytorch_implementation_is_used(tmp_path):
    if reason := why_missing("avx2", "float32"):
        pytest.skip(reason)
    output = lookup_in_a_new_process(tmp_path, "/nowhere")
    assert "TorchBiLM" in output
    assert "no C++ compiler" in output


def test_the_first_use_compiles_and_the_second_use_loads_from_the_cache(tmp_path):
    if reason := why_missing("avx2", "float32"):
        pytest.skip(reason)
    output = lookup_in_a_new_process(tmp_path, os.environ["PATH"])
    assert "will be compiled" in output
    assert "NativeBiLM" in output
    assert [path.name for path in tmp_path.rglob("*.so")] == ["kernels.so"]
    assert not list(tmp_path.rglob("*.partial"))
    output = lookup_in_a_new_process(tmp_path, "/nowhere")
    assert ", compiled: " in output
    assert "NativeBiLM" in output
