"""`elmo convert` in both directions: numbers are exact, and no output is left incomplete."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import oracle
import pytest
import torch
from in_process_cli import run_in_process
from published_models import write_model
from test_main import elmo

from elmo.files import sha256_file
from elmo.weights.formats import read_model
from elmo.weights.lookup import tiny_random
from elmo.weights.model_parts import build
from elmo.weights.store import save_store

PACKAGE = Path(__file__).resolve().parents[2] / "elmo"
FIXTURES, SHIPPED = PACKAGE / "golden", PACKAGE / "models"


def datasets(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    weights = next(path for path in folder.glob("*weights.hdf5") if "softmax" not in path.name)
    _, arrays = oracle.load(folder / "options.json", weights)
    return {name: (str(array.dtype), array.shape, array.tobytes()) for name, array in arrays.items()}


@pytest.mark.parametrize("kind", ["allennlp", "bilm-tf"])
def test_published_to_ours_to_published_is_bit_identical(tmp_path, kind):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("options.json", "lm_weights.hdf5"):
        shutil.copy(FIXTURES / kind / name, source / name)
    done = elmo("convert", str(source), str(tmp_path / "ours"))
    assert done.returncode == 0, done.stderr
    assert "hdf5 -> elmo" in done.stdout
    assert done.stderr == ""
    back = elmo("convert", str(tmp_path / "ours"), str(tmp_path / "back.hdf5"))
    assert back.returncode == 0, back.stderr
    assert "elmo -> hdf5" in back.stdout
    assert datasets(tmp_path / "back.hdf5") == datasets(source)
    assert read_model(tmp_path / "back.hdf5").config == read_model(source).config
    for line in back.stdout.splitlines()[1:]:
        digest, *_, name = line.split()
        assert sha256_file(tmp_path / "back.hdf5" / name) == digest


@pytest.mark.parametrize("seed", range(3))
def test_ours_to_published_to_ours_is_bit_identical(capsys, tmp_path, seed):
    write_model(tmp_path / "start", seed, vocab=True, softmax=True)
    for source, target in (("start", "ours"), ("ours", "published"), ("published", "second")):
        done = run_in_process(
            capsys,
            "convert",
            str(tmp_path / source),
            str(tmp_path / target),
            "--to",
            "hdf5" if target == "published" else "elmo",
        )
        assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "vocab.txt"):
        assert sha256_file(tmp_path / "ours" / name) == sha256_file(tmp_path / "second" / name)


def test_float16_reports_rounding_and_without_head_drops_the_softmax(capsys, tmp_path):
    write_model(tmp_path / "a", 1, vocab=True, char_input=True, softmax=True)
    done = run_in_process(
        capsys, "convert", str(tmp_path / "a"), str(tmp_path / "b"), "--dtype", "float16", "--without-head"
    )
    assert done.returncode == 0, done.stderr
    assert "float16" in done.stderr
    parts = read_model(tmp_path / "b")
    assert parts.config.head is None
    assert parts.vocab is None
    build(parts)


def test_the_published_layout_of_an_adaptive_model_is_written_as_the_error_says(capsys, tmp_path):
    arguments = ("convert", "english-small", str(tmp_path / "out"), "--to", "hdf5")
    refused = run_in_process(capsys, *arguments)
    assert refused.returncode == 2
    assert "`elmo convert --to hdf5 --without-head` writes the model without its softmax." in refused.stderr
    assert not (tmp_path / "out").exists()
    done = run_in_process(capsys, *arguments, "--without-head")
    assert done.returncode == 0, done.stderr
    before, after = read_model(SHIPPED / "english-small"), read_model(tmp_path / "out")
    assert after.config.head is None
    assert all(torch.equal(tensor, before.tensors[name]) for name, tensor in after.tensors.items())


def test_json_report(capsys, tmp_path):
    report = json.loads(run_in_process(capsys, "convert", "tiny-random", str(tmp_path / "m"), "--json").stdout)
    assert (report["from_format"], report["to_format"], report["not_exact"]) == ("built in", "elmo", [])
    assert {file["name"] for file in report["files"]} == {path.name for path in (tmp_path / "m").iterdir()}


def test_forget_bias_in_the_biases_is_reported_as_not_exact(capsys, tmp_path):
    parts = tiny_random()
    lstm = dataclasses.replace(parts.config.lstm, forget_bias=0.0)
    save_store(tmp_path / "m", dataclasses.replace(parts, config=dataclasses.replace(parts.config, lstm=lstm)))
    done = run_in_process(capsys, "convert", str(tmp_path / "m"), str(tmp_path / "out"), "--to", "hdf5")
    assert done.returncode == 0, done.stderr
    assert "not exact: the forget bias" in done.stderr


def test_a_tokenizer_that_the_published_layout_cannot_store_is_reported(capsys, tmp_path):
    save_store(tmp_path / "m", dataclasses.replace(tiny_random(), about={"tokenizer": "unicode"}))
    for target, is_lost in (("hdf5", True), ("elmo", False)):
        done = run_in_process(capsys, "convert", str(tmp_path / "m"), str(tmp_path / target), "--to", target)
        assert ("tokenizer='unicode'" in done.stderr) is is_lost, done.stderr


def test_existing_target_is_replaced_only_with_overwrite(capsys, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("keep")
    done = run_in_process(capsys, "convert", "tiny-random", str(tmp_path / "out"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "--overwrite" in done.stderr
    assert (tmp_path / "out" / "mine").read_text() == "keep"
    assert run_in_process(capsys, "convert", "tiny-random", str(tmp_path / "out"), "--overwrite").returncode == 0
    assert not (tmp_path / "out" / "mine").exists()


def test_the_input_model_is_never_overwritten(capsys, tmp_path):
    save_store(tmp_path / "m", tiny_random())
    before = {path.name: sha256_file(path) for path in (tmp_path / "m").iterdir()}
    for source in (tmp_path / "m", tmp_path / "m" / "model.safetensors"):
        for target in (tmp_path / "m", tmp_path):
            done = run_in_process(capsys, "convert", str(source), str(target), "--overwrite", "--to", "hdf5")
            assert done.returncode == 1, done.stdout
            assert "holds the model to be converted" in done.stderr
    assert {path.name: sha256_file(path) for path in (tmp_path / "m").iterdir()} == before


def test_file_with_the_name_of_the_target_is_not_replaced(capsys, tmp_path):
    (tmp_path / "weights.hdf5").write_text("mine")
    done = run_in_process(capsys, "convert", "tiny-random", str(tmp_path / "weights.hdf5"), "--overwrite")
    assert done.returncode == 1
    assert (tmp_path / "weights.hdf5").read_text() == "mine"


def test_nonfinite_values_need_the_option(capsys, tmp_path):
    write_model(tmp_path / "a", 2, char_input=True)
    with h5py.File(tmp_path / "a" / "weights.hdf5", "r+") as file:
        file["char_embed"][0, 0] = np.inf
    done = run_in_process(capsys, "convert", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.returncode == 1
    assert "--allow-nonfinite" in done.stderr
    assert not (tmp_path / "b").exists()
    assert (
        run_in_process(capsys, "convert", str(tmp_path / "a"), str(tmp_path / "b"), "--allow-nonfinite").returncode == 0
    )


@pytest.mark.parametrize(
    "options", [["--to", "onnx"], ["--dtype", "float64"], ["--dtype", "float16", "--to", "hdf5"], ["--nonsense"]]
)
def test_invalid_options_are_usage_errors(capsys, tmp_path, options):
    done = run_in_process(capsys, "convert", "tiny-random", str(tmp_path / "m"), *options)
    assert done.returncode == 2, done.stderr
    assert not (tmp_path / "m").exists()


def test_name_of_the_target_selects_the_format(capsys, tmp_path):
    for name, file in (("m.hdf5", "weights.hdf5"), ("m-h5", "weights.hdf5"), ("m", "model.safetensors")):
        assert run_in_process(capsys, "convert", "tiny-random", str(tmp_path / name)).returncode == 0
        assert (tmp_path / name / file).exists()
