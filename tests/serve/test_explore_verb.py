"""`elmo explore`: server and browser in one go."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import urllib.request

import pytest


@pytest.fixture
def started(tmp_path):
    """The command with the tiny model, and a stand-in for the browser that writes down what it is told to open."""
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/opened.part && mv {tmp_path}/opened.part {tmp_path}/opened\n'
    )
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    command = [sys.executable, "-m", "elmo", "explore", "--model", "tiny-random", "--device", "cpu", "--json"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "BROWSER": f"{browser} %s"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process, tmp_path / "opened"
    process.kill()
    process.communicate()


def test_explore_opens_the_page_of_its_own_server_and_stops_with_ctrl_c(started):
    import time

    process, opened = started
    facts = json.loads(process.stdout.readline())
    assert facts["model"] == "tiny-random"
    assert facts["url"].startswith("http://127.0.0.1:")
    for _ in range(6000):  # until the browser has been called
        if opened.exists():
            break
        time.sleep(0.01)
    assert opened.read_text() == facts["url"]
    with urllib.request.urlopen(facts["url"] + "/") as answer:
        assert b"One word, several meanings" in answer.read()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=900) == 130
    assert "Traceback" not in process.stderr.read()


def test_explore_reports_a_missing_model_in_one_line(tmp_path):
    command = [sys.executable, "-m", "elmo", "explore", "--model", str(tmp_path / "none"), "--no-browser"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "none" in done.stderr
