"""`trained_layers` gives the layers and gradients of `BiLM.forward`, with the compiled kernels and without."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from elmo.embed.trained_layers import trained_layers
from elmo.kernels.api import kernels_set_to
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, CharConfig, LSTMConfig

SENTENCES = [[3, 7, 7, 2, 9], [4], [], [5, 3, 3]]  # word numbers; frequent words repeat


def random_model(*, bidirectional: bool = True, cell_dim: int = 24) -> BiLM:
    torch.manual_seed(1)
    chars = CharConfig(filters=((1, 8), (2, 8)), char_dim=4, num_highways=1, max_chars=8)
    config = BiLMConfig(chars=chars, lstm=LSTMConfig(cell_dim=cell_dim, proj_dim=12), bidirectional=bidirectional)
    return BiLM(config)


def padded_ids(sentences: list[list[int]]) -> Tensor:
    ids = torch.zeros(len(sentences), max(map(len, sentences)), 8, dtype=torch.long)  # (B, T, C)
    for row, words in enumerate(sentences):
        for column, word in enumerate(words):
            ids[row, column, : word % 6 + 1] = torch.arange(word, word + word % 6 + 1) + 1
    return ids


def layers_and_gradients(model: BiLM, layers: Tensor) -> list[Tensor]:
    model.zero_grad(set_to_none=True)
    (layers * torch.linspace(-1, 1, layers.numel()).view(layers.shape)).sum().backward()
    return [layers.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("kernels", ["", "off"])
@pytest.mark.parametrize(
    "model",
    [random_model(), random_model(bidirectional=False), random_model(cell_dim=12)],
    ids=["both directions", "one direction", "no projection"],
)
def test_layers_and_gradients_are_those_of_the_plain_network(model: BiLM, kernels: str) -> None:
    ids = padded_ids(SENTENCES)
    plain = layers_and_gradients(model, model(ids).layers)
    with kernels_set_to(kernels):
        ours = layers_and_gradients(model, trained_layers(model, ids))
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_second_batch_of_another_shape_is_right() -> None:
    model = random_model()
    for sentences in (SENTENCES, [[9, 8]], SENTENCES[::-1] + [[2, 3, 4, 5, 6, 7]]):
        ids = padded_ids(sentences)
        torch.testing.assert_close(trained_layers(model, ids), model(ids).layers, rtol=1e-4, atol=1e-6)


def test_weights_in_double_precision_use_the_plain_network() -> None:
    model = random_model().double()
    ids = padded_ids(SENTENCES)
    torch.testing.assert_close(trained_layers(model, ids), model(ids).layers)
