"""The CUDA executor against the plain executor, in every form of output.

It runs on CUDA or in Triton's interpreter: see triton_here.
"""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest
import torch
from golden import SENTENCES, golden_batches, golden_embedder
from triton_here import CUDA, DEVICE, MARKS

from elmo.embed.embedder import Embedder
from elmo.kernels import api as kernels
from elmo.kernels import packing

pytestmark = MARKS

TOLERANCE = 2e-5
TOKENISED = SENTENCES if CUDA else [["The", "Ünïcödé", "🙂"], ["one"], ["The", "one", "a" * 300, "."]]
WITH_EMPTY = [TOKENISED[0], [], *TOKENISED[1:]]


@pytest.fixture(autouse=True)
def _kernels_on_this_device(monkeypatch) -> None:
    if not CUDA:
        monkeypatch.setattr(packing, "BUCKETS", (2,))  # the interpreter takes a millisecond per row
        monkeypatch.setitem(kernels.IMPLEMENTATIONS, ("bilm_bulk", "cpu"), kernels.IMPLEMENTATIONS["bilm_bulk", "cuda"])


def make(**options: Any) -> Embedder:
    return golden_embedder("allennlp", device=DEVICE, **options)


def make_plain(monkeypatch, **options: Any) -> Embedder:
    with monkeypatch.context() as changed:
        changed.setenv("ELMO_KERNELS", "off")
        return golden_embedder("allennlp", **options)


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_vectors_equal_those_of_the_plain_executor(state: str, monkeypatch) -> None:
    cuda, plain = make(state=state), make_plain(monkeypatch, state=state)
    for layers in ("all", "average"):
        for actual, expected in zip(
            cuda.embed(WITH_EMPTY, layers=layers), plain.embed(WITH_EMPTY, layers=layers), strict=True
        ):
            assert actual.shape == expected.shape
            assert actual.dtype == expected.dtype
            np.testing.assert_allclose(actual, expected, atol=TOLERANCE)
    np.testing.assert_allclose(cuda.encode(WITH_EMPTY), plain.encode(WITH_EMPTY), atol=TOLERANCE)
    assert len(cuda.words) == 0  # the cache of the plain executor, which has not run


def test_pooled_forms(monkeypatch) -> None:
    cuda, plain = make(), make_plain(monkeypatch)
    for options in ({"pooling": "max", "layers": "all"}, {"layers": [0.5, 0.25, 0.0], "normalize_embeddings": True}):
        np.testing.assert_allclose(
            cuda.encode(WITH_EMPTY, **options), plain.encode(WITH_EMPTY, **options), atol=TOLERANCE
        )
    assert cuda.encode(["One ."])[0].shape == cuda.encode("One .").shape == (32,)
    assert cuda.encode([]).shape == (0, 32)
    assert cuda.encode([[], []]).tolist() == np.zeros((2, 32)).tolist()


def test_torch_vectors_can_be_trained_on() -> None:
    (vectors,) = make().embed([TOKENISED[0]], output="torch")
    assert vectors.device.type == DEVICE
    weight = torch.ones(32, device=DEVICE, requires_grad=True)
    (vectors @ weight).sum().backward()
    assert weight.grad is not None


def test_small_windows_and_a_small_cache_change_nothing(monkeypatch) -> None:
    monkeypatch.setattr("elmo.embed.run.cuda.BATCHES_PER_WINDOW", 1)
    plain = make_plain(monkeypatch)
    small = make(cache_words=2)
    vectors = small.embed([*TOKENISED, *TOKENISED], max_tokens=5)
    for actual, expected in zip(vectors, plain.embed([*TOKENISED, *TOKENISED]), strict=True):
        np.testing.assert_allclose(actual, expected, atol=TOLERANCE)


@pytest.mark.parametrize("kind", ["allennlp", "bilm-tf"])
def test_carry_reproduces_the_reference_vectors(kind: str) -> None:
    embedder = golden_embedder(kind, state="carry", device=DEVICE)
    for sentences, expected in golden_batches(kind):
        for actual, golden in zip(embedder.embed(sentences, layers="top"), expected, strict=True):
            np.testing.assert_allclose(actual, golden, atol=TOLERANCE)


@pytest.mark.parametrize("kind", ["allennlp", "bilm-tf"])
def test_first_batches_reproduce_the_reference_vectors(kind: str) -> None:
    sentences, expected = next(golden_batches(kind))  # the first batch starts from the zero state
    count = 3 if CUDA else 1
    vectors = golden_embedder(kind, device=DEVICE).embed(sentences[:count], layers="top")
    for actual, golden in zip(vectors, expected[:count], strict=True):
        np.testing.assert_allclose(actual, golden, atol=TOLERANCE)


def test_after_a_failure_words_are_encoded_again(monkeypatch) -> None:
    embedder = make()
    expected = embedder.embed([["a", "b"]])[0]
    other = make()
    with monkeypatch.context() as broken:
        broken.setattr(other.model.token_encoder, "forward", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            other.embed([["a", "b"]])
    np.testing.assert_allclose(other.embed([["a", "b"]])[0], expected, atol=TOLERANCE)


def test_copies_and_threads() -> None:
    embedder = pickle.loads(pickle.dumps(make()))
    expected = embedder.embed([TOKENISED[0]])[0]
    results: dict[int, Any] = {}

    def embed(number: int) -> None:
        results[number] = embedder.embed([TOKENISED[0], [f"other{number}"]])[0]

    threads = [threading.Thread(target=embed, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        np.testing.assert_allclose(results[number], expected, atol=TOLERANCE)


def test_the_environment_variable_turns_the_kernels_off(monkeypatch) -> None:
    monkeypatch.setenv("ELMO_KERNELS", "off")
    embedder = make()
    embedder.embed([["word"]])
    assert len(embedder.words) == 1  # the cache of the plain executor


@pytest.mark.skipif(not CUDA, reason="16-bit dtypes and long texts need a GPU")
@pytest.mark.parametrize(("dtype", "limit"), [("float16", 5e-3), ("bfloat16", 5e-2), ("float32", TOLERANCE)])
def test_a_long_text_on_the_gpu(dtype: str, limit: float, monkeypatch) -> None:
    sentences = [[f"w{i * k % 997}" for k in range(i % 60)] for i in range(3000)]
    plain, cuda = make_plain(monkeypatch, device=DEVICE), make(dtype=dtype)
    for actual, expected in zip(cuda.layers(sentences), plain.layers(sentences), strict=True):
        np.testing.assert_allclose(actual, expected, atol=limit)
    pooled = cuda.encode(sentences)
    assert pooled.dtype == (np.float16 if dtype == "float16" else np.float32)
    np.testing.assert_allclose(pooled, plain.encode(sentences), atol=limit)
