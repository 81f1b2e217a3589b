"""The record of `run.py slow`, and the command itself: parts, a crash of the process, what is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from run_slow import PARTS, known_seconds, run_part
from slow_record import as_markdown, last_record, merge_record, write_both


def result(outcome: str = "passed", **counts: Any) -> dict[str, Any]:
    return {"outcome": outcome, "seconds": 2.0, "counts": counts, "reason": "E  assert 1 == 2" * (outcome == "failed")}


def test_parts_of_an_earlier_run_are_kept_and_counts_are_added(tmp_path: Path) -> None:
    path = tmp_path / "slow.json"
    kills = {"tests/a.py::one": result(kills=3), "tests/a.py::two": result(kills=4, growth="1 MB")}
    write_both(path, merge_record(path, {"kills": kills}, scale=0.1, started=0.0))
    write_both(path, merge_record(path, {"soak": {"tests/b.py::x": result("failed")}}, scale=1.0, started=86400.0))
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["parts"]["kills"]["counts"] == {"kills": 7}
    assert record["parts"]["soak"]["outcomes"] == {"failed": 1}
    assert (record["date"], record["parts"]["kills"]["date"]) == ("1970-01-02", "1970-01-01")
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert text == as_markdown(record)
    assert "| 7 kills |" in text
    assert "`b.py::x`: failed. assert 1 == 2" in text
    assert last_record(tmp_path) == record


def test_the_time_left_comes_from_the_last_record_and_the_scale(tmp_path: Path) -> None:
    record = merge_record(
        tmp_path / "none.json", {"kills": {"a": result(), "b": result("skipped")}}, scale=0.1, started=0
    )
    assert known_seconds(record, scale=1.0) == {"a": 20.0}
    assert known_seconds(None, scale=1.0) == {}


def test_a_test_that_ends_the_process_fails_and_the_rest_of_its_part_runs(tmp_path: Path, monkeypatch: Any) -> None:
    import run_slow

    root = tmp_path / "checkout"
    (root / "tests").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["slow(part): slow"]\ntimeout = 60\n')
    (root / "tests" / "test_it.py").write_text(
        "import os, pytest, signal\n"
        "@pytest.mark.slow('kills')\ndef test_a(record_property): record_property('kills', 5)\n"
        "@pytest.mark.slow('kills')\ndef test_b(): os.kill(os.getpid(), signal.SIGKILL)\n"
        "@pytest.mark.slow('kills')\ndef test_c(): assert 1 == 2\n"
        "@pytest.mark.slow\ndef test_d(): pass\n"
        "def test_e(): assert False\n"
    )
    monkeypatch.setattr(run_slow, "ROOT", root)
    folder = tmp_path / "work"
    folder.mkdir()
    parts = run_slow.collect(folder, list(PARTS))
    names = {part: [test.split("::")[1] for test in tests] for part, tests in parts.items()}
    assert names == {"kills": ["test_a", "test_b", "test_c"], "tests": ["test_d"]}
    results = run_part(folder, "kills", parts["kills"], lambda *_: None)
    outcomes = {test.split("::")[1]: test_result["outcome"] for test, test_result in results.items()}
    assert outcomes == {"test_a": "passed", "test_b": "failed", "test_c": "failed"}
    assert results[parts["kills"][0]]["counts"] == {"kills": 5}
