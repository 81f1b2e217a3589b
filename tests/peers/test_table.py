"""The table in README.md names only tests that exist, and every test of the ported suites is in it."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
README = (HERE / "README.md").read_text(encoding="utf-8")


def names_of_tests(path: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_named_test_exists() -> None:
    for name, test in re.findall(r"`((?:tests/\w+/)?test_\w+\.py)::(test_\w+)`", README):
        path = HERE.parents[1] / name if name.startswith("tests/") else HERE / name
        assert test in names_of_tests(path), f"{name} has no {test}"


def test_every_ported_test_is_in_the_table() -> None:
    for name in ("test_allennlp_suite.py", "test_bilm_tf_suite.py"):
        for test in names_of_tests(HERE / name):
            assert re.search(rf"\b{test}\b", README), f"{test} is missing in README.md"
