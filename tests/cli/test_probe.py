"""`elmo probe` in a real process, on an untrained model and on static vectors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from in_process_cli import run_in_process
from test_main import elmo

SENTENCE = "1\tDogs\tdog\tNOUN\tNNS\t_\n2\tbark\tbark\tVERB\tVBP\t_\n3\t.\t.\tPUNCT\t.\t_\n\n"


def write_treebank(folder):
    for split in ("train", "dev", "test"):
        (folder / f"x-{split}.conllu").write_text(SENTENCE * 8, encoding="utf-8")
    return str(folder / "x")


def test_pos_prints_a_table_and_writes_the_record(tmp_path):
    data, out = write_treebank(tmp_path), tmp_path / "record.json"
    cache = tmp_path / "kept"
    options = ("--model", "tiny-random", "--out", str(out), "--cache", str(cache), "--limit", "6", "--device", "cpu")
    done = elmo("probe", "pos", data, *options)
    assert done.returncode == 0, done.stderr
    first_words = [line.split()[0] for line in done.stdout.splitlines()]
    assert first_words == ["layer", "0", "1", "2", "mix", "concat", "most"]
    record = json.loads(out.read_text(encoding="utf-8"))
    assert record["counts"]["train_sentences"] == 6
    command = f"elmo probe pos {data} --model tiny-random --column xpos --epochs 12 --seed 0 --limit 6"
    assert record["command"] == command, "`elmo report` prints it next to the scores"
    assert record["vectors"]["trained"] is False
    assert record["scores"]["most_frequent_tag"]["test"] == 100.0
    assert len(list(cache.glob("*.npy"))) == 1, "the three splits hold the same sentences"


def test_static_vectors_have_one_layer(tmp_path):
    data = write_treebank(tmp_path)
    vectors = tmp_path / "a.vec"
    vectors.write_text("3 2\nDogs 1 0\nbark 0 1\n. -1 -1\n", encoding="utf-8")
    done = elmo("probe", "pos", data, "--vectors", str(vectors), "--column", "upos", "--json", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert list(record["scores"]["views"]) == ["0"]
    assert record["settings"]["column"] == "upos"


def test_compute_dtype_is_stored_in_the_record(tmp_path):
    data = write_treebank(tmp_path)
    flags = ("--model", "tiny-random", "--compute-dtype", "bfloat16", "--json", "--device", "cpu")
    record = json.loads(elmo("probe", "pos", data, *flags).stdout)
    assert record["vectors"]["dtype"] == "bfloat16"
    assert record["command"].endswith("--compute-dtype bfloat16")


def test_usage_errors_are_explained(tmp_path):
    unknown = elmo("probe", "syntax", str(tmp_path))
    assert unknown.returncode == 2
    assert "pos, languages, ner, wsd, wic" in unknown.stderr
    nothing = elmo("probe", "wsd", str(tmp_path), "--model", "tiny-random")
    assert nothing.returncode == 2
    assert "no semcor was found" in nothing.stderr


@pytest.mark.parametrize(
    ("kind", "option", "seen", "expected"),
    [
        ("languages", ("--column", "xpos"), "--column is 'xpos'", "Expected upos"),
        ("pos", ("--column", "lemma"), "--column is 'lemma'", "Expected xpos or upos"),
        ("ner", ("--column", "upos"), "--column was given, but the data of the probe ner", "Only pos and languages"),
        ("wic", ("--epochs", "3"), "--epochs was given, but the probe wic", "Only pos, languages, ner"),
        ("similarity", ("--seed", "0"), "--seed was given, but the probe similarity", "Only pos, languages, ner"),
        ("wsd", ("--cache", "kept"), "--cache was given, but the probe wsd", "Only pos, languages, ner"),
    ],
)
def test_an_option_that_the_probe_does_not_have_is_refused(capsys, tmp_path, kind, option, seen, expected):
    done = run_in_process(capsys, "probe", kind, str(tmp_path), "--model", "tiny-random", *option)
    assert done.returncode == 2
    assert seen in done.stderr
    assert expected in done.stderr


@pytest.mark.parametrize("option", [("--model", "tiny-random"), ("--compute-dtype", "int8")])
def test_static_vectors_with_an_option_of_the_model_are_refused(capsys, tmp_path, option):
    done = run_in_process(capsys, "probe", "pos", str(tmp_path), "--vectors", str(tmp_path / "a.vec"), *option)
    assert done.returncode == 2
    assert f"{option[0]} was given, but --vectors replaces the model in the probe pos" in done.stderr
    assert "once for each" in done.stderr


def test_languages_takes_upos_and_records_it(capsys):
    treebanks = Path(__file__).parents[1] / "fixtures" / "treebanks"
    options = (
        "--model",
        "tiny-random",
        "--column",
        "upos",
        "--epochs",
        "1",
        "--seed",
        "3",
        "--device",
        "cpu",
        "--json",
    )
    done = run_in_process(capsys, "probe", "languages", str(treebanks), *options)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["command"].endswith("--model tiny-random --column upos --epochs 1 --seed 3")
    assert record["settings"]["column"] == "upos"
