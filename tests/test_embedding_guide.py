"""The embedding guide: each output format has a short reader that gives what was embedded; its figures are records."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import elmo
from elmo.embed.dump.job import dump
from elmo.embed.dump.options import FORMATS, DumpOptions
from elmo.report.collect import collect
from elmo.report.findings import check_findings
from elmo.report.results import compute_results

ROOT = Path(__file__).resolve().parent.parent
GUIDE = (ROOT / "docs" / "guides" / "embedding.md").read_text(encoding="utf-8")
TITLES = {"hdf5": "HDF5", "npz": "npz", "safetensors": "safetensors", "parquet": "Parquet", "jsonl": "JSON lines"}
LINES = ["The bank raised its rates.", "They sat on the bank of the river, naïve 東京 .", "Odd | [line] \u2028 ends"]


@pytest.fixture(scope="module")
def embedder() -> elmo.Embedder:
    return elmo.load(device="cpu")


def reader_of(format_name: str) -> str:
    """The code below the paragraph of a format."""
    match = re.search(rf"^\*\*{TITLES[format_name]}\*\*.*?^```python\n(.*?)^```$", GUIDE, re.M | re.S)
    assert match, f"the guide has no reader of {format_name}"
    return match[1]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_reader_of_five_lines_gives_what_was_embedded(format_name, dtype, embedder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    dump(embedder, "in.txt", f"out.{format_name}", DumpOptions(dtype=dtype))
    code = reader_of(format_name)
    assert len([line for line in code.splitlines() if line]) <= 5
    names = {"np": np, "embedder": embedder}
    exec(compile(code, f"reader of {format_name}", "exec"), names)
    expected = embedder.layers(LINES[1])
    assert names["tokens"] == [token.text for token in embedder.tokenize(LINES[1])]
    assert names["vectors"].shape == expected.shape
    # JSON has no number types: its reader chooses one
    np.testing.assert_array_equal(names["vectors"].astype(dtype), expected.astype(dtype))


def test_the_table_of_layers_is_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "make_layer_table.py", "--check"], capture_output=True, text=True, check=False,
        cwd=ROOT, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_advice_on_layers_agrees_with_the_records():
    (places,) = re.findall(r"^elmo report (.*?) -o docs", (ROOT / "docs/guides/report.md").read_text("utf-8"), re.M)
    results = compute_results(collect(ROOT / place for place in places.split()))
    holds = {finding.key: finding.holds for finding in check_findings(results)}
    assert holds["tags-lower"] == 1, "layer 1 for parts of speech"
    assert holds["senses-upper"] == 1, "the top layer for senses"
    assert holds["all-beat-last"] in (0, 1), "the mix is not worse than the top layer"


def test_the_layer_axis_and_the_halves_are_as_the_guide_says(embedder):
    layers = embedder.layers("They sat on the bank of the river.")
    half = embedder.dim // 2
    np.testing.assert_array_equal(layers[0, :, :half], layers[0, :, half:])
    changed = embedder.layers("They sat on the bank of the lake.")
    same = [np.array_equal(layers[1:, :6, start : start + half], changed[1:, :6, start : start + half])
            for start in (0, half)]  # fmt: skip
    assert same == [True, False], "the forward half does not see the words to the right"
    assert embedder.layers("").shape == (embedder.num_layers, 0, embedder.dim)
