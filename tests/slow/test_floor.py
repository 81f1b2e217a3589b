"""The lowest versions that pyproject.toml allows work; where torch's cannot be installed, the others do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from floor import check_floor, lowest_versions


@pytest.mark.slow("floor")
@pytest.mark.timeout(7200)
def test_the_lowest_allowed_versions_pass_the_core_tests(tmp_path: Path, record_property: Any) -> None:
    result = check_floor(tmp_path / "all", keep=[])
    if result["problem"].startswith("cannot be installed"):
        record_property("note", f"with the installed torch, because the lowest {result['problem']}")
        result = check_floor(tmp_path / "torch", keep=["torch"])
    if result["problem"].startswith("cannot be installed"):
        pytest.skip(result["problem"])
    wanted = lowest_versions([])
    record_property("versions", ", ".join(f"{name} {result['versions'].get(name, '?')}" for name in wanted))
    record_property("tests", result["tests"])
    assert result["problem"] == ""
