"""`elmo task curve`, `elmo task sweep`, `elmo geometry` and `elmo report` from the command line."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
import sample_records
import tiny_tasks
from test_task import SMALL, elmo


def test_curve_sweep_geometry_and_a_report_of_them(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, often = (str(tiny_tasks.write_data(tmp_path, "ner", times=n)) for n in (1, 8))
    options = ("--train", often, "--dev", data, "--elmo", "tiny-random", "--set", "train.epochs=1", *SMALL)
    curve = ("task", "curve", "ner", *options, "--shares", "50,100", "--updates", "2", "--seeds", "1")
    code, stdout, stderr = elmo(capsys, *curve, "--out", "runs/curve")
    assert code == 0, stderr
    assert "reached with ELMo at" in stdout
    assert stderr.count("\n[") == 4
    ET.parse("runs/curve/curve.svg")
    code, stdout, stderr = elmo(capsys, *curve, "--out", "runs/curve", "--json")
    assert "4 runs in runs/curve, 4 of them done" in stderr
    assert [share["share"] for share in json.loads(stdout)["shares"]] == [0.5, 1.0]

    sweep = ("task", "sweep", "ner", *options, "--seeds", "1", "--only", "places", "--out", "runs/sweep")
    code, stdout, stderr = elmo(capsys, *sweep, "--set", "elmo.cache_dir=runs/curve/layers", "--set", "elmo.cache=disk")
    assert code == 0, stderr
    assert "input and output" in stdout
    assert (tmp_path / "runs" / "sweep" / "all-0.1-both" / "seed-0" / "record.json").exists()

    Path("text.txt").write_text("the cat sat .\nthe dog sat .\n" * 3, encoding="utf-8")
    code, stdout, stderr = elmo(capsys, "geometry", "text.txt", "--model", "tiny-random", "--out", "runs/g.json")
    assert code == 0, stderr
    assert stdout.split()[:1] == ["layer"]
    record = json.loads(Path("runs/g.json").read_text(encoding="utf-8"))
    assert (record["kind"], record["counts"]) == ("geometry", {"sentences": 6, "words": 24})

    Path("notes.toml").write_text('places = "tiny"\n', encoding="utf-8")
    code, stdout, stderr = elmo(capsys, "report", "runs", "-o", "report", "--notes", "notes.toml")
    assert code == 0, stderr
    assert "report/index.html: 8 records" in stdout
    html = Path("report/index.html").read_text(encoding="utf-8")
    assert "tiny-random (untrained)" in html
    assert str(tmp_path) not in html
    code, stdout, _ = elmo(capsys, "report", "runs", "-o", "report", "--json")
    assert {one["key"] for one in json.loads(stdout)["findings"]} >= {"elmo-helps", "places"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task", "curve", "ner"], "needs a train and a dev file"),
        (["task", "curve", "ner", "--shares", "0"], "percentages"),
        (
            ["task", "curve", "ner", "--train", "ner-1.txt", "--dev", "ner-1.txt", "--shares", "100"],
            "at least two different shares",
        ),
        (["geometry", "ner-1.txt", "--out", "."], "is a folder"),
        (["geometry", "ner-1.txt", "--out", "no/g.json"], "there is no folder"),
        (["probe", "pos", "nothing", "--out", "no/g.json"], "there is no folder"),
        (["task", "sweep", "ner", "--only", "lambda"], "Expected layers or places"),
        (["report", "nowhere", "-o", "out"], "nowhere does not exist"),
        (["report", ".", "-o", "out"], "No records in ."),
        (["report", "runs"], "--out"),
        (["report", "full", "-o", "out", "--notes", "bad.toml"], "no finding or section 'nothing'"),
    ],
)
def test_wrong_arguments_are_explained(tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    tiny_tasks.write_data(tmp_path, "ner")
    Path("bad.toml").write_text('nothing = "x"\n', encoding="utf-8")
    if "full" in words:
        sample_records.write_all(tmp_path / "full")
    code, stdout, stderr = elmo(capsys, *words)
    assert code in (1, 2)
    assert stdout == ""
    assert message in stderr
    assert not Path("out").exists()
