"""Runs the examples in README.md and docs/: ```python and ```pycon blocks, and the commands of ```console blocks.

The blocks of one page run in order in one empty folder, and python blocks share one namespace. A pycon block is an
interactive session: each ">>>" is followed by its output, in which "..." matches any text. In a console block a line
that starts with "$ " is a command; the lines after it are its expected output, in which "..." matches any text. A
command without expected output only has to succeed. `<!-- not run: reason -->` above a block skips it. Blocks of other
kinds are not run.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.exists()]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ \t]*$", re.M | re.S)
NOT_RUN = re.compile(r"<!-- not run: \S.*?-->\s*\Z", re.S)

# a process that reads one block per line, runs all blocks in one namespace, and answers with a traceback or ""
PYTHON_SESSION = """
import contextlib, doctest, io, json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    kind, code = json.loads(line)
    error = ""
    if kind == "pycon":
        session = doctest.DocTestParser().get_doctest(code, names, "page", "page", 0)
        report = io.StringIO()
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(session, out=report.write, clear_globs=False)
        names.update(session.globs)
        print(json.dumps(report.getvalue()), flush=True)
        continue
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            exec(compile(code, "page", "exec"), names)
        except BaseException:
            error = traceback.format_exc()
    print(json.dumps(error), flush=True)
"""


@dataclass(frozen=True)
class Block:
    kind: str
    code: str
    line: int  # line number of its first line of code


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page that are run."""
    return [
        Block(fence[1], fence[2], text.count("\n", 0, fence.start(2)) + 1)
        for fence in FENCE.finditer(text)
        if fence[1] in ("python", "pycon", "console") and not NOT_RUN.search(text[: fence.start()])
    ]


def commands_of(code: str) -> list[tuple[str, str]]:
    """(command, expected output) pairs of a console block; a backslash at the end of a line continues a command."""
    commands: list[tuple[str, str]] = []
    for line in code.splitlines():
        if commands and commands[-1][0].endswith("\\") and not commands[-1][1]:
            commands[-1] = (f"{commands[-1][0]}\n{line}", "")
        elif line.startswith("$ "):
            commands.append((line[2:], ""))
        elif commands:
            commands[-1] = (commands[-1][0], f"{commands[-1][1]}{line}\n")
        else:
            raise AssertionError(f"a console block must start with '$ ', not {line!r}")
    return commands


def same_output(expected: str, printed: str) -> bool:
    stripped = "\n".join(line.rstrip() for line in printed.strip().splitlines()) + "\n"
    return doctest.OutputChecker().check_output(expected.strip() + "\n", stripped, doctest.ELLIPSIS)


def run_page(text: str, folder: Path) -> None:
    tools = folder.parent / f"{folder.name}-bin"  # makes `elmo` and `python` the ones under test, installed or not
    tools.mkdir()
    for name, words in (("elmo", "-m elmo"), ("python", ""), ("python3", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (tools / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    python = [sys.executable, "-c", PYTHON_SESSION]
    with subprocess.Popen(
        python, cwd=folder, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as session:
        for block in blocks_of(text):
            if block.kind != "console":
                code = "\n" * (block.line - 1) + block.code
                print(json.dumps([block.kind, code]), file=session.stdin, flush=True)
                error = json.loads(session.stdout.readline() or '"the interpreter died"')
                assert not error, f"python block at line {block.line}:\n{error}"
            else:
                for command, expected in commands_of(block.code):
                    run_command(command, expected, folder, env)


def run_command(command: str, expected: str, folder: Path, env: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=env, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, f"$ {command}\nexited with {done.returncode}:\n{done.stdout}"
    matches = not expected.strip() or same_output(expected, done.stdout)
    assert matches, f"$ {command}\nexpected:\n{expected}\nprinted:\n{done.stdout}"


@pytest.mark.skipif(os.name == "nt", reason="the pages use a POSIX shell")
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_page_runs_as_shown(page, tmp_path):
    folder = tmp_path / "page"
    folder.mkdir()
    run_page(page.read_text(encoding="utf-8"), folder)


GOOD = """
```python
number = 6
open("made.txt", "w").write("seven\\n")
```
```python
assert number == 6
```
```pycon
>>> number
6
>>> number = 7
>>> print("about", number * 1.01)
about 7...
```
```python
assert number == 7
```
```console
$ cat made.txt
seven
$ echo one; echo two; echo 3.14159
one
...
3.14...
$ echo a \\
    b
a b
```
<!-- not run: it would fail -->
```python
raise SystemExit(1)
```
```sh
exit 1
```
"""


@pytest.mark.parametrize(
    "page",
    [
        "```python\nassert False\n```",
        "```pycon\n>>> 1 + 1\n3\n```",
        "```pycon\n>>> undefined_name\n```",
        "```console\n$ exit 3\n```",
        "```console\n$ echo one\ntwo\n```",
        "```console\n$ printf 'one\\ntwo\\n'\none\n```",
        "```console\n$ elmo no-such-verb\n```",
        "<!-- not run: only the next block -->\n```sh\n```\n```python\nassert False\n```",
        "<!-- a remark -->\n```python\nassert False\n```",
    ],
)
def test_a_wrong_page_is_caught(page, tmp_path):
    with pytest.raises(AssertionError):
        run_page(page, tmp_path)


def test_a_right_page_passes(tmp_path):
    assert [block.kind for block in blocks_of(GOOD)] == ["python", "python", "pycon", "python", "console"]
    run_page(GOOD, tmp_path)


def test_a_failing_block_is_named_by_its_line(tmp_path):
    with pytest.raises(AssertionError, match="line 4, in <module>"):
        run_page("# Title\n\n```python\nundefined_name\n```\n", tmp_path)
