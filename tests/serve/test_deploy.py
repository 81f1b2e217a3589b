"""The files in deploy/ are valid, name options that `elmo serve` has, and do what they say."""

from __future__ import annotations

import contextlib
import fnmatch
import http.client
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from live_server import PATIENCE_S, live_server
from served_models import load_tiny

from elmo.cli.hints import flags_of
from elmo.cli.main import app

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from serve_processes import nginx_balancer

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


def embed_through(port, text):
    """The status of a request to /embed and the number of its tokens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        body = json.dumps({"texts": [text], "layers": "all"})
        connection.request("POST", "/embed", body, {"content-type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        return response.status, len(json.loads(answer)["items"][0]["tokens"]) if response.status == 200 else answer


def test_nginx_spreads_requests_and_goes_on_when_a_server_stops():
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not on this machine")
    with live_server(load_tiny) as first, contextlib.ExitStack() as stack:
        second = stack.enter_context(live_server(load_tiny))
        port = stack.enter_context(nginx_balancer([first.port, second.port]))
        assert [embed_through(port, f"text {n}") for n in range(20)] == [(200, 2)] * 20
        counts = [server.metric("elmo_texts_total") for server in (first, second)]
        assert min(counts) > 0
        assert sum(counts) == 20
        # larger than nginx's buffers, so that it writes both the request and the answer to its folders
        assert embed_through(port, "word " * 6000) == (200, 6000)
        second.server.stop()
        assert [embed_through(port, "text") for _ in range(10)] == [(200, 1)] * 10


def test_build_context_of_the_container_leaves_out_what_the_project_generates():
    patterns = (ROOT / ".dockerignore").read_text().split()
    for generated in (".git", *(ROOT / ".gitignore").read_text().split()):
        name = generated.rstrip("/").replace("*", "-integrations") if generated.startswith(".venv") else generated
        assert any(fnmatch.fnmatch(name.rstrip("/"), pattern.removeprefix("**/")) for pattern in patterns), generated


def test_container_copies_what_the_build_needs():
    text = (ROOT / "deploy" / "Containerfile").read_text()
    assert text.count("FROM python:") == 2
    assert "USER elmo" in text
    for needed in ("pyproject.toml", "README.md", "LICENSE"):
        assert (ROOT / needed).exists()
