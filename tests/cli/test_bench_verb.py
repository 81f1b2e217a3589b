"""`elmo bench` as a subprocess."""

from __future__ import annotations

import json

import pytest
from in_process_cli import run_in_process
from test_main import elmo

from elmo.records import kind_of

FEW = ("--size", "tiny", "--sentences", "2", "--rounds", "1")


def test_variants_are_measured_as_json():
    process = elmo("bench", *FEW, "--path", "plain,torch float32", "--dtype", "float32", "--json")
    assert process.returncode == 0, process.stderr
    record = json.loads(process.stdout)
    assert kind_of(record) == "bench"
    assert record["command"].startswith("elmo bench --size tiny --dtype float32 --path 'plain,torch float32'")
    assert [(result["feed"], result["path"]) for result in record["results"]] == [
        ("bulk", "plain"), ("bulk", "torch float32"), ("single", "plain"), ("single", "torch float32"),
    ]  # fmt: skip
    assert record["gflops"]["cpu float32"] > 0
    assert record["machine"]["torch"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pictures", "here"], "--pictures needs the --growth measurement"),
        (["--seconds", "5"], "--seconds needs the --growth measurement"),
        (["--tokenizer", "unicode"], "--tokenizer was given without --text"),
        (["--growth", "--rounds", "7"], "--rounds was given, but --growth"),
        (["--growth", "--feed", "single"], "--feed was given, but --growth"),
        (["--growth", "--full"], "--full was given, but --growth"),
        (["--growth", "--size", "tiny,small"], "--size is tiny,small; --growth measures one"),
        (["--growth", "--dtype", "float32,int8"], "--dtype is float32,int8; --growth measures one"),
    ],
)
def test_options_that_would_be_ignored_are_refused(capsys, words, message):
    done = run_in_process(capsys, "bench", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
