"""The lazy softmax: embedding does not read it, scoring reads it once, and it is verified when it is read."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from models_with_head import tiny_with_head
from test_store import make_manifest

import elmo
from elmo.embed.lm import LanguageModel
from elmo.errors import WeightsError
from elmo.weights.lazy_head import LazyHead
from elmo.weights.model_parts import build
from elmo.weights.store import read_store, save_store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def stored(tmp_path) -> Path:
    save_store(tmp_path / "model", tiny_with_head(), storage="int8")
    return tmp_path / "model"


def test_embedding_does_not_read_it_and_scoring_does(stored):
    embedder = elmo.load(stored, device="cpu")
    embedder.embed("the bank of the river .")
    head = embedder.model.head
    assert isinstance(head, LazyHead)
    assert not head.is_read
    scores = LanguageModel(embedder).scores("the bank of the river .")
    assert head.is_read
    eager = build(read_store(stored))
    assert torch.equal(head.weight, eager.head.weight)
    embedder.model.head = eager.head
    eager_scores = LanguageModel(embedder).scores("the bank of the river .")
    assert (scores[0].forward == eager_scores[0].forward).all()


def test_it_is_read_in_the_dtype_of_the_model(stored):
    model = build(read_store(stored, lazy_head=True)).to(torch.float64)
    assert model.head.weight.dtype == torch.float64
    assert model.to(torch.float16).head.bias.dtype == torch.float16


def test_state_dict_and_copy_include_it(stored):
    expected = build(read_store(stored)).state_dict()
    lazy = build(read_store(stored, lazy_head=True))
    duplicate = copy.deepcopy(lazy)
    assert isinstance(duplicate.head, LazyHead)
    assert duplicate.head.is_read
    for model in (lazy, duplicate):
        assert model.state_dict().keys() == expected.keys()
        assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in expected.items())


def test_saving_the_model_includes_it(tmp_path, stored):
    save_store(tmp_path / "second", read_store(stored, lazy_head=True), storage="int8")
    assert (tmp_path / "second" / "head.safetensors").read_bytes() == (stored / "head.safetensors").read_bytes()


def test_a_flipped_byte_is_detected_when_it_is_read(stored):
    data = bytearray((stored / "head.safetensors").read_bytes())
    data[-9] ^= 1
    (stored / "head.safetensors").write_bytes(data)
    lm = LanguageModel(elmo.load(stored, device="cpu"))
    with pytest.raises(WeightsError, match=r"head\.safetensors is not the file its manifest describes"):
        lm.scores("the bank .")
    with pytest.raises(WeightsError, match=r"head\.safetensors"):
        read_store(stored)


def test_a_softmax_of_another_model_is_refused(stored):
    (stored / "head.safetensors").write_bytes((stored / "model.safetensors").read_bytes())
    make_manifest(stored)
    with pytest.raises(WeightsError, match="not a tensor of a softmax"):
        LanguageModel(elmo.load(stored, device="cpu")).scores("the bank .")


def test_loading_does_not_import_torch_dynamo():
    """Initialising weights that are replaced anyway used to import torch's compiler, which took most of the time."""
    code = (
        "import sys, elmo; elmo.load('tiny-random', device='cpu').embed('A b .'); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_concurrent_threads_get_the_same_weights(stored):
    head = build(read_store(stored, lazy_head=True)).head
    with ThreadPoolExecutor(8) as pool:
        copies = list(pool.map(lambda _: head.weight.clone(), range(32)))
    assert all(torch.equal(weight, head.weight) for weight in copies)


def test_it_can_be_pickled_and_loads_a_state_dict(stored):
    lazy = build(read_store(stored, lazy_head=True)).to(torch.float32)
    unpickled = pickle.loads(pickle.dumps(lazy))
    assert torch.equal(unpickled.head.weight, lazy.head.weight)
    fresh = build(read_store(stored, lazy_head=True))
    fresh.load_state_dict(lazy.state_dict())
    assert torch.equal(fresh.head.weight, lazy.head.weight)
    assert pickle.loads(pickle.dumps(elmo.load(stored, device="cpu"))).model.head.is_read


def test_it_can_be_trained_after_a_read_in_inference_mode(stored):
    lazy = build(read_store(stored, lazy_head=True))
    with torch.inference_mode():
        assert not lazy.head.weight.requires_grad
    lazy.requires_grad_(True).head.weight.sum().backward()
    assert lazy.head.weight.grad is not None
