"""docs/report is up to date: the command of the guide gives the committed page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from in_process_cli import run_in_process

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "report"
MAX_BYTES = 1_500_000  # of the whole folder


def command() -> list[str]:
    guide = (ROOT / "docs" / "guides" / "report.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^elmo (report .*-o docs/report .*)$", guide, re.M)
    return shlex.split(line)


def test_the_committed_page_is_up_to_date(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)  # paths of records are relative to this folder
    words = [str(tmp_path) if word == "docs/report" else word for word in command()]
    done = run_in_process(capsys, *words)
    assert done.returncode == 0, done.stderr
    assert "left out" not in done.stderr
    written = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    committed = {file.name: file.read_bytes() for file in PAGE.iterdir()}
    assert written.keys() == committed.keys(), "docs/report has files of an older page, or lacks some"
    stale = [name for name in written if written[name] != committed[name]]
    assert not stale, f"{stale} differ: run `elmo {shlex.join(command())}` and commit what it writes"


def test_the_page_is_small_and_linked_first_from_the_readme():
    assert sum(file.stat().st_size for file in PAGE.iterdir()) < MAX_BYTES
    links = re.findall(r"\]\((docs/[^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert links[0].startswith("docs/report"), links[0]
