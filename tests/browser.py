"""A real Chromium for the tests that open a page; `python3 run.py browser` installs it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_setup import ROOT, load_run

HOW = "python3 run.py browser installs it"
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser; skips where Playwright or Chromium is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason=f"Playwright is not installed; {HOW}")
    with playwright.sync_playwright() as started:
        path = load_run(ROOT).find_chromium()
        if path is None and not Path(started.chromium.executable_path).exists():
            pytest.skip(f"there is no Chromium; {HOW}")
        browser = started.chromium.launch(executable_path=path, args=QUIET)
        yield browser
        browser.close()
