"""--encoding of the verbs that read text files: the same results as for the same text in UTF-8."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from in_process_cli import run_in_process
from tiny_run import command, records, run, settings, train_settings, write_text

from elmo.errors import OutputError
from elmo.pretrain.data.prepare import prepare
from elmo.pretrain.data.prepared import MANIFEST, open_prepared


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same German text in three encodings."""
    folder = tmp_path_factory.mktemp("encodings")
    text = write_text(folder / "ascii.txt").read_text().replace("w1", "wörter").replace("w2", "straße")
    paths = {encoding: folder / encoding / "text.txt" for encoding in ("utf-8", "latin-1", "utf-16")}
    for encoding, path in paths.items():
        path.parent.mkdir()
        path.write_bytes(text.encode(encoding))
    return paths


def test_prepared_text_is_the_same_and_its_manifest_names_the_encoding(texts: dict[str, Path], tmp_path: Path, capsys):
    fingerprints = set()
    for encoding, path in texts.items():
        out = tmp_path / encoding
        done = run_in_process(capsys, "prepare", str(path), "--out", str(out), "--encoding", encoding, "--workers", "1")
        assert done.returncode == 0, done.stderr
        fingerprints.add(open_prepared(out).fingerprint)
    assert len(fingerprints) == 1
    assert json.loads((tmp_path / "latin-1" / MANIFEST).read_text())["options"]["encoding"] == "iso8859-1"
    done = run_in_process(capsys, "prepare", str(texts["latin-1"]), "--check", "--encoding", "latin-1", "--json")
    assert json.loads(done.stdout)["errors"] == []


def test_text_prepared_by_a_version_without_encodings_is_reused(texts: dict[str, Path], tmp_path: Path) -> None:
    config = settings(texts["utf-8"]).data
    prepare(config, tmp_path / "data", num_workers=1)
    manifest = json.loads((tmp_path / "data" / MANIFEST).read_text())
    del manifest["options"]["encoding"]
    (tmp_path / "data" / MANIFEST).write_text(json.dumps(manifest))
    prepare(config, tmp_path / "data", num_workers=1)
    other = settings(texts["utf-8"], {"data": {"reading": {"encoding": "latin-1"}}}).data
    with pytest.raises(OutputError, match="other options") as error:
        prepare(other, tmp_path / "data", num_workers=1)
    assert "encoding: 'utf-8' then, 'iso8859-1' now" in error.value.hint


def test_training_is_the_same_in_every_encoding(texts: dict[str, Path], tmp_path: Path, capsys) -> None:
    for encoding, path in texts.items():
        arguments = command(path, tmp_path / encoding, "--encoding", encoding, "--max-steps", "3")[3:]
        done = run_in_process(capsys, *arguments)
        assert done.returncode == 0, done.stderr
    assert records(tmp_path / "utf-8") == records(tmp_path / "latin-1") == records(tmp_path / "utf-16")
    assert 'encoding = "iso8859-1"' in (tmp_path / "latin-1" / "config.toml").read_text()


def test_finetune_perplexity_embed_score_and_geometry_read_latin1(texts: dict[str, Path], tmp_path: Path, capsys):
    run(texts["utf-8"], tmp_path / "run", train_settings(max_steps=2))
    model = str(tmp_path / "run" / "model")
    short = {name: tmp_path / f"{name}.txt" for name in ("utf-8", "latin-1")}
    for encoding, path in short.items():
        path.write_bytes(texts["utf-8"].read_text(encoding="utf-8")[:2000].encode(encoding))
    tune = ["--rows", "4", "--set", "train.steps=5", "--set", "objective.num_samples=16", "--max-steps", "2"]
    commands = {
        "perplexity": lambda path: ["perplexity", model, path, "--workers", "1"],
        "embed": lambda path: ["embed", path, "-", "--model", model, "--tokenizer", "whitespace"],
        "score": lambda path: ["score", "--file", path, "--model", model, "--tokenizer", "whitespace"],
        "geometry": lambda path: ["geometry", path, "--model", model, "--tokenizer", "whitespace"],
        "similar": lambda path: ["similar", "w3 wörter", "wörter", path, "--model", model, "--tokenizer", "whitespace"],
    }
    for name, words in commands.items():
        outputs = []
        for encoding, path in short.items():
            done = run_in_process(capsys, *words(str(path)), "--encoding", encoding)
            assert done.returncode == 0, done.stderr
            outputs.append(done.stdout)
        assert outputs[0] == outputs[1] != "", name
        done = run_in_process(capsys, *words(str(short["latin-1"])))
        assert done.returncode == 1, name
        assert "is not UTF-8" in done.stderr
        assert "--encoding NAME reads another encoding" in done.stderr, name
    files = ["finetune", model, str(texts["latin-1"]), "--out", str(tmp_path / "tuned"), "--workers", "1", *tune]
    done = run_in_process(capsys, *files)
    assert (done.returncode, "--encoding NAME" in done.stderr) == (1, True)
    assert run_in_process(capsys, *files, "--encoding", "latin-1").returncode == 0


def test_a_command_without_the_flag_does_not_name_it(tmp_path: Path, capsys) -> None:
    path = tmp_path / "train.tsv"
    path.write_bytes(b"caf\xe9\n")
    done = run_in_process(
        capsys, "task", "train", "ner", "--train", str(path), "--dev", str(path), "--out", str(tmp_path)
    )
    assert done.returncode == 1
    assert "Convert the file to UTF-8" in done.stderr
    assert "--encoding" not in done.stderr


def test_an_unknown_encoding_is_a_usage_error(texts: dict[str, Path], tmp_path: Path, capsys) -> None:
    for words in (["prepare", str(texts["utf-8"]), "--out"], ["pretrain", str(texts["utf-8"]), "--out"]):
        done = run_in_process(capsys, *words, str(tmp_path / "out"), "--encoding", "latn-1")
        assert (done.returncode, "encoding 'latn-1' is unknown" in done.stderr) == (2, True), done.stderr
        assert not (tmp_path / "out").exists()
