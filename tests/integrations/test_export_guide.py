"""The guide about exports: its commands and its code run, with a small model in place of the shipped one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from in_process_cli import run_in_process

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "export.md").read_text(encoding="utf-8")
COMMANDS = [line.split()[1:] for line in GUIDE.splitlines() if line.startswith("    elmo export")]


def run_guide(tmp_path: Path, capsys, monkeypatch, *, aoti: bool) -> None:
    monkeypatch.chdir(tmp_path)
    for words in COMMANDS:
        if ("--aoti" in words) == aoti:
            done = run_in_process(capsys, *(word if word != "english" else "tiny-random" for word in words))
            assert done.returncode == 0, done.stderr
            assert "largest difference from the model in PyTorch" in done.stdout
    ids_code = re.search(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S)[1]
    programs = re.search(r"^```\n(program = .*?)\n\n(compiled = .*?)^```$", GUIDE, re.M | re.S)
    scope: dict = {}
    exec(f"import torch\n{ids_code}\n{programs[2 if aoti else 1]}", scope)
    assert scope["layers"].shape[1:3] == scope["mask"].shape == (2, 6)


def test_the_commands_and_the_code_of_the_guide_run(tmp_path, capsys, monkeypatch):
    assert len(COMMANDS) == 4
    run_guide(tmp_path, capsys, monkeypatch, aoti=False)


@pytest.mark.slow
def test_the_compiled_program_of_the_guide_runs(tmp_path, capsys, monkeypatch):
    run_guide(tmp_path, capsys, monkeypatch, aoti=True)
