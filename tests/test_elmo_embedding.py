"""elmo.ElmoEmbedding: the biLM with its mix of layers as a module of a PyTorch model."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import elmo
from elmo.errors import ConfigError
from elmo.weights.lookup import tiny_random

SENTENCES = [["The", "bank", "of", "the", "river", "."], ["Rain"], [], ["naïve", "日本", "x" * 300]]


def expected_layers(model: Any = "tiny-random") -> list[np.ndarray]:
    return elmo.load(model, device="cpu").layers(SENTENCES)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_vectors_are_the_mix_of_the_layers_of_the_embedder(requires_grad):
    embedding = elmo.ElmoEmbedding("tiny-random", requires_grad=requires_grad)
    with torch.no_grad():
        embedding.mix.weights.copy_(torch.tensor([0.5, -1.0, 2.0]))
        embedding.mix.gamma.fill_(0.7)
    vectors, mask = embedding(SENTENCES)
    assert vectors.shape == (4, 6, embedding.dim)
    assert mask.sum(dim=1).tolist() == [6, 1, 0, 3]
    weights = 0.7 * torch.softmax(torch.tensor([0.5, -1.0, 2.0]), dim=0).numpy()
    for row, layers in zip(vectors.detach().numpy(), expected_layers(), strict=True):
        num_tokens = layers.shape[1]
        # 1e-5: the trained path sums in another order than the kernels
        np.testing.assert_allclose(row[:num_tokens], np.tensordot(weights, layers, 1), atol=1e-5)
        assert not row[num_tokens:].any()


def test_only_the_mix_is_trained_by_default():
    embedding = elmo.ElmoEmbedding("tiny-random")
    embedding(SENTENCES)[0].pow(2).sum().backward()
    assert {name for name, p in embedding.named_parameters() if p.requires_grad} == {"mix.weights", "mix.gamma"}
    assert all(p.grad is None for p in embedding.bilm.parameters())
    assert embedding.mix.weights.grad.abs().sum() > 0


def test_requires_grad_trains_every_weight_of_the_bilm():
    embedding = elmo.ElmoEmbedding("tiny-random", requires_grad=True)
    embedding(SENTENCES)[0].pow(2).sum().backward()
    assert [name for name, p in embedding.named_parameters() if p.grad is None or not p.grad.abs().sum()] == []


@pytest.mark.parametrize("fused", [False, True])
def test_a_bilm_that_is_unfrozen_and_frozen_again_has_its_new_weights(fused):
    embedding = elmo.ElmoEmbedding("tiny-random")
    before, _ = embedding(SENTENCES)
    embedding.bilm.requires_grad_(True)
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.01, fused=fused)  # fused: torch counts no change
    embedding(SENTENCES)[0].pow(2).sum().backward()
    optimizer.step()
    trained, _ = embedding(SENTENCES)
    embedding.bilm.requires_grad_(False)
    frozen, _ = embedding(SENTENCES)
    assert not torch.allclose(before, trained, atol=1e-3)
    torch.testing.assert_close(frozen, trained, atol=1e-5, rtol=1e-5)


def test_modules_of_the_same_parts_have_weights_of_their_own():
    parts = tiny_random()
    trained, frozen = elmo.ElmoEmbedding(parts, requires_grad=True), elmo.ElmoEmbedding(parts)
    before, _ = frozen(SENTENCES)
    with torch.no_grad():
        for parameter in trained.bilm.parameters():
            parameter.zero_()
    assert torch.equal(frozen(SENTENCES)[0], before)
    assert torch.equal(elmo.ElmoEmbedding(parts)(SENTENCES)[0], before)


def test_a_loaded_state_dict_replaces_the_weights_that_were_used_before():
    source = elmo.ElmoEmbedding(tiny_random(seed=1), layer_norm="token")
    with torch.no_grad():
        source.mix.weights.uniform_()
    target = elmo.ElmoEmbedding("tiny-random", layer_norm="token")
    assert not torch.allclose(source(SENTENCES)[0], target(SENTENCES)[0], atol=1e-2)
    buffer = io.BytesIO()
    torch.save(source.state_dict(), buffer)
    buffer.seek(0)
    target.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(source(SENTENCES)[0], target(SENTENCES)[0])


def test_copies_and_pickles_have_weights_of_their_own():
    embedding = elmo.ElmoEmbedding("tiny-random")
    vectors, _ = embedding(SENTENCES)
    for twin in (copy.deepcopy(embedding), pickle.loads(pickle.dumps(embedding))):
        assert torch.equal(twin(SENTENCES)[0], vectors)
        with torch.no_grad():
            next(twin.bilm.parameters()).zero_()
        assert not torch.equal(twin(SENTENCES)[0], vectors)
    assert torch.equal(embedding(SENTENCES)[0], vectors)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_conversion_changes_weights_and_vectors(dtype):
    embedding = elmo.ElmoEmbedding("tiny-random").to(dtype)
    vectors, _ = embedding(SENTENCES)
    assert {vectors.dtype} == {p.dtype for p in embedding.parameters()} == {dtype}
    reference = elmo.ElmoEmbedding("tiny-random")(SENTENCES)[0]
    torch.testing.assert_close(vectors.float(), reference, atol=0.05, rtol=0)  # bfloat16 has 8 bits
    assert {p.dtype for p in embedding.parameters()} == {dtype}  # the embedder did not change the module


def test_weights_on_two_types_are_an_error():
    embedding = elmo.ElmoEmbedding("tiny-random")
    embedding.bilm.token_encoder.double()
    with pytest.raises(ConfigError, match=r"torch\.float32 on cpu, torch\.float64 on cpu"):
        embedding(SENTENCES)


def test_a_move_to_another_device_is_followed():
    embedding = elmo.ElmoEmbedding("tiny-random").to("meta")  # a device without values, on every machine
    assert embedding([])[0].device.type == "meta"
    assert {p.device.type for p in embedding.parameters()} == {"meta"}


@pytest.mark.gpu
def test_the_module_moves_to_a_gpu_and_back():
    embedding = elmo.ElmoEmbedding("tiny-random", requires_grad=False)
    before, _ = embedding(SENTENCES)
    on_gpu, mask = embedding.cuda()(SENTENCES)
    assert (on_gpu.device.type, mask.device.type) == ("cuda", "cuda")
    torch.testing.assert_close(on_gpu.cpu(), before, atol=1e-3, rtol=0)
    assert torch.equal(embedding.cpu()(SENTENCES)[0], before)


@pytest.mark.parametrize(("batch", "shape"), [([], (0, 0)), ([[], []], (2, 0)), ("One text.", (1, 3))])
def test_batches_without_tokens_and_single_texts(batch, shape):
    embedding = elmo.ElmoEmbedding("tiny-random")
    vectors, mask = embedding(batch)
    assert vectors.shape == (*shape, embedding.dim)
    assert mask.shape == shape


def test_word_models_and_models_with_a_softmax_are_modules_too():
    parts = tiny_random()
    config = dataclasses.replace(parts.config, head=elmo.model.config.HeadConfig(vocab_size=5))
    head = {"head.weight": torch.zeros(5, config.lstm.proj_dim), "head.bias": torch.zeros(5)}
    words = ("<S>", "</S>", "<UNK>", "the", "river")
    embedding = elmo.ElmoEmbedding(dataclasses.replace(parts, config=config, tensors=parts.tensors | head, vocab=words))
    assert not [name for name in embedding.state_dict() if "head" in name]
    assert torch.equal(embedding(SENTENCES)[0], elmo.ElmoEmbedding("tiny-random")(SENTENCES)[0])


def test_a_tagger_learns_from_its_layers():
    torch.manual_seed(0)
    embedding = elmo.ElmoEmbedding("tiny-random", dropout=0.1)
    tagger = nn.Linear(embedding.dim, 2)
    optimizer = torch.optim.Adam([*embedding.mix.parameters(), *tagger.parameters()], lr=0.05)
    sentences, gold = [["red", "cat"], ["cat", "sat"]], torch.tensor([[1, 0], [0, 0]])
    losses = []
    for _ in range(30):
        vectors, mask = embedding(sentences)
        loss = nn.functional.cross_entropy(tagger(vectors)[mask], gold[mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
