"""`elmo task` from the command line: train, evaluate, predict, table, and the messages for wrong arguments."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))
import tiny_tasks

from elmo.cli.main import main
from elmo.cli.task import Colors


def elmo(capsys, *arguments: str) -> tuple[int, str, str]:
    """Runs the command in this process; returns exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as exited:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(exited.value.code or 0), out, err


SETTINGS = ["model.hidden_dim=12", "model.num_layers=1", "model.dropout=0.0", "words.dim=8", "words.min_count=1"]
SETTINGS += ["chars.num_filters=8", "optim.lr=0.02", "train.batch_size=4"]
SMALL = ["--device", "cpu", *(argument for setting in SETTINGS for argument in ("--set", setting))]


def test_train_evaluate_predict_and_table(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = str(tiny_tasks.write_data(tmp_path, "ner"))
    repeated = str(tiny_tasks.write_data(tmp_path, "ner", times=25))
    files = ("--train", repeated, "--dev", data, "--test", data, "--set", "train.epochs=2")
    for out, options in (("ner-run", []), ("with", ["--elmo", "tiny-random", "--seeds", "2"])):
        code, stdout, stderr = elmo(capsys, "task", "train", "ner", *files, "--out", out, *options, *SMALL)
        assert (code, stdout) == (0, ""), stderr
        assert "dev f1" in stderr
    assert (tmp_path / "with" / "seed-1" / "record.json").exists()

    code, stdout, _ = elmo(
        capsys, "task", "evaluate", "ner", data, "--json"
    )  # the name of the task stands for the folder ner-run
    assert code == 0
    assert json.loads(stdout)["scores"]["f1"] == 100.0
    code, stdout, _ = elmo(capsys, "task", "evaluate", "ner-run", data)
    assert "f1                   100.00  *" in stdout

    sentence = "Ada Lovelace lived in London ."
    assert elmo(capsys, "task", "predict", "ner-run", sentence)[1] == "[Ada Lovelace]PER lived in [London]LOC .\n"
    (tmp_path / "raw.txt").write_text(f"{sentence}\n\n{sentence}\n", encoding="utf-8")
    code, stdout, _ = elmo(capsys, "task", "predict", "ner-run", "--file", "raw.txt", "--json")
    lines = [json.loads(line) for line in stdout.splitlines()]
    assert len(lines) == 2
    assert lines[0]["entities"][1] == {"kind": "LOC", "first": 4, "last": 4, "text": "London"}
    code, stdout, _ = elmo(capsys, "task", "predict", "ner-run", "--examples", data)
    assert stdout.count("\n") == 5

    code, stdout, _ = elmo(capsys, "task", "table", ".", "--picture", "t.svg")
    assert code == 0
    assert "NER (F1)" in stdout
    assert "1/2" in stdout  # seeds without and with
    assert (tmp_path / "t.svg").read_text(encoding="utf-8").startswith("<svg")
    assert elmo(capsys, "task", "table", ".", "--markdown")[1].startswith("| Task |")
    assert json.loads(elmo(capsys, "task", "table", ".", "--json")[1])[0]["task"] == "ner"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "nerr", "--train", "a", "--dev", "b"], "Did you mean 'ner'"),
        (["train", "ner"], "needs a train and a dev file"),
        (["train", "ner", "--train", "no.iob2", "--dev", "no.iob2"], "no.iob2: cannot be read"),
        (["train", "ner", "--tune"], "--tune needs a biLM"),
        (["train", "ner", "--set", "train.epoch=3"], "Did you mean 'train.epochs'"),
        (["predict", "nowhere"], "Nothing to predict"),
        (["predict", "nowhere", "text"], "config.json: cannot be read"),
        (["table", "nowhere"], "nowhere does not exist"),
        (["trian"], "Did you mean 'train'"),
    ],
)
def test_wrong_arguments_are_explained(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, stdout, stderr = elmo(capsys, "task", *arguments)
    assert code in (1, 2)
    assert stdout == ""
    assert message in stderr
    assert "Traceback" not in stderr
    assert not (tmp_path / "ner-run" / "record.json").exists()


def test_invalid_data_is_an_error_with_its_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.iob2").write_text("Ada B-PER\nleft\n", encoding="utf-8")
    code, _, stderr = elmo(
        capsys, "task", "train", "ner", "--train", "bad.iob2", "--dev", "bad.iob2", "--device", "cpu"
    )
    assert code == 1
    assert "bad.iob2:2:" in stderr


def test_colours_only_on_a_terminal(monkeypatch):
    assert Colors().shown("Ada", "PER") == "[Ada]PER"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    colors = Colors()
    assert colors.shown("plain", "") == "plain"
    assert colors.shown("Ada", "PER").startswith("\x1b[1;36mAda")
    assert colors.shown("Ada", "LOC").startswith("\x1b[1;33m")
    assert colors.shown("Eve", "PER").startswith("\x1b[1;36m")
    monkeypatch.setenv("NO_COLOR", "1")
    assert Colors().shown("Ada", "PER") == "[Ada]PER"
