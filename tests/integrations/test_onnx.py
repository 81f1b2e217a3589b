"""`elmo export onnx` for models of every shape: the file in onnxruntime gives the layers of the model in PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from golden import GOLDEN, golden_batches
from in_process_cli import run_in_process
from random_models import SHAPES, random_network, save_random

import elmo
from elmo.embed.load import make_indexer
from elmo.errors import OutputError
from elmo.integrations.export_check import trial_inputs
from elmo.integrations.onnx.export import check_onnx, export_onnx
from elmo.model.bilm import BiLM
from elmo.model.config import PRESETS
from elmo.text.batch import make_batch
from elmo.weights.formats import read_model
from elmo.weights.model_parts import ModelParts, build
from elmo.weights.store import save_store

ROOT = Path(__file__).resolve().parents[2]
SIZES = ((1, 1), (1, 3), (3, 1), (2, 2), (3, 3), (4, 12), (12, 4))


def open_file(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def fresh_ids(model: BiLM, rows: int, tokens: int, seed: int) -> np.ndarray:
    """Ids (B, T, W) that are random in every column, with sentences of random lengths, one of them of all tokens."""
    config, rng = model.config, np.random.default_rng(seed)
    ids = np.zeros((rows, tokens, config.row_width), dtype=np.int32)
    for row in range(rows):
        length = tokens if row == rows - 1 else int(rng.integers(1, tokens + 1))
        if config.chars:
            ids[row, :length, : config.chars.max_chars] = rng.integers(
                1, config.chars.num_chars + 1, (length, config.chars.max_chars)
            )
            ids[row, :length, int(rng.integers(1, config.chars.max_chars)) : config.chars.max_chars] = 3
        if config.words:
            ids[row, :length, -1] = rng.integers(1, config.words.num_words + 1, length)
    return ids


def assert_equal_layers(path: Path, model: BiLM, ids: np.ndarray, atol: float = 1e-4) -> None:
    layers, mask = open_file(path).run(["layers", "mask"], {"ids": ids})
    with torch.inference_mode():
        expected = model(torch.from_numpy(ids))
    assert layers.shape == tuple(expected.layers.shape)
    assert layers.dtype == np.float32
    np.testing.assert_array_equal(mask, expected.mask.numpy())
    np.testing.assert_allclose(layers, expected.layers.numpy(), atol=atol, rtol=0)


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_of_model_gives_its_layers_for_every_shape_of_batch(tmp_path, name):
    model = save_random(tmp_path / "m", SHAPES[name])
    export_onnx(tmp_path / "m", tmp_path / "m.onnx", check=False)
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    for seed, (rows, tokens) in enumerate(SIZES):
        assert_equal_layers(tmp_path / "m.onnx", model, fresh_ids(model, rows, tokens, seed), atol=2e-5)


@pytest.mark.parametrize("preset", ["tiny", *(pytest.param(p, marks=pytest.mark.slow) for p in PRESETS if p != "tiny")])
@pytest.mark.parametrize("storage", ["float32", "int8"])
def test_presets_are_exported_and_checked(tmp_path, capsys, preset, storage):
    torch.manual_seed(0)
    model = BiLM(PRESETS[preset]).eval()
    save_store(tmp_path / "m", ModelParts(config=PRESETS[preset], tensors=dict(model.state_dict())))
    out = tmp_path / "m.onnx"
    done = run_in_process(
        capsys, "export", "onnx", str(tmp_path / "m"), str(out), "--storage", storage, "--json", "--no-check"
    )
    assert done.returncode == 0, done.stderr
    weight_bytes = sum(p.numel() for p in model.parameters()) * (4 if storage == "float32" else 1)
    assert 0.99 < out.stat().st_size / weight_bytes < 1.2
    if storage == "float32":
        assert_equal_layers(out, model, fresh_ids(model, 3, 7, 1))
    else:
        assert json.loads(done.stdout)["rounding"]["lowest_cosine"] > 0.99


@pytest.mark.parametrize("kind", GOLDEN)
def test_published_vectors_come_out_of_the_exported_file(tmp_path, kind):
    folder = ROOT / "elmo" / "golden" / kind
    options, weights = folder / "options.json", folder / "lm_weights.hdf5"
    export_onnx(options, tmp_path / "m.onnx", weights=weights)
    sentences, expected = next(iter(golden_batches(kind)))
    ids = make_batch(sentences, make_indexer(read_model(options, weights))).ids
    layers = open_file(tmp_path / "m.onnx").run(["layers"], {"ids": ids})[0]
    for row, vectors in enumerate(expected):
        np.testing.assert_allclose(layers[-1, row, 1 : len(vectors) + 1], vectors, atol=2e-5)


def test_a_padded_batch_gives_the_vectors_of_the_embedder(tmp_path):
    export_onnx("tiny-random", tmp_path / "m.onnx")
    embedder = elmo.load("tiny-random", device="cpu")
    sentences = [["The", "cat", "sat", "."], ["Ωμέγα"], ["a"] * 30 + ["x" * 300], ["<S>", "\u200b", "don't"]]
    ids = make_batch(sentences, embedder.indexer).ids
    layers = open_file(tmp_path / "m.onnx").run(["layers"], {"ids": ids})[0]
    for row, (sentence, expected) in enumerate(zip(sentences, embedder.layers(sentences), strict=True)):
        np.testing.assert_allclose(layers[:, row, 1 : len(sentence) + 1], expected, atol=1e-5)
        assert not layers[:, row, len(sentence) + 2 :].any()


def test_the_state_passes_over_rows_of_zeros_inside_a_sentence(tmp_path):
    model = save_random(tmp_path / "m", SHAPES["characters"])
    export_onnx(tmp_path / "m", tmp_path / "m.onnx")
    ids = fresh_ids(model, 3, 8, 0)
    ids[2, 3:5] = 0
    assert_equal_layers(tmp_path / "m.onnx", model, ids, atol=2e-5)


@pytest.mark.parametrize("wrong", [-1, -5, 10_000])
@pytest.mark.parametrize("name", ["characters", "words"])
def test_ids_outside_the_table_are_errors_and_not_other_rows(tmp_path, name, wrong):
    model = save_random(tmp_path / "m", SHAPES[name])
    export_onnx(tmp_path / "m", tmp_path / "m.onnx")
    ids = fresh_ids(model, 2, 3, 0)
    ids[1, 1, 0] = wrong
    with pytest.raises(Exception, match="out of data bounds"):
        open_file(tmp_path / "m.onnx").run(None, {"ids": ids})


@pytest.mark.parametrize("name", ["characters and words", "no projection", "one direction"])
def test_int8_is_exact_for_a_model_that_is_stored_in_int8(tmp_path, name):
    save_random(tmp_path / "m", SHAPES[name], storage="int8")
    report = export_onnx(tmp_path / "m", tmp_path / "m.onnx", storage="int8")
    assert report["rounding"] == {"max_difference": 0.0, "lowest_cosine": pytest.approx(1.0)}
    model = build(read_model(tmp_path / "m"))
    assert_equal_layers(tmp_path / "m.onnx", model, fresh_ids(model, 3, 5, 1), atol=2e-5)
    types = {t.data_type for t in onnx.load(tmp_path / "m.onnx").graph.initializer if np.prod(t.dims) > 50}
    assert onnx.TensorProto.INT8 in types


def test_int8_reports_the_rounding_of_a_float32_model(tmp_path, capsys):
    done = run_in_process(
        capsys, "export", "onnx", "tiny-random", str(tmp_path / "m.onnx"), "--storage", "int8", "--json"
    )
    report = json.loads(done.stdout)
    layers = [
        open_file(path).run(["layers"], {"ids": trial_inputs(PRESETS["tiny"])[3]})[0]
        for path in (tmp_path / "m.onnx", Path(export_float32(tmp_path)))
    ]
    assert report["max_difference"] < 1e-4 < report["rounding"]["max_difference"] < 0.05
    assert np.abs(layers[0] - layers[1]).max() > 1e-4
    done = run_in_process(
        capsys, "export", "onnx", "tiny-random", str(tmp_path / "m.onnx"), "--storage", "int8", "--overwrite"
    )
    assert "rounding to int8 changes a value" in done.stdout


def export_float32(folder: Path) -> Path:
    export_onnx("tiny-random", folder / "float32.onnx")
    return folder / "float32.onnx"


def test_external_data_gives_the_same_layers_and_can_be_replaced(tmp_path, capsys):
    out = tmp_path / "m.onnx"
    for name in ("characters", "four layers"):
        model = save_random(tmp_path / name, SHAPES[name])
        done = run_in_process(
            capsys, "export", "onnx", str(tmp_path / name), str(out), "--external-data", "--overwrite"
        )
        assert done.returncode == 0, done.stderr
        assert {path.name for path in tmp_path.glob("m.*")} == {"m.onnx", "m.onnx.data"}
        assert (tmp_path / "m.onnx.data").stat().st_mode == out.stat().st_mode
        assert_equal_layers(out, model, fresh_ids(model, 2, 5, 0), atol=2e-5)
    before = {path: path.read_bytes() for path in tmp_path.glob("m.*")}
    out.unlink()
    done = run_in_process(capsys, "export", "onnx", "tiny-random", str(out), "--external-data")
    assert done.returncode == 1
    assert "m.onnx.data exists" in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.glob("m.*")} == {
        out.with_name("m.onnx.data"): before[out.with_name("m.onnx.data")]
    }


def test_weights_above_the_limit_of_one_file_are_external(tmp_path, monkeypatch):
    monkeypatch.setattr("elmo.integrations.onnx.export.LARGEST_FILE", 1000)
    model = save_random(tmp_path / "m", SHAPES["characters"])
    report = export_onnx(tmp_path / "m", tmp_path / "m.onnx")
    assert [file["name"] for file in report["files"]] == ["m.onnx", "m.onnx.data"]
    assert_equal_layers(tmp_path / "m.onnx", model, fresh_ids(model, 2, 5, 0), atol=2e-5)


def test_the_check_refuses_the_file_of_another_model(tmp_path):
    config = SHAPES["characters"]
    save_random(tmp_path / "m", config)
    export_onnx(tmp_path / "m", tmp_path / "m.onnx")
    other = random_network(config)
    weight = other.stacks[1].layers[1].projection
    weight[0, 0] += 1e-2
    with pytest.raises(OutputError, match="differ from the model's by"):
        check_onnx(tmp_path / "m.onnx", other, "m.onnx")
    with pytest.raises(OutputError, match="cannot load"):
        check_onnx(tmp_path / "m" / "config.json", other, "config.json")


def test_the_file_says_what_it_reads(tmp_path):
    export_onnx("tiny-random", tmp_path / "m.onnx")
    session = open_file(tmp_path / "m.onnx")
    facts = session.get_modelmeta().custom_metadata_map
    assert (facts["name"], facts["reads"], facts["storage"]) == ("tiny-random", "UTF-8 bytes", "float32")
    assert json.loads(facts["config"])["chars"]["max_chars"] == session.get_inputs()[0].shape[2]


def test_a_file_that_exists_is_replaced_only_with_overwrite(tmp_path, capsys):
    out = tmp_path / "m.onnx"
    out.write_text("mine")
    done = run_in_process(capsys, "export", "onnx", "tiny-random", str(out))
    assert (done.returncode, out.read_text()) == (1, "mine")
    assert "--overwrite" in done.stderr
    assert run_in_process(capsys, "export", "onnx", "tiny-random", str(out), "--overwrite").returncode == 0
    open_file(out)


@pytest.mark.parametrize("words", [["m.bin"], ["m.onnx", "--storage", "float16"]])
def test_wrong_names_and_types_are_usage_errors(tmp_path, capsys, words):
    done = run_in_process(capsys, "export", "onnx", "tiny-random", str(tmp_path / words[0]), *words[1:])
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []
