"""The built documentation site in a browser: search, the API, versions, no errors and no request to another host.

`python3 run.py docs` builds the site and `python3 run.py browser` installs Chromium; without both, they are skipped.
"""

from __future__ import annotations

import functools
import http.server
import threading
from pathlib import Path

import pytest
from browser import chromium
from test_site_files import ROOT, load_builder

SITE = ROOT / "site"
PATIENCE_MS = 120_000  # no assertion depends on it: only how long a failing test waits on a busy machine
PAGES = ["", "api/", "api/embed/", "guides/quickstart/", "notebooks/words_in_context/", "report/", "tour/", "weights/"]


@pytest.fixture(scope="module")
def address():
    """The address of the built site on this machine."""
    builder = load_builder()
    built = SITE / builder.current_version() / builder.SOURCES
    if not built.exists() or built.read_text() != builder.hash_of_sources():
        pytest.skip("site/ is missing or older than its sources: python3 run.py docs builds it")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser, address):
    """An empty page, its console messages, and the requests that failed or went to another host."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("response", lambda answer: answer.status >= 400 and faults.append(f"{answer.status} {answer.url}"))
    page.on("request", lambda request: request.url.startswith((address, "data:")) or faults.append(request.url))
    yield page, faults
    context.close()


@pytest.mark.parametrize("place", PAGES)
def test_a_page_has_no_errors_and_loads_nothing_from_other_hosts(place, opened, address):
    page, faults = opened
    page.goto(f"{address}{load_builder().current_version()}/{place}", wait_until="networkidle")
    assert page.locator("h1").first.inner_text()
    assert (
        page.evaluate("[...document.images].filter(one => one.complete && !one.naturalWidth).map(one => one.src)") == []
    )
    assert faults == []


def test_the_first_address_leads_to_this_version_and_the_menu_lists_it(opened, address):
    page, faults = opened
    page.goto(address)
    version = load_builder().current_version()
    page.wait_for_url(f"{address}{version}/")
    page.locator(".md-version__current").wait_for()
    assert page.locator(".md-version__link").all_text_contents()[0].strip() == version
    assert faults == []


def test_search_finds_a_page_and_opens_it(opened, address):
    page, faults = opened
    page.goto(f"{address}{load_builder().current_version()}/", wait_until="networkidle")
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").press_sequentially("substitutes")  # it listens to keys
    result = page.locator(".md-search-result__link").first
    result.wait_for()
    target = result.get_attribute("href")
    result.click()
    page.wait_for_url(f"**{Path(target.split('#')[0].split('?')[0]).name}/**")
    assert "substitutes" in page.locator("article").inner_text().lower()
    assert faults == []


def test_the_api_shows_signatures_and_docstrings_of_the_code(opened, address):
    page, _ = opened
    page.goto(f"{address}{load_builder().current_version()}/api/")
    shown = page.locator("article").inner_text()
    assert "elmo.Embedder" in shown
    assert "A frozen biLM that turns text into vectors." in shown
    page.locator("[id='elmo.Embedder.encode']").wait_for(state="attached")
    assert page.locator("[id='elmo.ScalarMix']").count() == 1


def test_a_link_of_the_repository_leads_to_the_page_of_the_site(opened, address):
    page, _ = opened
    version = load_builder().current_version()
    page.goto(f"{address}{version}/guides/embedding/")
    page.locator("article a[href*='repository/benchmarks/results/million_lines']").first.click()
    page.wait_for_url(f"{address}{version}/repository/benchmarks/results/million_lines*/")
    assert "million" in page.locator("h1").inner_text().lower()
