"""The page of `run.py extras`: results of several runs are joined, and what it runs for an extra can run together."""

from __future__ import annotations

from pathlib import Path

from extras import COMMANDS, merged, page, stored_results, uses_of


def result(python: str, extra: str, problem: str = "", lowest: bool = False) -> dict[str, object]:
    return {"python": python, "lowest": lowest, "extra": extra, "seconds": "3 s", "problem": problem}


def test_a_later_run_replaces_its_own_cases_and_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "extras.md"
    assert stored_results(path) == []
    first = [result("3.10.13", ""), result("3.10.13", "onnx", "no wheel | for this"), result("3.9.1", "zstd")]
    path.write_text(page(merged([], first)), encoding="utf-8")
    later = [result("3.10.13", "onnx"), result("3.10.13", "onnx", lowest=True)]
    rows = merged(stored_results(path), later)
    assert [(row["python"], row["lowest"], row["extra"], row["problem"]) for row in rows] == [
        ("3.9.1", False, "zstd", ""),
        ("3.10.13", False, "", ""),
        ("3.10.13", False, "onnx", ""),
        ("3.10.13", True, "onnx", ""),
    ]
    text = page(rows)
    assert "## Python 3.10.13, newest versions" in text
    assert text.count("| works |") == 4


def test_the_commands_of_all_extras_write_different_files() -> None:
    """They run in one folder for the extra `all`."""
    outputs = [command[4] for command in COMMANDS.values() if command[:3] == ["-m", "elmo", "embed"]]
    assert len(outputs) == len(set(outputs)) >= 4


def test_an_example_with_an_argument_gets_it() -> None:
    names = dict(uses_of("onnx"))
    assert names["command"][-1] == names["onnx_runtime.py"][-1] == "model.onnx"
