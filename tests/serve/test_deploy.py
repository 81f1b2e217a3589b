"""The files in deploy/ are valid and name options that `elmo serve` has."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from elmo.cli.hints import flags_of
from elmo.cli.main import app

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "deploy").iterdir())


@pytest.mark.parametrize("path", [*FILES, ROOT / "docs" / "guides" / "serving.md"], ids=lambda path: path.name)
def test_commands_name_options_that_exist(path):
    flags = flags_of(typer.main.get_command(app), ["serve"])
    text = path.read_text(encoding="utf-8")
    entry = re.sub(r"ENTRYPOINT \[(.*)\]", lambda match: match[1].replace('", "', " ").strip('"'), text)
    for command in re.findall(r"elmo serve((?: +[^\s&`#]+)*)", entry):
        for flag in re.findall(r"--[a-z][a-z-]*", command):
            assert flag in flags, f"{path.name}: {flag}"


def test_systemd_accepts_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine")
    unit = (ROOT / "deploy" / "elmo.service").read_text()
    path = tmp_path / "elmo.service"
    path.write_text(unit.replace("/opt/elmo/bin/elmo", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True)
    assert "elmo.service" not in done.stderr, done.stderr
    assert done.returncode == 0


def test_nginx_accepts_the_configuration(tmp_path):
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not on this machine")
    command = ["nginx", "-t", "-c", str(ROOT / "deploy" / "nginx.conf"), "-e", str(tmp_path / "errors")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_container_copies_what_the_build_needs():
    text = (ROOT / "deploy" / "Containerfile").read_text()
    assert text.count("FROM python:") == 2
    assert "USER elmo" in text
    for needed in ("pyproject.toml", "README.md", "LICENSE"):
        assert (ROOT / needed).exists()
