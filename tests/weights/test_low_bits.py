"""Softmax in 4 to 6 bits: error bounds, exact re-storing, sizes, lazy reading, the command, and damaged files."""

from __future__ import annotations

import itertools
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
from safetensors.torch import load_file, save_file
from test_store import make_manifest

import elmo
from elmo.embed.lm import LanguageModel
from elmo.errors import ConfigError, WeightsError
from elmo.weights.convert import drop_head
from elmo.weights.low_bits import BITS, GROUP, make_levels, pack_matrix, unpack_matrix
from elmo.weights.store import read_store, save_store

any_weight = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-100, max_value=100)
shapes = st.tuples(st.integers(1, 4), st.sampled_from([1, 7, 8, 63, 64, 65, 130]))
matrices = arrays.arrays(np.float32, shapes, elements=any_weight)


def round_trip(matrix: torch.Tensor, bits: int) -> torch.Tensor:
    return unpack_matrix("head.weight", pack_matrix("head.weight", matrix, bits), bits, "the file")


@settings(max_examples=100)
@given(matrix=matrices, bits=st.sampled_from(BITS))
def test_each_weight_is_stored_as_the_nearest_level_of_its_group(matrix, bits):
    restored = round_trip(torch.from_numpy(matrix), bits).numpy()
    levels = make_levels(bits).numpy()
    for start in range(0, matrix.shape[1], GROUP):  # slowly, without the packing
        group = matrix[:, start : start + GROUP]
        scale = np.abs(group).max(axis=1, keepdims=True).astype(np.float16).astype(np.float32)
        candidates = scale[:, :, None] * levels  # (rows, 1, levels)
        smallest = np.abs(group[:, :, None] - candidates).min(axis=2)
        error = np.abs(group - restored[:, start : start + GROUP])
        assert (error <= smallest + 1e-6 * scale).all()


@settings(max_examples=100)
@given(matrix=matrices, bits=st.sampled_from(BITS))
def test_a_matrix_that_was_read_is_stored_again_as_the_same_bytes(matrix, bits):
    first = pack_matrix("m", torch.from_numpy(matrix), bits)
    second = pack_matrix("m", unpack_matrix("m", first, bits, "the file"), bits)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("bits", BITS)
def test_levels_ascend_from_minus_one_to_one_and_are_symmetric(bits):
    levels = make_levels(bits)
    assert len(levels) == 2**bits
    assert bool((levels[1:] > levels[:-1]).all())
    torch.testing.assert_close(levels, -levels.flip(0), atol=1e-6, rtol=0)
    assert (float(levels[0]), float(levels[-1])) == (-1, 1)


def test_more_bits_have_a_smaller_error_on_normal_weights():
    matrix = torch.randn(500, 256, generator=torch.Generator().manual_seed(0))
    errors = [float((round_trip(matrix, bits) - matrix).square().mean()) for bits in BITS]
    # per bit, an ideal quantiser has a quarter of the squared error
    assert errors[0] < 0.0085
    assert all(more < 0.27 * fewer for fewer, more in itertools.pairwise(errors))


@pytest.fixture
def stored(tmp_path) -> Path:
    save_store(tmp_path / "model", tiny_with_head(), storage="int8", head_bits=5)
    return tmp_path / "model"


def test_the_head_is_read_lazily_and_scores_words(tmp_path, stored):
    embedder = elmo.load(stored, device="cpu")
    assert not embedder.model.head.is_read
    lm = LanguageModel(embedder)
    exact = tiny_with_head().tensors["head.weight"]
    save_store(tmp_path / "exact", tiny_with_head(), storage="int8")
    sentences = [["The", "cat", "sat"]]
    first, second = (lm.perplexity(sentences), LanguageModel(elmo.load(tmp_path / "exact")).perplexity(sentences))
    assert embedder.model.head.is_read
    assert first.mean == pytest.approx(second.mean, rel=0.1)
    torch.testing.assert_close(lm.head.weight, round_trip(exact, 5), atol=0, rtol=0)
    torch.testing.assert_close(read_store(stored).tensors["head.weight"], lm.head.weight, atol=0, rtol=0)


@pytest.mark.parametrize("bits", BITS)
def test_the_tensors_have_the_size_that_the_bits_promise(bits):
    stored = pack_matrix("head.weight", torch.randn(4000, 256), bits)
    size = sum(tensor.numel() * tensor.element_size() for tensor in stored.values())
    assert size == 4000 * 256 * bits // 8 + 4000 * 4 * 2 + 4 * 2**bits + 16  # codes, scales, levels, shape


def test_the_command_stores_the_softmax_in_few_bits_and_a_second_conversion_is_exact(tmp_path, capsys, stored):
    save_store(tmp_path / "float32", tiny_with_head())
    words = ["convert", str(tmp_path / "float32"), str(tmp_path / "a"), "--storage", "int8", "--head-bits", "5"]
    done = run_in_process(capsys, *words)
    assert done.returncode == 0, done.stderr
    assert "the softmax matrix is rounded to 5 bits" in done.stderr
    assert (tmp_path / "a" / "head.safetensors").read_bytes() == (stored / "head.safetensors").read_bytes()
    words = ["convert", str(tmp_path / "a"), str(tmp_path / "b"), "--storage", "int8", "--head-bits", "5"]
    again = run_in_process(capsys, *words)
    assert "not exact" not in again.stderr
    assert (tmp_path / "b" / "head.safetensors").read_bytes() == (stored / "head.safetensors").read_bytes()
    info = run_in_process(capsys, "info", str(tmp_path / "b"), "--json")
    assert json.loads(info.stdout)["softmax_bits"] == 5
    to_int8 = run_in_process(capsys, "convert", str(tmp_path / "b"), str(tmp_path / "c"), "--storage", "int8")
    assert "the softmax matrix is rounded to int8" in to_int8.stderr
    exact = run_in_process(capsys, "convert", str(tmp_path / "b"), str(tmp_path / "d"))
    assert "softmax" not in exact.stderr
    torch.testing.assert_close(
        read_store(tmp_path / "d").tensors["head.weight"], read_store(stored).tensors["head.weight"], atol=0, rtol=0
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--head-bits", "3"], "3 bits"),
        (["--head-bits", "4", "--without-head"], "exclude"),
        (["--head-bits", "4", "--to", "hdf5"], "few bits"),
    ],
)
def test_bits_that_make_no_sense_are_a_usage_error_and_write_nothing(tmp_path, capsys, stored, words, message):
    done = run_in_process(capsys, "convert", str(stored), str(tmp_path / "out"), *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_softmax_and_values_that_float16_cannot_hold_are_errors(tmp_path):
    with pytest.raises(ConfigError, match="no softmax"):
        save_store(tmp_path / "a", drop_head(tiny_with_head()), head_bits=4)
    with pytest.raises(ConfigError, match="too large for float16"):
        pack_matrix("m", torch.full((2, 8), 1e6), 4)
    with pytest.raises(ConfigError, match="NaN"):
        pack_matrix("m", torch.full((2, 8), float("nan")), 4)
    assert not (tmp_path / "a").exists()


def damage(folder: Path, **changes: torch.Tensor | None) -> None:
    """Replaces tensors of the softmax's file (None removes one) and writes a manifest that agrees."""
    tensors = load_file(folder / "head.safetensors")
    for part, tensor in changes.items():
        name = f"head.weight.{part}"
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "head.safetensors")
    make_manifest(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"levels": None},
        {"codes": torch.zeros((5, 11, 7), dtype=torch.uint8)},
        {"codes": torch.zeros((4, 11, 8), dtype=torch.uint8), "levels": torch.zeros(16)},
        {"scale": torch.full((11, 1), float("nan"), dtype=torch.float16)},
        {"scale": torch.full((11, 1), -1.0, dtype=torch.float16)},
        {"levels": torch.full((32,), 2.0)},
        {"levels": torch.full((32,), float("nan"))},
        {"shape": torch.tensor([11, 1 << 60])},
        {"shape": torch.tensor([-1, 64])},
        {"shape": torch.tensor(3)},
    ],
    ids=["missing", "cut", "other bits", "nan", "negative", "level", "nan level", "huge", "below zero", "no pair"],
)
def test_a_damaged_softmax_is_an_error_that_names_the_file(stored, changes):
    damage(stored, **changes)
    with pytest.raises(WeightsError, match=r"head\.safetensors"):
        read_store(stored)


@pytest.mark.parametrize("bits", [3, "five", [5], 4])
def test_a_wrong_number_of_bits_in_the_configuration_is_an_error(stored, bits):
    config = json.loads((stored / "config.json").read_text())
    assert config["version"] == 3  # earlier versions of the package say that a newer one is needed
    (stored / "config.json").write_text(json.dumps({**config, "head_bits": bits}))
    make_manifest(stored)
    with pytest.raises(WeightsError, match=r"head_bits|codes"):
        read_store(stored)
