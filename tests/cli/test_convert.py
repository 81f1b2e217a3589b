"""`elmo convert`: both ways (in real processes), nothing lost, nothing half written."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import oracle
import pytest
from in_process_cli import elmo_inside
from published_models import write_model
from test_main import elmo

from elmo.files import sha256_file
from elmo.weights.formats import read_model
from elmo.weights.lookup import tiny_random
from elmo.weights.model_parts import build
from elmo.weights.store import save_store

FIXTURES = Path(__file__).resolve().parents[2] / "elmo" / "golden"


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
    there = elmo("convert", str(source), str(tmp_path / "ours"))
    assert there.returncode == 0, there.stderr
    assert "hdf5 -> elmo" in there.stdout
    assert there.stderr == ""
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
    for source, target in (("start", "ours"), ("ours", "there"), ("there", "again")):
        done = elmo_inside(
            capsys,
            "convert",
            str(tmp_path / source),
            str(tmp_path / target),
            "--to",
            "hdf5" if target == "there" else "elmo",
        )
        assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "vocab.txt"):
        assert sha256_file(tmp_path / "ours" / name) == sha256_file(tmp_path / "again" / name)


def test_float16_says_that_it_rounds_and_without_head_leaves_the_softmax_out(capsys, tmp_path):
    write_model(tmp_path / "a", 1, vocab=True, char_input=True, softmax=True)
    done = elmo_inside(
        capsys, "convert", str(tmp_path / "a"), str(tmp_path / "b"), "--dtype", "float16", "--without-head"
    )
    assert done.returncode == 0, done.stderr
    assert "float16" in done.stderr
    parts = read_model(tmp_path / "b")
    assert parts.config.head is None
    assert parts.vocab is None
    build(parts)


def test_report_for_machines(capsys, tmp_path):
    report = json.loads(elmo_inside(capsys, "convert", "tiny-random", str(tmp_path / "m"), "--json").stdout)
    assert (report["from_format"], report["to_format"], report["not_exact"]) == ("built in", "elmo", [])
    assert {file["name"] for file in report["files"]} == {path.name for path in (tmp_path / "m").iterdir()}


def test_folded_forget_bias_is_said_to_be_inexact(capsys, tmp_path):
    parts = tiny_random()
    lstm = dataclasses.replace(parts.config.lstm, forget_bias=0.0)
    save_store(tmp_path / "m", dataclasses.replace(parts, config=dataclasses.replace(parts.config, lstm=lstm)))
    done = elmo_inside(capsys, "convert", str(tmp_path / "m"), str(tmp_path / "out"), "--to", "hdf5")
    assert done.returncode == 0, done.stderr
    assert "not exact: the forget bias" in done.stderr


def test_occupied_target_is_kept_unless_told(capsys, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("keep")
    done = elmo_inside(capsys, "convert", "tiny-random", str(tmp_path / "out"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "--overwrite" in done.stderr
    assert (tmp_path / "out" / "mine").read_text() == "keep"
    assert elmo_inside(capsys, "convert", "tiny-random", str(tmp_path / "out"), "--overwrite").returncode == 0
    assert not (tmp_path / "out" / "mine").exists()


def test_the_model_that_is_read_is_never_replaced(capsys, tmp_path):
    save_store(tmp_path / "m", tiny_random())
    before = {path.name: sha256_file(path) for path in (tmp_path / "m").iterdir()}
    for source in (tmp_path / "m", tmp_path / "m" / "model.safetensors"):
        for target in (tmp_path / "m", tmp_path):
            done = elmo_inside(capsys, "convert", str(source), str(target), "--overwrite", "--to", "hdf5")
            assert done.returncode == 1, done.stdout
            assert "holds the model that is read" in done.stderr
    assert {path.name: sha256_file(path) for path in (tmp_path / "m").iterdir()} == before


def test_file_in_the_way_is_not_replaced(capsys, tmp_path):
    (tmp_path / "weights.hdf5").write_text("mine")
    done = elmo_inside(capsys, "convert", "tiny-random", str(tmp_path / "weights.hdf5"), "--overwrite")
    assert done.returncode == 1
    assert (tmp_path / "weights.hdf5").read_text() == "mine"


def test_values_that_are_not_finite_need_a_word(capsys, tmp_path):
    write_model(tmp_path / "a", 2, char_input=True)
    with h5py.File(tmp_path / "a" / "weights.hdf5", "r+") as file:
        file["char_embed"][0, 0] = np.inf
    done = elmo_inside(capsys, "convert", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.returncode == 1
    assert "--allow-nonfinite" in done.stderr
    assert not (tmp_path / "b").exists()
    assert elmo_inside(capsys, "convert", str(tmp_path / "a"), str(tmp_path / "b"), "--allow-nonfinite").returncode == 0


@pytest.mark.parametrize(
    "words", [["--to", "onnx"], ["--dtype", "float64"], ["--dtype", "float16", "--to", "hdf5"], ["--nonsense"]]
)
def test_wrong_wishes_are_usage_errors(capsys, tmp_path, words):
    done = elmo_inside(capsys, "convert", "tiny-random", str(tmp_path / "m"), *words)
    assert done.returncode == 2, done.stderr
    assert not (tmp_path / "m").exists()


def test_target_s_name_chooses_the_format(capsys, tmp_path):
    for name, file in (("m.hdf5", "weights.hdf5"), ("m-h5", "weights.hdf5"), ("m", "model.safetensors")):
        assert elmo_inside(capsys, "convert", "tiny-random", str(tmp_path / name)).returncode == 0
        assert (tmp_path / name / file).exists()
