"""The pytest plugin of `run.py slow`: runs the slow tests of one part and logs each result as a JSON line at once.

    ELMO_SLOW_JOB names a JSON file: {"part": NAME or null, "finished": [test names], "log": path}

The part is the argument of the mark, as in `@pytest.mark.slow("kills")`; without an argument it is "tests". A test adds
counts with the fixture `record_property`. The log has a line when a test begins, so that the test that ended the
process is known.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

VARIABLE, OTHER_PART = "ELMO_SLOW_JOB", "tests"
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^\s/\"':,]+/)+")  # of absolute paths, which say nothing elsewhere


def part_of(item: pytest.Item) -> str:
    mark = item.get_closest_marker("slow")
    return str(mark.args[0]) if mark and mark.args else OTHER_PART


class Job:
    """The tests to run, and the log of their results."""

    def __init__(self, path: Path) -> None:
        values = json.loads(path.read_text(encoding="utf-8"))
        self.part, self.finished, self.log = values["part"], set(values["finished"]), Path(values["log"])
        self.outcomes: dict[str, dict[str, Any]] = {}

    def write(self, values: dict[str, Any]) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [
            item
            for item in items
            if item.get_closest_marker("slow")
            and self.part in (None, part_of(item))
            and item.nodeid not in self.finished
        ]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.write({"event": "collected", "tests": {item.nodeid: part_of(item) for item in session.items}})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.write({"event": "start", "test": item.nodeid})
        self.outcomes[item.nodeid] = {"outcome": "passed", "seconds": 0.0, "counts": {}, "reason": ""}
        result = yield
        self.write({"event": "end", "test": item.nodeid, **self.outcomes[item.nodeid]})
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for the set-up, the test itself and the clean-up; the worst outcome of the three counts."""
        outcome = self.outcomes[report.nodeid]
        outcome["seconds"] = round(outcome["seconds"] + report.duration, 2)
        outcome["counts"] |= dict(report.user_properties)
        if report.outcome != "passed" and outcome["outcome"] != "failed":
            outcome["outcome"] = report.outcome
            is_skip = isinstance(report.longrepr, tuple)
            reason = str(report.longrepr[2] if is_skip else report.longrepr)  # type: ignore[index]
            outcome["reason"] = _FOLDERS.sub("", reason)[-2000:]


def pytest_configure(config: pytest.Config) -> None:
    if VARIABLE in os.environ:
        config.pluginmanager.register(Job(Path(os.environ[VARIABLE])), "elmo-slow-job")
