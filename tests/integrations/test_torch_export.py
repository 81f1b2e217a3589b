"""`elmo export torch`: the saved program and the compiled library give the layers of the model for every batch."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch
from in_process_cli import run_in_process
from random_models import SHAPES, save_random

from elmo.integrations.export_check import run_plain, trial_inputs
from elmo.integrations.torch_export import export_torch, load_program

SOME = ("characters and words", "one direction", "no projection", "tanh without highways")


def assert_equal_layers(run, model) -> None:
    for ids in trial_inputs(model.config, seed=5):
        (layers, mask), (expected, expected_mask) = run(ids), run_plain(model, ids)
        np.testing.assert_array_equal(mask, expected_mask)
        np.testing.assert_allclose(layers, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", SOME)
def test_the_saved_program_gives_the_layers_for_every_batch(tmp_path, name):
    model = save_random(tmp_path / "m", SHAPES[name])
    export_torch(tmp_path / "m", tmp_path / "m.pt2", check=False)
    assert_equal_layers(load_program(tmp_path / "m.pt2", aoti=False), model)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SHAPES if name not in SOME])
def test_the_saved_program_of_every_shape_gives_its_layers(tmp_path, name):
    model = save_random(tmp_path / "m", SHAPES[name])
    export_torch(tmp_path / "m", tmp_path / "m.pt2", check=False)
    assert_equal_layers(load_program(tmp_path / "m.pt2", aoti=False), model)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_the_compiled_library_gives_the_layers_for_every_batch(tmp_path, name):
    model = save_random(tmp_path / "m", SHAPES[name])
    export_torch(tmp_path / "m", tmp_path / "m.pt2", aoti=True, check=False)
    assert_equal_layers(load_program(tmp_path / "m.pt2", aoti=True), model)


def test_the_command_checks_its_file_and_stores_the_config(tmp_path, capsys):
    model = save_random(tmp_path / "m", SHAPES["one direction"])
    out = tmp_path / "m.pt2"
    done = run_in_process(capsys, "export", "torch", str(tmp_path / "m"), str(out), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["max_difference"] < 2e-5
    assert report["files"][0]["bytes"] == os.path.getsize(out)
    facts = {"elmo.json": ""}
    torch.export.load(str(out), extra_files=facts)
    assert json.loads(facts["elmo.json"])["config"] == json.loads(json.dumps(model.config.to_dict()))


def test_another_suffix_is_a_usage_error(tmp_path, capsys):
    done = run_in_process(capsys, "export", "torch", "tiny-random", str(tmp_path / "m.pt"))
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_cannot_be_compiled_is_one_error_and_leaves_no_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CXX", "/nonexistent/compiler")
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("/nonexistent/compiler",))
    save_random(tmp_path / "m", SHAPES["one direction"])
    done = run_in_process(capsys, "export", "torch", str(tmp_path / "m"), str(tmp_path / "m.pt2"), "--aoti")
    assert done.returncode == 1
    assert "AOTInductor cannot compile the model" in done.stderr
    assert not (tmp_path / "m.pt2").exists()
