"""The record of `run.py slow`: a JSON file with every test and its counts, and a readable .md that is made from it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

from licences import EXTRAS, runtime_packages, table

from elmo.records import versions, write_json

FORMAT, VERSION = "elmo-slow-run", 1
ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
LIBRARIES = ("h5py", "safetensors", "typer", "hypothesis", "pytest")  # besides those of elmo.records.versions


def is_slow_record(path: Path) -> bool:
    return _read(path) is not None


def last_record(folder: Path) -> dict[str, Any] | None:
    """The newest record in a folder, for the time that each test took."""
    records = [record for path in folder.glob("*.json") if (record := _read(path))]
    return max(records, key=lambda record: str(record["date"]), default=None)


def merge_record(path: Path, results: dict[str, dict[str, Any]], *, scale: float, started: float) -> dict[str, Any]:
    """The record of the parts that ran now; parts of an earlier run that are in `path` are kept."""
    kept = (_read(path) or {"parts": {}})["parts"]
    date = time.strftime("%Y-%m-%d", time.gmtime(started))
    new = {
        part: {
            "date": date,
            "commit": commit(),
            "scale": scale,
            "seconds": round(sum(test["seconds"] for test in tests.values()), 1),
            "outcomes": dict(Counter(test["outcome"] for test in tests.values())),
            "counts": total_counts(tests),
            "tests": tests,
        }
        for part, tests in results.items()
    }
    installed = {**versions(), **{name: metadata.version(name) for name in LIBRARIES}}
    return {
        "format": FORMAT,
        "version": VERSION,
        "date": date,
        "command": "python3 run.py slow",
        "machine": describe_machine(),
        "versions": installed,
        "licences": {row.package: f"{row.text} ({row.version})" for row in table(EXTRAS)},
        "licences_not_checked": runtime_packages(EXTRAS)[1],
        "parts": {**kept, **new},
    }


def total_counts(tests: dict[str, Any]) -> dict[str, int]:
    """The counts of all tests of a part, added by name; other properties of tests, such as versions, are left out."""
    total: Counter[str] = Counter()
    for test in tests.values():
        total.update({name: number for name, number in test["counts"].items() if isinstance(number, int)})
    return dict(total)


def write_both(path: Path, record: dict[str, Any]) -> None:
    write_json(path, record)
    path.with_suffix(".md").write_text(as_markdown(record), encoding="utf-8")


def as_markdown(record: dict[str, Any]) -> str:
    libraries = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines = [
        f"# Slow tests and counts, {record['date']}",
        "",
        f"Written by `{record['command']}`. {record['machine']}. {libraries}. The scale is the factor of all counts; a "
        "test that a machine cannot run is skipped, with its reason below.",
        "",
        "| part | date | commit | scale | passed | failed | skipped | counts | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, part in record["parts"].items():
        outcomes = " | ".join(str(part["outcomes"].get(outcome, 0)) for outcome in ("passed", "failed", "skipped"))
        counts = ", ".join(f"{number:,} {what}" for what, number in part["counts"].items())
        lines.append(
            f"| {name} | {part['date']} | {part['commit']} | {part['scale']:g} | {outcomes} | {counts} "
            f"| {part['seconds']:,.0f} |"
        )
    lines += ["", "## Tests with counts", "", "| test | outcome | counts | seconds |", "|---|---|---|---|"]
    rows = [(name, test) for part in record["parts"].values() for name, test in part["tests"].items()]
    for name, test in rows:
        if test["counts"]:
            counts = ", ".join(_count_text(what, value) for what, value in test["counts"].items())
            lines.append(f"| {_short(name)} | {test['outcome']} | {counts} | {test['seconds']:,.1f} |")
    lines += ["", "## Failures and skipped tests", ""]
    lines += [
        f"- {_short(name)}: {test['outcome']}. {_first_reason(test['reason'])}"
        for name, test in rows
        if test["outcome"] != "passed"
    ] or ["There are none."]
    lines += ["", "## Licences of the runtime dependencies", "", "| package | licence (version) |", "|---|---|"]
    lines += [f"| {name} | {text} |" for name, text in record["licences"].items()]
    missing = ", ".join(record["licences_not_checked"]) or "none"
    lines += ["", f"Optional packages that were not installed and are not checked: {missing}."]
    return "\n".join(lines) + "\n"


def describe_machine() -> str:
    """The machine in general words: cores, architecture, memory, system."""
    gigabytes = ""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        gigabytes = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GB of memory"
    user = ", as root" if hasattr(os, "getuid") and os.getuid() == 0 else ""
    return f"{os.cpu_count()} cores ({platform.machine()}){gigabytes}, {platform.system()}{user}"


def commit() -> str:
    """The commit of the checkout, or "" outside of one."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_ours = isinstance(record, dict) and record.get("format") == FORMAT and record.get("version") == VERSION
    return record if is_ours else None


def _short(name: str) -> str:
    return "`" + name.removeprefix("tests/").replace("|", "\\|") + "`"


def _count_text(what: str, value: Any) -> str:
    return f"{value:,} {what}" if isinstance(value, int) else f"{what} {value}"


def _first_reason(reason: str) -> str:
    """The last line of a failure or the reason of a skipped test, in one line."""
    lines = [line.removeprefix("E ").strip() for line in reason.splitlines() if line.strip()]
    errors = [line.removeprefix("E ").strip() for line in reason.splitlines() if line.startswith("E ")]
    return (errors or lines or ["?"])[0][:300]
