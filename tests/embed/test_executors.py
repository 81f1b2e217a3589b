"""All executors give the same vectors; the CUDA executor runs here on a reference implementation of its kernels."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from golden import SENTENCES, golden_embedder, golden_model, golden_parts
from torch import Tensor

from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import choose_layers
from elmo.errors import ConfigError
from elmo.kernels import api as kernels
from elmo.kernels.api import find_kernel
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.text.indexer import ByteIndexer
from elmo.weights.model_parts import build

WITH_EMPTY = [SENTENCES[0], [], *SENTENCES[1:], []]


class ReadyTensor:
    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def wait(self) -> Tensor:
        return self._tensor


class ReferenceGpuBiLM:
    """`GpuBiLM` in plain PyTorch on the CPU, one sentence at a time."""

    def __init__(self, model: BiLM) -> None:
        parameter = next(model.parameters())
        self.model, self.proj_dim = model, model.config.lstm.proj_dim
        self.device, self.dtype = parameter.device, parameter.dtype

    def at_work(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    @torch.inference_mode()
    def encode_into(self, table: Tensor, first: int, rows: np.ndarray) -> None:
        table[first : first + len(rows)] = self.model.token_encoder(torch.from_numpy(rows))

    @torch.inference_mode()
    def contextualize(
        self,
        table: Tensor,
        words: np.ndarray,
        lengths: np.ndarray,
        mix: np.ndarray,
        *,
        initial: tuple[Tensor, Tensor] | None = None,
        pooling: str | None = None,
    ) -> Tensor:
        assert initial is not None
        state = State(*(part[:, :, None] for part in initial))  # (R, L, 1, ·)
        vectors = []
        for sentence in np.split(words, np.cumsum(lengths)[:-1]):
            tokens = table[torch.tensor([0, *sentence.tolist(), 1])][None]  # (1, T, P)
            layers = self.model.contextualize(tokens, torch.ones(tokens.shape[:2], dtype=torch.bool), state).layers
            vectors.append(torch.einsum("kl,lnd->knd", torch.from_numpy(mix), layers[:, 0, 1:-1]))  # (K, n, D)
        if pooling is None:
            return torch.cat(vectors, dim=1)  # (K, N, D)
        return torch.stack([v.sum(dim=1) / max(v.shape[1], 1) for v in vectors])  # (S, K, D)

    def send(self, tensor: Tensor, *, to_host: bool) -> ReadyTensor:
        return ReadyTensor(tensor)


@pytest.fixture(params=["", "torch", "cuda"])
def embedders(request, monkeypatch):
    """A function that makes an embedder on one executor and a second one on plain PyTorch."""
    cuda = kernels.Implementation(ReferenceGpuBiLM, lambda model: None)

    def make(**options: Any) -> tuple[Embedder, Embedder]:
        with monkeypatch.context() as changed:
            if request.param == "cuda":
                changed.setitem(kernels.IMPLEMENTATIONS, ("bilm_bulk", "cpu"), {"float32": (lambda *_: cuda,)})
            else:
                changed.setenv("ELMO_KERNELS", request.param)
            embedder = golden_embedder("allennlp", **options)
        with kernels.kernels_set_to("off"):
            return embedder, golden_embedder("allennlp", **options)

    return make


@pytest.mark.parametrize("state", ["reset", "warm", "carry"])
def test_vectors_equal_those_of_plain_pytorch(embedders, state: str) -> None:
    embedder, plain = embedders(state=state)
    for _ in range(2):  # the second call reads cached words and, with "carry", the stored state
        for actual, expected in zip(embedder.layers(WITH_EMPTY), plain.layers(WITH_EMPTY), strict=True):
            assert actual.shape == expected.shape
            np.testing.assert_allclose(actual, expected, atol=1e-5)
    for actual, expected in zip(embedder.stream(WITH_EMPTY, max_tokens=5), plain.stream(WITH_EMPTY), strict=True):
        if state != "carry":
            np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("layers", ["all", "top"])
def test_pooled_vectors_equal_those_of_plain_pytorch(embedders, layers: str) -> None:
    embedder, plain = embedders()
    np.testing.assert_allclose(
        embedder.encode(WITH_EMPTY, layers=layers), plain.encode(WITH_EMPTY, layers=layers), atol=1e-5
    )
    assert sum(num_tokens for _, num_tokens in embedder.pooled(WITH_EMPTY)) == sum(map(len, WITH_EMPTY))


@pytest.mark.parametrize("state", ["reset", "carry"])
def test_padded_batches_equal_those_of_plain_pytorch(embedders, state: str) -> None:
    runs = [embedder.run(WITH_EMPTY, choose_layers("all", 3), batch_size=2) for embedder in embedders(state=state)]
    for (numbers, layers), (expected_numbers, expected) in zip(*runs, strict=True):
        assert numbers.tolist() == expected_numbers.tolist()
        torch.testing.assert_close(layers, expected, atol=1e-5, rtol=0)


def test_copies_small_caches_and_cleared_caches_change_nothing(embedders) -> None:
    embedder, plain = embedders(cache_words=2)
    expected = plain.embed(SENTENCES)
    for candidate in (embedder, pickle.loads(pickle.dumps(embedder))):
        for _ in range(2):
            for actual, vectors in zip(candidate.embed(SENTENCES), expected, strict=True):
                np.testing.assert_allclose(actual, vectors, atol=1e-5)
            candidate.forget_words()


@pytest.mark.parametrize("choice", ["", "torch", "off"])
def test_a_suspended_batch_leaves_the_callers_gradient_mode_alone(choice: str) -> None:
    with kernels.kernels_set_to(choice):
        embedder = golden_embedder("allennlp")
    batches = embedder.run(SENTENCES, choose_layers("all", embedder.num_layers), batch_size=1)
    next(batches)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(("cell_clip", "outcome"), [(3.0, "silent"), (0.2, "warned"), (0.02, "refused")])
def test_int8_of_a_model_with_a_tiny_clip_is_warned_of_or_refused(cell_clip, outcome, caplog) -> None:
    """8 bits keep outputs of a cell above 1/254 only; with a clip of 0.02 the cosine with float32 was 0.85."""
    if find_kernel("bilm", "cpu", "int8", golden_model("allennlp")) is None:
        pytest.skip("this machine has no 8-bit kernels")
    plain = golden_parts("allennlp")
    lstm = dataclasses.replace(plain.config.lstm, cell_clip=cell_clip)
    parts = dataclasses.replace(plain, config=dataclasses.replace(plain.config, lstm=lstm))
    if outcome == "refused":
        with pytest.raises(ConfigError, match=r"cell_clip is 0\.02"):
            Embedder(build(parts), ByteIndexer(), dtype="int8")
        return
    with caplog.at_level(logging.WARNING):
        Embedder(build(parts), ByteIndexer(), dtype="int8")
    assert bool(caplog.records) == (outcome == "warned")


@pytest.mark.parametrize("state", ["reset", "warm", "carry"])
def test_autocast_of_the_caller_changes_no_vector(embedders, state: str) -> None:
    """The first call in autocast packed filters in bfloat16, which the kernels read as float32, now and ever after."""
    embedder, plain = embedders(state=state)
    with torch.autocast("cpu", torch.bfloat16):
        first = embedder.layers(WITH_EMPTY)
    for actual in (first, embedder.layers(WITH_EMPTY)):  # the second call reads cached words and stored states
        for vectors, expected in zip(actual, plain.layers(WITH_EMPTY), strict=True):
            np.testing.assert_allclose(vectors, expected, atol=1e-5)


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_torchs_default_dtype_changes_no_vector(embedders, default: torch.dtype) -> None:
    """Empty sentences got the default dtype, and PyTorch's CPU path stopped with an error about index put."""
    embedder, plain = embedders()
    expected = plain.layers(WITH_EMPTY)
    torch.set_default_dtype(default)
    try:
        actual = [*embedder.layers(WITH_EMPTY), embedder.layers([[]])[0]]
    finally:
        torch.set_default_dtype(torch.float32)
    for vectors, wanted in zip(actual, [*expected, expected[1]], strict=True):
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, wanted, atol=1e-5)
