"""`elmo bench` in a real process."""

from __future__ import annotations

import json

from test_main import elmo

FEW = ("--size", "tiny", "--sentences", "2", "--rounds", "1")


def test_a_path_is_measured_as_json():
    done = elmo("bench", *FEW, "--path", "plain,torch float32", "--dtype", "float32", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [(result["feed"], result["path"]) for result in report["results"]] == [
        ("bulk", "plain"), ("bulk", "torch float32"), ("single", "plain"), ("single", "torch float32"),
    ]  # fmt: skip
    assert report["gflops"]["cpu float32"] > 0
    assert report["machine"]["torch"]


def test_pictures_without_growth_is_a_usage_error():
    done = elmo("bench", "--pictures", "here")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--growth" in done.stderr
    assert "Traceback" not in done.stderr
