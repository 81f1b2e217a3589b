"""`elmo info`: the facts it shows of a model, as a table and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
from in_process_cli import run_in_process
from published_models import write_model
from test_main import elmo

from elmo.files import sha256_file
from elmo.model.bilm import BiLM
from elmo.model.config import HeadConfig
from elmo.weights.lookup import tiny_random
from elmo.weights.store import save_store

FIXTURE = Path(__file__).resolve().parents[2] / "elmo" / "golden" / "allennlp"


def test_facts_of_a_published_model():
    done = elmo(
        "info", str(FIXTURE / "options.json"), "--weights", str(FIXTURE / "lm_weights.hdf5"), "--json", "--tensors"
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    with h5py.File(FIXTURE / "lm_weights.hdf5") as file:
        sizes: dict[str, int] = {}
        file.visititems(lambda name, item: sizes.update({name: item.size} if isinstance(item, h5py.Dataset) else {}))
    assert facts["parameters"] == sum(sizes.values())
    expected = dict(
        format="hdf5", vector_width=32, layers_of_vectors=3, lstm_layers=2, directions=2, cell_dim=64,
        projection_dim=16, skip_connections=True, cell_clip=3, projection_clip=3, reads="bytes", highways=2,
        vocabulary=458, with_softmax=None, not_finite=0,
    )  # fmt: skip
    assert {key: facts[key] for key in expected} == expected
    assert {file["name"]: file["sha256"] for file in facts["files"]} == {
        name: sha256_file(FIXTURE / name) for name in ("lm_weights.hdf5", "options.json")
    }
    assert {tensor["published"] for tensor in facts["tensors"]} == set(sizes)


def test_table(capsys, tmp_path):
    save_store(tmp_path / "m", tiny_random())
    done = run_in_process(capsys, "info", str(tmp_path / "m"), "--tensors")
    assert done.returncode == 0, done.stderr
    for words in (["format", "elmo"], ["parameters", "645,904"], ["skip_connections", "yes"], ["with_softmax", "-"]):
        assert any(line.split() == words for line in done.stdout.splitlines()), words
    assert sha256_file(tmp_path / "m" / "model.safetensors") in done.stdout
    assert "Untrained" in done.stdout
    assert "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_P_0" in done.stdout


def test_softmax_and_nonfinite_values_are_counted(capsys, tmp_path):
    write_model(tmp_path, 1, char_input=True, softmax=True, projection_dim=4)
    with h5py.File(tmp_path / "weights.hdf5", "r+") as file:
        file["char_embed"][0, :2] = np.nan
    facts = json.loads(run_in_process(capsys, "info", str(tmp_path), "--json").stdout)
    assert facts["with_softmax"] - facts["parameters"] == 11 * 5
    assert facts["not_finite"] == 2
    assert facts["softmax"] == "one row per word"


def test_languages_are_a_list_in_json_and_one_line_in_the_table(capsys, tmp_path):
    parts = tiny_random()
    save_store(tmp_path / "two", replace(parts, about=parts.about | {"languages": ["de", "fr"]}))
    save_store(tmp_path / "none", parts)
    facts = {
        name: json.loads(run_in_process(capsys, "info", str(tmp_path / name), "--json").stdout)
        for name in ("two", "none")
    }
    assert facts["two"]["languages"] == ["de", "fr"]
    assert facts["none"]["languages"] == []
    tables = {name: run_in_process(capsys, "info", str(tmp_path / name)).stdout for name in ("two", "none")}
    assert ["languages", "de", "fr"] in [line.split() for line in tables["two"].splitlines()]
    assert ["languages", "-"] in [line.split() for line in tables["none"].splitlines()]


def test_an_adaptive_softmax_is_named_with_its_clusters(capsys, tmp_path):
    parts = tiny_random()
    head = HeadConfig(vocab_size=5000, kind="adaptive", cutoffs=(500, 2500))
    model = BiLM(replace(parts.config, head=head))
    words = tuple(f"w{number}" for number in range(5000))
    save_store(tmp_path / "m", replace(parts, config=model.config, tensors=model.state_dict(), vocab=words))
    facts = json.loads(run_in_process(capsys, "info", str(tmp_path / "m"), "--json").stdout)
    assert facts["softmax"] == "adaptive, clusters from words 500 and 2,500"
    assert facts["with_softmax"] == sum(weight.numel() for weight in model.parameters())


def test_unreadable_model_is_one_line_and_exit_code_1(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("ELMO_HOME", str(tmp_path / "home"))
    data = (FIXTURE / "lm_weights.hdf5").read_bytes()
    (tmp_path / "weights.hdf5").write_bytes(data[: len(data) // 2])
    (tmp_path / "options.json").write_bytes((FIXTURE / "options.json").read_bytes())
    for words in ([str(tmp_path)], ["nope"], ["small"], [str(tmp_path / "none")]):
        done = run_in_process(capsys, "info", *words)
        assert (done.returncode, done.stdout) == (1, ""), words
        assert done.stderr.startswith("elmo: ")
        assert "Traceback" not in done.stderr
