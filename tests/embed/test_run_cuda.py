"""The embedder through the CUDA twin: what the plain path gives, in every form it can be asked for.

On CUDA, or in Triton's interpreter: see triton_here.
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

SAME = 2e-5
TEXT = SENTENCES if CUDA else [["The", "Ünïcödé", "🙂"], ["one"], ["The", "one", "a" * 300, "."]]
SOME = [TEXT[0], [], *TEXT[1:]]


@pytest.fixture(autouse=True)
def _twin_here(monkeypatch) -> None:
    if not CUDA:
        monkeypatch.setattr(packing, "BUCKETS", (2,))  # the interpreter takes a millisecond for a row
        monkeypatch.setitem(kernels.IMPLEMENTATIONS, ("bilm_bulk", "cpu"), kernels.IMPLEMENTATIONS["bilm_bulk", "cuda"])


def make(**options: Any) -> Embedder:
    return golden_embedder("allennlp", device=DEVICE, **options)


def make_plain(monkeypatch, **options: Any) -> Embedder:
    with monkeypatch.context() as changed:
        changed.setenv("ELMO_KERNELS", "off")
        return golden_embedder("allennlp", **options)


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_vectors_are_those_of_the_plain_path(state: str, monkeypatch) -> None:
    fast, plain = make(state=state), make_plain(monkeypatch, state=state)
    for layers in ("all", "average"):
        for mine, truth in zip(fast.embed(SOME, layers=layers), plain.embed(SOME, layers=layers), strict=True):
            assert mine.shape == truth.shape
            assert mine.dtype == truth.dtype
            np.testing.assert_allclose(mine, truth, atol=SAME)
    np.testing.assert_allclose(fast.encode(SOME), plain.encode(SOME), atol=SAME)
    assert len(fast.words) == 0  # the plain path's memory: it was not asked


def test_pooled_forms(monkeypatch) -> None:
    fast, plain = make(), make_plain(monkeypatch)
    for options in ({"pooling": "max", "layers": "all"}, {"layers": [0.5, 0.25, 0.0], "normalize_embeddings": True}):
        np.testing.assert_allclose(fast.encode(SOME, **options), plain.encode(SOME, **options), atol=SAME)
    assert fast.encode(["One ."])[0].shape == fast.encode("One .").shape == (32,)
    assert fast.encode([]).shape == (0, 32)
    assert fast.encode([[], []]).tolist() == np.zeros((2, 32)).tolist()


def test_torch_vectors_can_be_learned_from() -> None:
    (vectors,) = make().embed([TEXT[0]], output="torch")
    assert vectors.device.type == DEVICE
    weight = torch.ones(32, device=DEVICE, requires_grad=True)
    (vectors @ weight).sum().backward()
    assert weight.grad is not None


def test_small_windows_and_a_small_memory_change_nothing(monkeypatch) -> None:
    monkeypatch.setattr("elmo.embed.run.cuda.BATCHES_PER_WINDOW", 1)
    plain = make_plain(monkeypatch)
    small = make(cache_words=2)
    found = small.embed([*TEXT, *TEXT], max_tokens=5)
    for mine, truth in zip(found, plain.embed([*TEXT, *TEXT]), strict=True):
        np.testing.assert_allclose(mine, truth, atol=SAME)


@pytest.mark.parametrize("kind", ["allennlp", "bilm-tf"])
def test_carry_replays_the_reference(kind: str) -> None:
    embedder = golden_embedder(kind, state="carry", device=DEVICE)
    for sentences, expected in golden_batches(kind):
        for vectors, wanted in zip(embedder.embed(sentences, layers="top"), expected, strict=True):
            np.testing.assert_allclose(vectors, wanted, atol=SAME)


@pytest.mark.parametrize("kind", ["allennlp", "bilm-tf"])
def test_first_batches_replay_the_reference(kind: str) -> None:
    sentences, expected = next(golden_batches(kind))  # nothing is carried yet
    count = 3 if CUDA else 1
    found = golden_embedder(kind, device=DEVICE).embed(sentences[:count], layers="top")
    for vectors, wanted in zip(found, expected[:count], strict=True):
        np.testing.assert_allclose(vectors, wanted, atol=SAME)


def test_a_failure_is_no_memory(monkeypatch) -> None:
    embedder = make()
    expected = embedder.embed([["a", "b"]])[0]
    other = make()
    with monkeypatch.context() as broken:
        broken.setattr(other.model.token_encoder, "forward", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            other.embed([["a", "b"]])
    np.testing.assert_allclose(other.embed([["a", "b"]])[0], expected, atol=SAME)


def test_copies_and_threads() -> None:
    embedder = pickle.loads(pickle.dumps(make()))
    expected = embedder.embed([TEXT[0]])[0]
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        found[number] = embedder.embed([TEXT[0], [f"other{number}"]])[0]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        np.testing.assert_allclose(found[number], expected, atol=SAME)


def test_the_switch_turns_it_off(monkeypatch) -> None:
    monkeypatch.setenv("ELMO_KERNELS", "off")
    embedder = make()
    embedder.embed([["word"]])
    assert len(embedder.words) == 1  # the plain path was asked


@pytest.mark.skipif(not CUDA, reason="halves and size are for the GPU")
@pytest.mark.parametrize(("dtype", "limit"), [("float16", 5e-3), ("bfloat16", 5e-2), ("float32", SAME)])
def test_much_text_on_the_gpu(dtype: str, limit: float, monkeypatch) -> None:
    sentences = [[f"w{i * k % 997}" for k in range(i % 60)] for i in range(3000)]
    plain, fast = make_plain(monkeypatch, device=DEVICE), make(dtype=dtype)
    for mine, truth in zip(fast.layers(sentences), plain.layers(sentences), strict=True):
        np.testing.assert_allclose(mine, truth, atol=limit)
    pooled = fast.encode(sentences)
    assert pooled.dtype == (np.float16 if dtype == "float16" else np.float32)
    np.testing.assert_allclose(pooled, plain.encode(sentences), atol=limit)
