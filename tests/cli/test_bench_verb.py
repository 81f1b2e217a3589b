"""`elmo bench` as a subprocess."""

from __future__ import annotations

import json

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


def test_pictures_without_growth_are_refused():
    process = elmo("bench", "--pictures", "here")
    assert (process.returncode, process.stdout) == (2, "")
    assert "--growth" in process.stderr
    assert "Traceback" not in process.stderr
