"""8-bit storage: the error is at most half a scale, a second conversion is exact, and scales are validated."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from in_process_cli import run_in_process
from models_with_head import tiny_with_head
from published_models import write_model
from safetensors.torch import load_file, save_file
from test_store import assert_same, make_manifest

import elmo
from elmo.errors import ConfigError, WeightsError
from elmo.model.config import PRESETS
from elmo.weights.formats import read_model
from elmo.weights.lookup import tiny_random
from elmo.weights.model_parts import build
from elmo.weights.quantize import MAX_VALUE, dequantize, output_dim, quantize
from elmo.weights.store import read_store, save_store

any_float = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**126), max_value=2.0**126)
matrices = arrays.arrays(np.float32, arrays.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=any_float)


@pytest.fixture
def stored(tmp_path) -> Path:
    save_store(tmp_path / "model", tiny_with_head(), storage="int8")
    return tmp_path / "model"


@settings(max_examples=150)
@given(matrix=matrices, dim=st.sampled_from([0, 1]))
def test_no_weight_changes_by_more_than_half_its_scale(matrix, dim):
    values, scale = quantize(torch.from_numpy(matrix), dim)
    restored = dequantize(values, scale, dim, "the matrix")
    error = (restored.double() - torch.from_numpy(matrix).double()).abs()
    bound = (scale.double() / 2).unsqueeze(1 - dim) * (1 + 1e-9)
    assert bool((error <= torch.maximum(bound, torch.tensor(MAX_VALUE * 2.0**-126))).all())


@settings(max_examples=150)
@given(matrix=matrices, dim=st.sampled_from([0, 1]))
def test_dequantised_matrix_quantises_to_the_same_bytes(matrix, dim):
    values, scale = quantize(torch.from_numpy(matrix), dim)
    restored = dequantize(values, scale, dim, "the matrix")
    exact = values.double() * scale.double().unsqueeze(1 - dim)
    assert torch.equal(restored.double(), exact)  # each product is exact
    second_values, second_scale = quantize(restored, dim)
    assert torch.equal(second_values, values)
    assert torch.equal(second_scale.view(torch.int32), scale.view(torch.int32))


def test_worked_example():
    values, scale = quantize(torch.tensor([[127.0, -63.5, 0.4], [0.0, 0.0, 0.0]]), 0)
    assert values.tolist() == [[127, -64, 0], [0, 0, 0]]  # -63.5 is halfway and rounds to even
    assert scale.tolist() == [1.0, 0.0]
    columns, scales = quantize(torch.tensor([[127.0, 1.0], [1.0, 1.0]]), 1)
    assert columns.tolist() == [[127, 127], [1, 127]]
    assert scales[0] == 1.0
    assert scales[1] == pytest.approx(1 / 127, rel=2**-16)


def test_outputs_of_lstm_matrices_are_columns():
    assert [output_dim(f"stacks.1.layers.0.{name}") for name in ("kernel", "projection")] == [1, 1]
    assert [output_dim(name) for name in ("head.weight", "token_encoder.project.weight")] == [0, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3.4028235e38])
def test_values_that_no_scale_fits_are_refused(bad):
    with pytest.raises(ConfigError, match=r"NaN or infinite|too large for int8"):
        quantize(torch.tensor([[1.0, bad]]), 0)


def test_saving_a_read_model_gives_the_same_bytes(tmp_path, stored):
    first = read_store(stored)
    save_store(tmp_path / "second", first, storage="int8")
    assert sorted(p.name for p in stored.iterdir()) == sorted(p.name for p in (tmp_path / "second").iterdir())
    for path in stored.iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes(), path.name
    assert {tensor.dtype for tensor in first.tensors.values()} == {torch.float32}
    for name, tensor in build(first).state_dict().items():
        assert torch.equal(tensor, first.tensors[name])


def test_int8_is_a_quarter_of_float32(tmp_path, stored):
    save_store(tmp_path / "float32", tiny_with_head())
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (tmp_path / "float32", stored)]
    assert 3.5 < sizes[0] / sizes[1] < 4.0
    assert json.loads((stored / "config.json").read_text())["storage"] == "int8"


def test_published_layout_of_an_int8_model_is_identical(capsys, tmp_path, stored):
    done = run_in_process(capsys, "convert", str(stored), "--out", str(tmp_path / "pair"), "--to", "hdf5")
    assert done.returncode == 0, done.stderr
    ours, published = read_store(stored), read_model(tmp_path / "pair")
    assert published.tensors.keys() == ours.tensors.keys()
    for name, tensor in ours.tensors.items():
        assert torch.equal(published.tensors[name], tensor), name
    vectors = [elmo.load(str(folder), device="cpu").embed("The cat sat .") for folder in (stored, tmp_path / "pair")]
    assert (vectors[0] == vectors[1]).all()


@pytest.mark.parametrize("seed", range(3))
def test_every_kind_of_model_is_stored_in_int8(capsys, tmp_path, seed):
    write_model(tmp_path / "a", seed, vocab=True, softmax=True, bidirectional=seed % 2 == 0)
    arguments = ["convert", str(tmp_path / "a"), str(tmp_path / "b"), "--storage", "int8", "--name", "mine"]
    done = run_in_process(capsys, *arguments)
    assert done.returncode == 0, done.stderr
    assert "not exact: matrices are rounded to int8" in done.stderr
    parts = read_model(tmp_path / "b")
    assert (parts.storage, parts.about["name"]) == ("int8", "mine")
    build(parts)
    second = run_in_process(capsys, "convert", str(tmp_path / "b"), str(tmp_path / "c"), "--storage", "int8")
    assert (second.returncode, second.stderr) == (0, "")  # nothing is rounded a second time


def test_folders_of_version_1_are_read(tmp_path):
    parts = tiny_with_head()
    save_store(tmp_path / "m", dataclasses.replace(parts, card="# Mine\n"))
    folder = tmp_path / "m"
    save_file(
        load_file(folder / "model.safetensors") | load_file(folder / "head.safetensors"), folder / "model.safetensors"
    )
    (folder / "head.safetensors").unlink()
    settings = json.loads((folder / "config.json").read_text())
    del settings["storage"]
    (folder / "config.json").write_text(json.dumps(settings | {"version": 1}))
    make_manifest(folder)
    assert_same(read_store(folder), parts)
    assert_same(read_store(folder, lazy_head=True), parts)


def test_a_large_word_list_is_compressed(tmp_path):
    words = ("<S>", "</S>", "<UNK>", "café", *(f"word{n}" for n in range(40_000)))
    save_store(tmp_path / "m", dataclasses.replace(tiny_random(), vocab=words))
    assert not (tmp_path / "m" / "vocab.txt").exists()
    assert (tmp_path / "m" / "vocab.txt.xz").stat().st_size < 100_000
    assert read_store(tmp_path / "m").vocab == words


KERNEL = "stacks.0.layers.0.kernel"
SCALES = f"{KERNEL}.scale"


@pytest.mark.parametrize(
    "change",
    [
        lambda t: {SCALES: torch.full_like(t[SCALES], torch.nan)},
        lambda t: {SCALES: -t[SCALES]},
        lambda t: {SCALES: torch.full_like(t[SCALES], torch.inf)},
        lambda t: {SCALES: torch.full_like(t[SCALES], 3e38)},
        lambda t: {SCALES: t[SCALES][:-1].clone()},
        lambda t: {SCALES: t[SCALES][None]},
        lambda t: {SCALES: t[SCALES].half()},
        lambda t: {SCALES: None},
        lambda t: {KERNEL: None},
        lambda t: {KERNEL: torch.full_like(t[KERNEL], -128)},
        lambda t: {KERNEL: t[KERNEL].flatten()},
        lambda t: {KERNEL: t[KERNEL].to(torch.int16)},
        lambda t: {KERNEL: t[KERNEL].float()},
        lambda t: {"stray.scale": torch.ones(2)},
        lambda t: {"head.weight": torch.ones(11, 64)},
    ],
    ids=["nan", "negative", "inf", "overflow", "short", "2-d", "half", "no scale", "no matrix", "-128", "flat", "int16",
         "float with scale", "stray scale", "softmax twice"],
)  # fmt: skip
def test_hostile_scales_are_refused_even_with_a_matching_manifest(stored, change):
    tensors = load_file(stored / "model.safetensors")
    for name, tensor in change(tensors).items():
        tensors.pop(name, None)
        if tensor is not None:
            tensors[name] = tensor
    save_file(tensors, stored / "model.safetensors")
    make_manifest(stored)
    for lazy_head in (True, False):
        if lazy_head or "head.weight" not in tensors:
            with pytest.raises(WeightsError, match=r"model"):
                build(read_store(stored, lazy_head=lazy_head))


@pytest.mark.parametrize("storage", ["int4", 8, "float32"])
def test_storage_that_contradicts_the_tensors_is_refused(stored, storage):
    settings = json.loads((stored / "config.json").read_text()) | {"storage": storage}
    (stored / "config.json").write_text(json.dumps(settings))
    make_manifest(stored)
    with pytest.raises(WeightsError, match=r"storage|int8"):
        read_store(stored)


def test_storage_is_checked_before_anything_is_read(capsys, tmp_path):
    done = run_in_process(capsys, "convert", "tiny-random", str(tmp_path / "m"), "--storage", "int4")
    assert done.returncode == 2
    assert "float32, float16, int8" in done.stderr
    assert run_in_process(capsys, "convert", "tiny-random").returncode == 2
    assert list(tmp_path.iterdir()) == []
    assert PRESETS["tiny"].head is None
