"""The embedder: shapes, order, and that the vectors of a sentence depend on that sentence alone."""

from __future__ import annotations

import pickle
import random
import threading

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from compiled_kernels import num_threads
from golden import SENTENCES, golden_batches, golden_embedder, golden_model

from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import choose_layers
from elmo.embed.run import plain
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM
from elmo.model.mix import ScalarMix
from elmo.text.batch import make_batch
from elmo.text.indexer import ByteIndexer


@pytest.fixture(scope="module")
def embedder():
    return golden_embedder("allennlp")


def test_shapes_of_one_sentence_and_of_several(embedder) -> None:
    assert embedder.layers("The cat sat .").shape == (3, 4, 32)
    assert embedder.embed("The cat sat.").shape == (4, 32)
    assert [v.shape for v in embedder.embed(["A cat .", ["pre", "tokenised"], ""])] == [(3, 32), (2, 32), (0, 32)]
    assert embedder.encode("The cat sat .").shape == (32,)
    assert embedder.encode(["The cat .", "", "It ."]).shape == (3, 32)
    assert isinstance(embedder.embed("One .", output="torch"), torch.Tensor)
    assert embedder.encode(["One ."], convert_to_tensor=True).shape == (1, 32)


@pytest.mark.parametrize("empty", [[], [""], [[]], ["   "], ["", "word", []]])
def test_empty_input_keeps_its_position(embedder, empty) -> None:
    results = embedder.layers(empty)
    assert len(results) == len(empty)
    assert all(v.shape[0] == 3 and v.shape[2] == 32 and np.isfinite(v).all() for v in results)
    assert np.isfinite(embedder.encode(empty)).all()


@pytest.mark.parametrize("kind", ["allennlp", "bilm-tf"])
def test_carry_reproduces_the_reference_vectors(kind: str) -> None:
    embedder = golden_embedder(kind, state="carry")
    for sentences, expected in golden_batches(kind):
        for actual, golden in zip(embedder.embed(sentences, layers="top"), expected, strict=True):
            np.testing.assert_allclose(actual, golden, atol=2e-6)


def test_carry_over_one_stream_equals_call_by_call() -> None:
    sentences = [s for batch, _ in golden_batches("allennlp") for s in batch]
    expected = [e for _, batch in golden_batches("allennlp") for e in batch]
    vectors = golden_embedder("allennlp", state="carry").stream(sentences, layers="top", batch_size=3)
    for actual, golden in zip(vectors, expected, strict=True):
        np.testing.assert_allclose(actual, golden, atol=2e-6)


def test_carry_depends_on_earlier_sentences_until_the_reset() -> None:
    embedder = golden_embedder("allennlp", state="carry")
    first, second = embedder.embed(SENTENCES[0:1])[0], embedder.embed(SENTENCES[0:1])[0]
    assert np.abs(first - second).max() > 1e-2
    embedder.reset_state()
    np.testing.assert_array_equal(embedder.embed(SENTENCES[0:1])[0], first)


@pytest.mark.parametrize("state", ["reset", "warm"])
@hypothesis.settings(max_examples=12)
@hypothesis.given(seed=st.integers(0, 10**6), rows=st.integers(1, 64), tokens=st.sampled_from([8, 50, 8192]))
def test_vectors_depend_on_the_sentence_alone(state: str, seed: int, rows: int, tokens: int) -> None:
    rng = random.Random(seed)
    words = [w for s in SENTENCES for w in s]
    sentences = [rng.choices(words, k=rng.choice([1, 2, 5, 30])) for _ in range(rng.randint(1, 12))]
    embedder = golden_embedder("allennlp", state=state)
    together = embedder.layers(sentences, batch_size=rows, max_tokens=tokens)
    order = list(range(len(sentences)))
    rng.shuffle(order)
    shuffled = embedder.layers([sentences[i] for i in order])
    for place, i in enumerate(order):
        alone = golden_embedder("allennlp", state=state).layers([sentences[i]])[0]
        np.testing.assert_allclose(together[i], alone, atol=1e-5)
        np.testing.assert_allclose(shuffled[place], alone, atol=1e-5)


@pytest.mark.parametrize("state", ["reset", "warm"])
@pytest.mark.parametrize("kernels", ["", "torch", "off"])
def test_vectors_are_equal_with_and_without_boundaries_in_the_result(kernels: str, state: str, monkeypatch) -> None:
    monkeypatch.setenv("ELMO_KERNELS", kernels)
    embedder = golden_embedder("allennlp", state=state)
    vectors = embedder.layers(SENTENCES)  # the kernels read the boundaries once, not once per sentence
    for group, layers in embedder.run(SENTENCES, choose_layers("all", 3)):  # includes the boundaries
        for row, number in enumerate(group):
            inner = layers[:, row, 1 : len(SENTENCES[number]) + 1].numpy()
            np.testing.assert_allclose(vectors[number], inner, atol=1e-6)


def test_repeated_calls_are_equal_bit_for_bit(embedder) -> None:
    first = embedder.layers(SENTENCES)
    for _ in range(3):
        for a, b in zip(first, embedder.layers(SENTENCES), strict=True):
            np.testing.assert_array_equal(a, b)


def test_warm_differs_from_reset_and_is_fixed() -> None:
    warm, repeated = (golden_embedder("allennlp", state="warm").embed("The cat .") for _ in range(2))
    np.testing.assert_array_equal(warm, repeated)
    assert np.abs(warm - golden_embedder("allennlp").embed("The cat .")).max() > 1e-3


def test_one_and_two_threads_agree(embedder) -> None:
    with num_threads(1):
        one = golden_embedder("allennlp").layers(SENTENCES)
    with num_threads(2):
        two = golden_embedder("allennlp").layers(SENTENCES)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_eight_threads_that_share_an_embedder_get_their_own_vectors(embedder) -> None:
    expected = embedder.layers(SENTENCES)
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(5):
            if np.abs(embedder.layers([SENTENCES[number % 4]])[0] - expected[number % 4]).max() > 1e-5:
                wrong.append(number)

    callers = [threading.Thread(target=call, args=(n,)) for n in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_layers_can_be_chosen(embedder) -> None:
    every = embedder.layers([SENTENCES[0]])[0]
    np.testing.assert_array_equal(embedder.embed([SENTENCES[0]], layers="top")[0], every[2])
    np.testing.assert_array_equal(embedder.embed([SENTENCES[0]], layers=1)[0], every[1])
    np.testing.assert_array_equal(embedder.embed([SENTENCES[0]], layers="0")[0], every[0])
    np.testing.assert_allclose(embedder.embed([SENTENCES[0]])[0], every.mean(0), atol=1e-6)
    np.testing.assert_allclose(
        embedder.embed([SENTENCES[0]], layers=[0.5, 0.0, 2.0])[0], 0.5 * every[0] + 2 * every[2], atol=1e-6
    )
    np.testing.assert_allclose(
        embedder.embed([SENTENCES[0]], layers="0.5,0,2")[0], 0.5 * every[0] + 2 * every[2], atol=1e-6
    )
    mix = ScalarMix(3)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.3, -1.0, 2.0]))
        mix.gamma.fill_(0.7)
    expected = mix(torch.from_numpy(every)[:, None])[0].detach().numpy()
    np.testing.assert_allclose(embedder.embed([SENTENCES[0]], layers=mix)[0], expected, atol=1e-6)


@pytest.mark.parametrize("layers", ["both", "1,2", 3, -4, [1.0], ScalarMix(2), ScalarMix(3, layer_norm="token")])
def test_layers_that_do_not_exist_are_refused(embedder, layers) -> None:
    with pytest.raises(ConfigError):
        embedder.embed("word", layers=layers)


def test_pooling_counts_real_tokens_only(embedder) -> None:
    vectors = embedder.embed([SENTENCES[0], SENTENCES[2]])
    np.testing.assert_allclose(embedder.encode([SENTENCES[0], SENTENCES[2]])[1], vectors[1].mean(0), atol=1e-6)
    np.testing.assert_allclose(embedder.encode([SENTENCES[0]], pooling="max")[0], vectors[0].max(0), atol=1e-6)
    lengths = np.linalg.norm(embedder.encode([SENTENCES[0], ""], normalize_embeddings=True), axis=1)
    np.testing.assert_allclose(lengths, [1.0, 0.0], atol=1e-6)
    with pytest.raises(ConfigError, match="pooling"):
        embedder.encode(["a"], pooling="median")


def test_a_long_document_is_the_same_in_chunks(monkeypatch) -> None:
    words = [w for s in SENTENCES for w in s] * 40
    at_once = golden_embedder("allennlp").layers([words, ["short"]])
    monkeypatch.setattr(plain, "CHUNK_TOKENS", 64)
    chunked = golden_embedder("allennlp").layers([words, ["short"]])
    for a, b in zip(at_once, chunked, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_the_word_cache_is_bounded_and_changes_nothing() -> None:
    sentences = [[f"word{i}", "and", f"word{i + 1}"] for i in range(200)]
    small, large = golden_embedder("allennlp", cache_words=7), golden_embedder("allennlp")
    for _ in range(2):
        for a, b in zip(small.layers(sentences), large.layers(sentences), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
    assert len(small.words) == 7
    assert len(large.words) == 202


@pytest.mark.parametrize("kernels", ["", "off"])
def test_a_word_is_encoded_once(kernels, monkeypatch) -> None:
    monkeypatch.setenv("ELMO_KERNELS", kernels)
    embedder = golden_embedder("allennlp")
    encoder, encoded = embedder.words.encoder, []
    encode_boundaries, encode_words = encoder.encode_boundaries, encoder.encode_words
    monkeypatch.setattr(encoder, "encode_boundaries", lambda: encoded.append("boundaries") or encode_boundaries())
    monkeypatch.setattr(encoder, "encode_words", lambda words: encoded.extend(words) or encode_words(words))
    embedder.embed([["a", "b", "a"], ["b", "c"]])
    embedder.embed([["c", "a", "d"]])
    assert sorted(encoded) == ["a", "b", "boundaries", "c", "d"]


def test_huge_tokens_are_cut_and_not_stored() -> None:
    embedder = golden_embedder("allennlp")
    huge = "x" * 1_000_000
    np.testing.assert_allclose(embedder.embed([[huge]])[0], embedder.embed([["x" * 48]])[0], atol=1e-6)
    assert sum(len(key) for key in embedder.words._vectors) < 300


@pytest.mark.parametrize("kernels", ["", "off"])
def test_a_cached_word_keeps_no_other_word_in_memory(kernels, monkeypatch) -> None:
    monkeypatch.setenv("ELMO_KERNELS", kernels)
    embedder = golden_embedder("allennlp")
    embedder.embed([[f"word{n}" for n in range(50)]])
    for vector in embedder.words._vectors.values():
        assert torch.as_tensor(vector).untyped_storage().nbytes() == 4 * len(vector)


def test_dtypes_are_chosen_by_name() -> None:
    exact = golden_embedder("allennlp", dtype="float64").layers([SENTENCES[0]])[0]
    assert exact.dtype == np.float64
    np.testing.assert_allclose(golden_embedder("allennlp").layers([SENTENCES[0]])[0], exact, atol=1e-5)
    rounded = golden_embedder("allennlp", dtype="bfloat16").layers([SENTENCES[0]])[0]
    assert rounded.dtype == np.float32
    assert 1e-4 < np.abs(rounded - exact).max() < 0.5
    with pytest.raises(ConfigError, match="dtype"):
        golden_embedder("allennlp", dtype="int3")


def test_choosing_all_layers_copies_nothing() -> None:
    layers = torch.randn(3, 1, 2, 4)
    assert choose_layers("all", 3).apply(layers).data_ptr() == layers.data_ptr()


def test_tokens_that_look_like_symbols_are_text(embedder) -> None:
    begin = golden_model("allennlp").token_encoder(torch.from_numpy(embedder.indexer.begin)[None])[0]
    assert np.abs(embedder.embed([["<S>"]], layers=0)[0][0, :16] - begin.detach().numpy()).max() > 1e-3


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"batch_size": -1}, {"batch_size": "x"}, {"max_tokens": 0}])
@pytest.mark.parametrize("state", ["reset", "carry"])
def test_sizes_below_one_are_refused(state: str, wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        golden_embedder("allennlp", state=state).embed(["a b", "c"], **wrong)


@pytest.mark.parametrize("state", ["reset", "carry"])
@pytest.mark.parametrize("method", ["stream", "pooled"])
def test_a_string_in_a_stream_is_not_read_as_a_list_of_letters(method: str, state: str) -> None:
    read = getattr(golden_embedder("allennlp", state=state), method)
    with pytest.raises(TypeError, match=r"sentences\[1\] is the string 'Die Bank\.'; expected a sentence"):
        list(read([["Die", "Bank", "."], "Die Bank."]))
    with pytest.raises(TypeError, match=r"sentences\[0\] is the string 'Die Bank\.'"):
        list(read("Die Bank."))


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_numbers_of_numpy_are_numbers(embedder, kind: type) -> None:
    """They were refused: a layer that argmax finds, and sizes from an array."""
    texts = ["the bank .", "river"]
    expected = embedder.embed(texts, layers=1, batch_size=2)
    found = embedder.embed(texts, layers=kind(1), batch_size=kind(2), max_tokens=kind(100))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert embedder.encode(texts, layers=kind(2)).shape == (2, embedder.dim)
    assert len(embedder.similar("the bank .", "bank", texts, k=kind(1)).nearest) == 1
    with pytest.raises(ConfigError, match="layers is 9"):
        embedder.embed(texts, layers=kind(9))


@pytest.mark.parametrize(
    "wrong", [{"batch_size": True}, {"batch_size": np.True_}, {"layers": True}, {"layers": np.True_}]
)
def test_truth_values_are_no_numbers(embedder, wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        embedder.embed("the bank .", **wrong)


def test_other_wrong_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="cache_words"):
        golden_embedder("allennlp", cache_words=-1)
    with pytest.raises(ConfigError, match="pooling"):
        golden_embedder("allennlp").encode([], pooling="median")
    for layers in ([0.1, float("nan"), 0.2], None):
        with pytest.raises(ConfigError, match="layer"):
            golden_embedder("allennlp").embed("a", layers=layers)


def test_a_copy_in_another_process_gives_the_same_vectors() -> None:
    embedder = golden_embedder("allennlp", state="warm")
    duplicate = pickle.loads(pickle.dumps(embedder))
    np.testing.assert_array_equal(duplicate.embed("The cat sat ."), embedder.embed("The cat sat ."))


@pytest.mark.parametrize("kernels", ["", "off"])
def test_torch_vectors_can_be_trained_on(kernels: str, monkeypatch) -> None:
    monkeypatch.setenv("ELMO_KERNELS", kernels)
    (vectors,) = golden_embedder("allennlp").embed([["The", "cat"]], output="torch")
    weight = torch.ones(32, requires_grad=True)
    (vectors @ weight).sum().backward()
    assert weight.grad is not None


def gelu_model() -> BiLM:
    """A model whose character network has an activation that the compiled CPU kernels do not have."""
    model = golden_model("allennlp")
    assert model.token_encoder.chars is not None
    model.token_encoder.chars.activation = torch.nn.functional.gelu
    return model


def test_an_activation_that_a_kernel_lacks_is_not_computed_as_another() -> None:
    model = gelu_model()
    batch = make_batch([SENTENCES[0]], ByteIndexer())
    expected = model(torch.from_numpy(batch.ids)).layers[:, 0, 1:-1].detach().numpy()
    vectors = Embedder(model, ByteIndexer()).layers([SENTENCES[0]])[0]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_int8_refuses_a_model_that_its_kernels_do_not_support() -> None:
    with pytest.raises(ConfigError, match="int8"):
        Embedder(gelu_model(), ByteIndexer(), dtype="int8")


@pytest.mark.parametrize("spec", ["average", (0.1, 0.2, 0.7)])
def test_weighted_layers_are_exact_in_float64(spec) -> None:
    """The weights were rounded to float32 before, so that the average was exact to 8e-8 only."""
    embedder = golden_embedder("allennlp", dtype="float64")
    layers = embedder.layers([SENTENCES[0]])[0]
    expected = layers.mean(axis=0) if spec == "average" else np.tensordot(np.array(spec), layers, axes=1)
    np.testing.assert_allclose(embedder.embed([SENTENCES[0]], layers=spec)[0], expected, rtol=1e-14, atol=1e-15)


def test_pooled_vectors_are_exact_in_float64() -> None:
    """Means over tokens were computed in float32 and stored as float64."""
    embedder = golden_embedder("allennlp", dtype="float64")
    expected = embedder.layers([SENTENCES[0]])[0].mean(axis=1)
    np.testing.assert_allclose(embedder.encode([SENTENCES[0]], layers="all")[0], expected, rtol=1e-14, atol=1e-15)
