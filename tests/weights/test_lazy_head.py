"""A softmax left on disk: vectors never read it, scores read it once, and it is checked when it is read."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from models_with_head import scored
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
    save_store(tmp_path / "model", scored(), storage="int8")
    return tmp_path / "model"


def test_vectors_do_not_read_it_and_scores_do(stored):
    embedder = elmo.load(stored, device="cpu")
    embedder.embed("the bank of the river .")
    head = embedder.model.head
    assert isinstance(head, LazyHead)
    assert not head.is_read
    found = LanguageModel(embedder).scores("the bank of the river .")
    assert head.is_read
    whole = build(read_store(stored))
    assert torch.equal(head.weight, whole.head.weight)
    embedder.model.head = whole.head
    again = LanguageModel(embedder).scores("the bank of the river .")
    assert (found[0].forward == again[0].forward).all()


def test_it_follows_the_model_to_another_dtype(stored):
    model = build(read_store(stored, lazy_head=True)).to(torch.float64)
    assert model.head.weight.dtype == torch.float64
    assert model.to(torch.float16).head.bias.dtype == torch.float16


def test_a_state_dict_and_a_copy_are_whole(stored):
    whole = build(read_store(stored)).state_dict()
    late = build(read_store(stored, lazy_head=True))
    duplicate = copy.deepcopy(late)
    assert isinstance(duplicate.head, LazyHead)
    assert duplicate.head.is_read
    for model in (late, duplicate):
        assert model.state_dict().keys() == whole.keys()
        assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in whole.items())


def test_stored_again_it_comes_along(tmp_path, stored):
    save_store(tmp_path / "again", read_store(stored, lazy_head=True), storage="int8")
    assert (tmp_path / "again" / "head.safetensors").read_bytes() == (stored / "head.safetensors").read_bytes()


def test_a_flipped_byte_is_found_when_it_is_read(stored):
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


def test_loading_brings_in_no_compiler():
    """Filling weights that are replaced anyway once imported torch's compiler, which took longer than all the rest."""
    code = (
        "import sys, elmo; elmo.load('tiny-random', device='cpu').embed('A b .'); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


def test_threads_that_come_together_get_the_same_rows(stored):
    head = build(read_store(stored, lazy_head=True)).head
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: head.weight.clone(), range(32)))
    assert all(torch.equal(rows, head.weight) for rows in found)


def test_it_travels_and_takes_weights_like_any_module(stored):
    late = build(read_store(stored, lazy_head=True)).to(torch.float32)
    again = pickle.loads(pickle.dumps(late))
    assert torch.equal(again.head.weight, late.head.weight)
    fresh = build(read_store(stored, lazy_head=True))
    fresh.load_state_dict(late.state_dict())
    assert torch.equal(fresh.head.weight, late.head.weight)
    assert pickle.loads(pickle.dumps(elmo.load(stored, device="cpu"))).model.head.is_read


def test_it_can_learn_whoever_looked_first(stored):
    late = build(read_store(stored, lazy_head=True))
    with torch.inference_mode():
        assert not late.head.weight.requires_grad
    late.requires_grad_(True).head.weight.sum().backward()
    assert late.head.weight.grad is not None
