"""Runs all slow tests in parts, shows progress and the time left, and writes a dated record to benchmarks/results.

    python3 run.py slow                          all parts, at their full counts
    python3 run.py slow --part kills --part soak some parts; the day's record keeps the other ones
    python3 run.py slow --scale 0.1              a tenth of the counts (mutants, kills, calls, examples)
    python3 run.py slow --list                   the parts, their tests, and the seconds that the last record gives

Each part runs in a pytest process of its own. If a test ends this process, for example by a signal, the test has
failed, and the rest of its part runs in a new process. The exit code is 1 if a test failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from progress_plugin import VARIABLE as JOB_VARIABLE
from slow_record import RESULTS, is_slow_record, last_record, merge_record, write_both

ROOT = Path(__file__).resolve().parents[2]
PARTS = {  # in this order: the short ones first
    "properties": "random shapes of models, written and read back",
    "race": "swaps of the files of the kernel cache while they are opened",
    "soak": "memory, descriptors and threads over many calls",
    "mutants": "files with random changes, for every reader",
    "kills": "kill -9 at random moments, then the same command again",
    "tests": "all other slow tests",
    "release": "the sdist and the wheel pass twine's check, and the installed sdist runs; needs a package index",
    "floor": "the lowest versions that pyproject.toml allows, in a new environment; needs a package index",
}
UNKNOWN_SECONDS = 10.0  # of a test that is not in the last record


def main() -> None:
    arguments = parse_arguments()
    os.environ["ELMO_SCALE"] = str(arguments.scale)
    record = last_record(arguments.out.parent)
    known = known_seconds(record, arguments.scale)
    with tempfile.TemporaryDirectory() as name:
        parts = collect(Path(name), arguments.part)
        if arguments.list:
            show_list(parts, known)
            return
        started = time.time()
        results = run_parts(Path(name), parts, known)
    new = merge_record(arguments.out, results, scale=arguments.scale, started=started)
    write_both(arguments.out, new)
    failed = [test for tests in results.values() for test, result in tests.items() if result["outcome"] == "failed"]
    print(f"\n{arguments.out} and {arguments.out.with_suffix('.md')} are written.")
    print("".join(f"FAILED {test}\n" for test in failed), end="")
    outcomes = [result["outcome"] for tests in results.values() for result in tests.values()]
    print(f"{outcomes.count('passed')} passed, {len(failed)} failed, {outcomes.count('skipped')} skipped")
    sys.exit(1 if failed else 0)


def parse_arguments() -> argparse.Namespace:
    parts = "\n".join(f"  {name:12}{meaning}" for name, meaning in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="run.py slow",
        description=f"Runs all slow tests and writes a record.\n\nparts:\n{parts}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="Run this part only; may be repeated.")
    parser.add_argument("--scale", type=_positive, default=1.0, help="Factor of all counts. Default: 1.")
    parser.add_argument("--list", action="store_true", help="Only list the tests of each part.")
    day = time.strftime("%Y%m%d")
    default = RESULTS / f"slow_{day}.json"
    parser.add_argument("--out", type=Path, default=default, help="Path of the record (.json). Default: by date.")
    arguments = parser.parse_args()
    if arguments.out.suffix != ".json":
        parser.error(f"--out is {arguments.out}; expected a name that ends in .json, because the .md lies beside it")
    if arguments.out.exists() and not is_slow_record(arguments.out):
        parser.error(f"--out is {arguments.out}, which exists and is not a record of this command; choose another name")
    arguments.part = [name for name in PARTS if name in (arguments.part or PARTS)]
    return arguments


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1000")
    return value


def known_seconds(record: Mapping[str, Any] | None, scale: float) -> dict[str, float]:
    """The seconds of each test in the last record, times the ratio of the scales."""
    if record is None:
        return {}
    return {
        name: test["seconds"] * scale / part["scale"]
        for part in record["parts"].values()
        for name, test in part["tests"].items()
        if test["outcome"] != "skipped"
    }


def collect(folder: Path, chosen: list[str]) -> dict[str, list[str]]:
    """The tests of each chosen part; a part that no test has is left out."""
    status = start_pytest(folder, None, [], "--collect-only").wait()
    events = [json.loads(line) for line in (folder / "log").read_text(encoding="utf-8").splitlines()]
    if status not in (0, 5) or not events:
        sys.exit(f"run.py slow: the tests cannot be collected (pytest ended with {status}).")
    tests: dict[str, list[str]] = {name: [] for name in chosen}
    for test, part in events[0]["tests"].items():
        if part not in PARTS:
            sys.exit(f"run.py slow: {test} is marked slow({part!r}); the parts are {', '.join(PARTS)}.")
        if part in tests:
            tests[part].append(test)
    return {name: members for name, members in tests.items() if members}


def run_parts(folder: Path, parts: dict[str, list[str]], known: dict[str, float]) -> dict[str, dict[str, Any]]:
    left = [test for tests in parts.values() for test in tests]
    total = len(left)
    results: dict[str, dict[str, Any]] = {}

    def report(part: str, test: str, result: Mapping[str, Any]) -> None:
        left.remove(test)
        seconds = sum(known.get(other, UNKNOWN_SECONDS) for other in left)
        done = f"[{total - len(left)}/{total}] {part}: {test.removeprefix('tests/')} {result['outcome']}"
        counts = "".join(f", {number} {name}" for name, number in result["counts"].items() if isinstance(number, int))
        print(f"{done} in {result['seconds']:.1f} s{counts}; about {duration(seconds)} left", flush=True)
        if result["outcome"] == "failed":
            print(result["reason"], flush=True)

    for part, tests in parts.items():
        results[part] = run_part(folder, part, tests, report)
    return results


def run_part(
    folder: Path, part: str, tests: list[str], report: Callable[[str, str, Mapping[str, Any]], None]
) -> dict[str, Any]:
    """The result of each test of a part."""
    results: dict[str, Any] = {}
    while len(results) < len(tests):
        num_before = len(results)
        running = ""
        for event in follow_pytest(folder, part, list(results)):
            if event["event"] == "start":
                running = event["test"]
            elif event["event"] == "end":
                running, test = "", event.pop("test")
                results[test] = {key: value for key, value in event.items() if key != "event"}
                report(part, test, results[test])
        if not running and len(results) == num_before:  # pytest ended before its first test
            running = next(test for test in tests if test not in results)
        if running:
            reason = "The process ended in this test; see its messages above."
            results[running] = {"outcome": "failed", "seconds": 0.0, "counts": {}, "reason": reason}
            report(part, running, results[running])
    return results


def follow_pytest(folder: Path, part: str, finished: list[str]) -> Iterator[dict[str, Any]]:
    """The events of one pytest process, as they come."""
    process = start_pytest(folder, part, finished)
    with (folder / "log").open(encoding="utf-8") as log:
        ended = False
        while not ended:
            ended = process.poll() is not None  # before reading: what is written before the end is still read
            for line in log:
                yield json.loads(line)
            time.sleep(0 if ended else 0.1)
    output = (folder / "output").read_text(encoding="utf-8", errors="replace")
    if process.returncode not in (0, 1):
        print(output[-3000:], flush=True)


def start_pytest(folder: Path, part: str | None, finished: list[str], *options: str) -> subprocess.Popen[bytes]:
    job, log = folder / "job.json", folder / "log"
    job.write_text(json.dumps({"part": part, "finished": finished, "log": str(log)}), encoding="utf-8")
    log.write_text("")
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, JOB_VARIABLE: str(job), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "pytest", "-p", "progress_plugin", "-m", "slow", "-n", "0", "-q"]
    command += ["-o", "timeout=3600", *options]  # a slow test may run on a busy machine
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)


def show_list(parts: dict[str, list[str]], known: dict[str, float]) -> None:
    for part, tests in parts.items():
        seconds = [known[test] for test in tests if test in known]
        print(f"{part}: {PARTS[part]}; {len(tests)} tests, {len(seconds)} of them took {duration(sum(seconds))}")
        print("".join(f"  {test}\n" for test in tests), end="")


def duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


if __name__ == "__main__":
    main()
