"""`elmo task` on the command line: train, evaluate, predict, table, and the messages of usage errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))
import tiny_tasks

from elmo.cli.main import main
from elmo.cli.task import LabelColors


def elmo(capsys, *words: str) -> tuple[int, str, str]:
    """Runs the command in this process and returns exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


SETTINGS = ["model.hidden_dim=12", "model.num_layers=1", "model.dropout=0.0", "words.dim=8", "words.min_count=1"]
SETTINGS += ["chars.num_filters=8", "optim.lr=0.02", "train.batch_size=4"]
SMALL = ["--device", "cpu", *(word for setting in SETTINGS for word in ("--set", setting))]


def test_train_evaluate_predict_and_table(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = str(tiny_tasks.write_data(tmp_path, "ner"))
    repeated = str(tiny_tasks.write_data(tmp_path, "ner", times=25))
    files = ("--train", repeated, "--dev", data, "--test", data, "--set", "train.epochs=2")
    for out, more in (("ner-run", []), ("with", ["--elmo", "tiny-random", "--seeds", "2"])):
        code, printed, stderr = elmo(capsys, "task", "train", "ner", *files, "--out", out, *more, *SMALL)
        assert (code, printed) == (0, ""), stderr
        assert "dev f1" in stderr
    assert (tmp_path / "with" / "seed-1" / "record.json").exists()

    code, printed, _ = elmo(capsys, "task", "evaluate", "ner", data, "--json")  # the task's name: its folder ner-run
    assert code == 0
    assert json.loads(printed)["scores"]["f1"] == 100.0
    code, printed, _ = elmo(capsys, "task", "evaluate", "ner-run", data)
    assert "f1                   100.00  *" in printed

    sentence = "Ada Lovelace lived in London ."
    assert elmo(capsys, "task", "predict", "ner-run", sentence)[1] == "[Ada Lovelace]PER lived in [London]LOC .\n"
    (tmp_path / "raw.txt").write_text(f"{sentence}\n\n{sentence}\n", encoding="utf-8")
    code, printed, _ = elmo(capsys, "task", "predict", "ner-run", "--file", "raw.txt", "--json")
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [line["line"] for line in lines] == [0, 2]  # a blank line has no example
    assert lines[0]["entities"][1] == {"kind": "LOC", "first": 4, "last": 4, "text": "London"}
    for text in ("", "\n  \n"):
        (tmp_path / "blank.txt").write_text(text, encoding="utf-8")
        code, printed, stderr = elmo(capsys, "task", "predict", "ner-run", "--file", "blank.txt", "--json")
        assert (code, printed) == (0, "")
        assert "blank.txt: the file has no text, so there are no predictions." in stderr
    code, printed, _ = elmo(capsys, "task", "predict", "ner-run", "--examples", data)
    assert printed.count("\n") == 5

    code, printed, _ = elmo(capsys, "task", "table", ".", "--picture", "t.svg")
    assert code == 0
    assert "NER (F1)" in printed
    assert "1/2" in printed  # seeds without and with
    assert (tmp_path / "t.svg").read_text(encoding="utf-8").startswith("<svg")
    assert elmo(capsys, "task", "table", ".", "--markdown")[1].startswith("| Task |")
    assert json.loads(elmo(capsys, "task", "table", ".", "--json")[1])[0]["task"] == "ner"


def test_the_tokenizer_of_the_training_is_that_of_evaluate_and_predict(tmp_path, capsys):
    data, out = tmp_path / "data.tsv", str(tmp_path / "run")
    data.write_text("東京が好き。\t4\n雨は嫌い。\t0\n", encoding="utf-8")
    settings = [word for value in ("words.dim=8", "model.hidden_dim=4", "train.epochs=1") for word in ("--set", value)]
    files = ("--train", str(data), "--dev", str(data), "--tokenizer", "unicode", "--out", out, "--device", "cpu")
    code, _, stderr = elmo(capsys, "task", "train", "sst", *files, *settings)
    assert code == 0, stderr
    assert elmo(capsys, "task", "evaluate", out, str(data))[0] == 0
    for source in (("東京が好き。",), ("--examples", str(data))):
        code, printed, _ = elmo(capsys, "task", "predict", out, *source, "--json")
        assert json.loads(printed.splitlines()[0])["tokens"][0] == "東"
    code, _, stderr = elmo(capsys, "task", "predict", out, "--examples", str(data), "--tokenizer", "default")
    assert code == 2
    assert "--tokenizer was given, but the examples" in stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM")
def test_sigterm_saves_the_run_and_says_how_to_continue(tmp_path):
    data = str(tiny_tasks.write_data(tmp_path, "ner"))
    files = ("--train", data, "--dev", data, "--out", str(tmp_path / "run"))
    forever = ("--set", "train.epochs=1000000", "--set", "train.patience=1000000")
    child = subprocess.Popen(
        [sys.executable, "-m", "elmo", "task", "train", "ner", *files, *SMALL, *forever],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert child.stderr is not None
    assert any(line.startswith("epoch 1,") for line in iter(child.stderr.readline, ""))
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate()
    assert child.returncode == 143
    assert out == ""
    assert err.splitlines()[-1].startswith("stopped by SIGTERM after update")
    assert err.rstrip().endswith("The same command resumes it.")
    assert list((tmp_path / "run" / "checkpoint").glob("step-*/manifest.json"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "nerr", "--train", "a", "--dev", "b"], "Did you mean 'ner'"),
        (["train", "ner"], "needs a train and a dev file"),
        (["train", "ner", "--train", "no.iob2", "--dev", "no.iob2"], "no.iob2: cannot be read"),
        (["train", "ner", "--tune"], "--tune needs a biLM"),
        (["train", "ner", "--set", "train.epoch=3"], "Did you mean 'train.epochs'"),
        (["predict", "nowhere"], "exactly one source of text"),
        (["predict", "nowhere", "text"], "config.json: cannot be read"),
        (["table", "nowhere"], "nowhere does not exist"),
        (["trian"], "Did you mean 'train'"),
    ],
)
def test_usage_errors_are_explained(tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, printed, stderr = elmo(capsys, "task", *words)
    assert code in (1, 2)
    assert printed == ""
    assert message in stderr
    assert "Traceback" not in stderr
    assert not (tmp_path / "ner-run" / "record.json").exists()


def test_bad_data_is_named_with_its_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.iob2").write_text("Ada B-PER\nleft\n", encoding="utf-8")
    code, _, stderr = elmo(
        capsys, "task", "train", "ner", "--train", "bad.iob2", "--dev", "bad.iob2", "--device", "cpu"
    )
    assert code == 1
    assert "bad.iob2:2:" in stderr


def test_colours_only_on_a_terminal(monkeypatch):
    assert LabelColors().mark("Ada", "PER") == "[Ada]PER"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    colors = LabelColors()
    assert colors.mark("plain", "") == "plain"
    assert colors.mark("Ada", "PER").startswith("\x1b[1;36mAda")
    assert colors.mark("Ada", "LOC").startswith("\x1b[1;33m")
    assert colors.mark("Eve", "PER").startswith("\x1b[1;36m")
    monkeypatch.setenv("NO_COLOR", "1")
    assert LabelColors().mark("Ada", "PER") == "[Ada]PER"
