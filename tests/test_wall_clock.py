"""The fast tests do not depend on wall-clock time, because they run beside other work on machines of any speed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CLOCKS = {f"time.{name}{unit}" for name in ("time", "monotonic", "perf_counter") for unit in ("", "_ns")}
WAITS = {"wait", "result", "communicate", "alarm", "timeout"}  # their first argument is a number of seconds
HANG_GUARD = 600  # seconds; a longer limit only ends what would never end
# these draw random times at which they kill a process, and every time is right
KILLERS = {"kill_dump.py", "kill_train.py"}


def clock_uses(code: str) -> list[str]:
    """The calls outside slow tests that read the wall clock, or that fail when work takes less than the hang guard."""
    tree = ast.parse(code)
    slow = {id(node) for function in ast.walk(tree) if is_slow(function) for node in ast.walk(function)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and id(node) not in slow]
    return [f"line {call.lineno}: {ast.unparse(call)[:80]}" for call in calls if uses_clock(call)]


def is_slow(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any("mark.slow" in ast.unparse(mark) for mark in node.decorator_list)


def uses_clock(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    limits = [keyword.value for keyword in call.keywords if keyword.arg == "timeout"]
    if name.rpartition(".")[2] in WAITS:
        limits += call.args[:1]
    if name.endswith(".join"):  # the join of a thread does not fail
        limits = []
    return name in CLOCKS or any(isinstance(one, ast.Constant) and is_short(one.value) for one in limits)


def is_short(limit: object) -> bool:
    return isinstance(limit, (int, float)) and limit < HANG_GUARD


def test_no_fast_test_reads_the_wall_clock() -> None:
    files = [p for p in sorted(HERE.rglob("*.py")) if p.name not in KILLERS and p.parent.name != "slow"]
    uses = [
        f"{path.relative_to(HERE)}, {use}" for path in files for use in clock_uses(path.read_text(encoding="utf-8"))
    ]
    assert not uses, "count, wait for an event, or measure CPU time (time.process_time):\n" + "\n".join(uses)


def test_the_timeout_of_a_test_is_only_a_hang_guard(pytestconfig: pytest.Config) -> None:
    assert float(pytestconfig.getini("timeout")) >= HANG_GUARD


@pytest.mark.parametrize(
    ("code", "is_wrong"),
    [
        ("start = time.monotonic()", True),
        ("assert time.perf_counter() - start < 2", True),
        ("assert time.process_time() - start < 2", False),
        ("subprocess.run(command, timeout=60)", True),
        ("subprocess.run(command, timeout=1800)", False),
        ("child.wait(30)", True),
        ("child.wait()", False),
        ("thread.join(timeout=0.2)", False),
        ("@pytest.mark.timeout(60)\ndef test(): pass", True),
        ("@pytest.mark.slow\ndef test(): assert time.monotonic() < 3", False),
    ],
)
def test_wall_clock_rule_tells_right_from_wrong(code: str, is_wrong: bool) -> None:
    assert bool(clock_uses(code)) == is_wrong
