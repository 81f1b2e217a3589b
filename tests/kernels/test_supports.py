"""The lookup of kernels: what an implementation does not support is never computed by it, and is logged once."""

from __future__ import annotations

import logging

import pytest
import torch

from elmo.kernels import api as kernels
from elmo.kernels.api import find_kernel, why_unsupported
from elmo.kernels.cpu.native import NativeBiLM
from elmo.kernels.cpu.pytorch import TorchBiLM
from elmo.kernels.cuda.supports import projected_lstms, short_tokens
from elmo.kernels.implementations import IMPLEMENTATIONS, Implementation
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, CharConfig, LSTMConfig


def make_model(activation: str = "relu", max_chars: int = 50, proj_dim: int = 5) -> BiLM:
    chars = CharConfig(filters=((1, 4), (2, 4)), num_highways=1, max_chars=max_chars, activation=activation)
    return BiLM(BiLMConfig(chars=chars, lstm=LSTMConfig(cell_dim=8, proj_dim=proj_dim)))


def gelu_model() -> BiLM:
    model = make_model()
    assert model.token_encoder.chars is not None
    model.token_encoder.chars.activation = torch.nn.functional.gelu
    return model


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_compiled_kernels_support_both_configured_activations(activation: str) -> None:
    assert NativeBiLM.supports(make_model(activation)) is None


def test_compiled_kernels_refuse_another_activation() -> None:
    assert "gelu" in (NativeBiLM.supports(gelu_model()) or "")
    assert TorchBiLM.supports(gelu_model()) is None  # it calls the model's own function


def test_fused_lstms_need_a_projection() -> None:
    assert projected_lstms(make_model()) is None
    assert projected_lstms(make_model(proj_dim=8)) is not None


def test_convolutions_on_cuda_refuse_tokens_with_too_many_windows() -> None:
    assert short_tokens(make_model(max_chars=256)) is None  # 256 windows of width 1
    assert short_tokens(make_model(max_chars=257)) is not None


def test_the_lookup_takes_the_next_implementation_that_supports_the_model(monkeypatch, caplog) -> None:
    picky = Implementation(call=min, supports=lambda model: "a reason of this test")
    general = Implementation(call=max, supports=lambda model: None)
    table = {"float32": (lambda *_: picky, lambda *_: general), "int8": (lambda *_: picky,)}
    monkeypatch.setitem(IMPLEMENTATIONS, ("bilm", "cpu"), table)
    model = make_model()
    with caplog.at_level(logging.WARNING, logger=kernels.__name__):
        for _ in range(3):
            assert find_kernel("bilm", "cpu", "float32", model) is max
        assert len(caplog.records) == 1
        assert find_kernel("bilm", "cpu", "int8", model) is None
    assert find_kernel("bilm", "cpu", "float32") is min  # no model, no question
    assert why_unsupported("bilm", "cpu", "int8", model) == "a reason of this test"
