"""runs/sklearn_sst: the table of its page shows the recorded results."""

from __future__ import annotations

import json
import re
from pathlib import Path

RUN = Path(__file__).resolve().parent.parent / "runs" / "sklearn_sst"


def test_the_table_of_the_sst_comparison_shows_the_recorded_results() -> None:
    results = json.loads((RUN / "results.json").read_text(encoding="utf-8"))["results"]
    rows = re.findall(
        r"^\| ([^|]+?) \| (\w[^|]*?) \| ([\d.]+) \| ([\d.]+) \|", (RUN / "README.md").read_text("utf-8"), re.M
    )
    recorded = [
        (one["features"], one["setting"], f"{one['test_accuracy']:.1f}", f"{one['test_macro_f1']:.1f}")
        for one in results
    ]
    assert rows == recorded
    assert {one["num_test"] for one in results} == {1821, 2210}
