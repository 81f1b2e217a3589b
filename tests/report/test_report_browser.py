"""The report in a real browser: no complaint, no request, nothing cut off, on a phone and a wide screen, in the dark.

`python3 run.py browser` gets what it needs, Playwright and a Chromium; it is skipped without them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_records import write_all
from test_setup import ROOT, load_run

from elmo.report.build import make_page, write_page
from elmo.report.collect import collect
from elmo.report.table1 import make_table
from elmo.report.table1_chart import as_svg
from elmo.report.table1_formats import as_values

HOW = "python3 run.py browser gets it"
playwright = pytest.importorskip("playwright.sync_api", reason=f"Playwright is not installed; {HOW}")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        found = find_chromium()
        if found is None and not Path(started.chromium.executable_path).exists():
            pytest.skip(f"there is no Chromium; {HOW}")
        chromium = started.chromium.launch(executable_path=found, args=QUIET)
        yield chromium
        chromium.close()


def find_chromium() -> str | None:
    return load_run(ROOT).find_chromium()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    evidence = collect([write_all(folder / "runs")])
    rows = make_table(evidence.tasks)
    page, _ = make_page(evidence, table=as_values(rows), table_picture=as_svg(rows))
    write_page(page, folder / "out")
    return folder / "out" / "index.html"


@pytest.fixture(params=[(320, "dark"), (1280, "light")], ids=["phone-dark", "wide-light"])
def opened(request, browser, report):
    """The page, and what it said and asked for."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    heard: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    yield page, heard, asked
    context.close()


def test_it_says_nothing_asks_for_nothing_and_fits(opened, report):
    page, heard, asked = opened
    assert heard == []
    assert [url for url in asked if not url.startswith("data:")] == [report.as_uri()]
    wide, screen = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide <= screen
    # what is wider than the screen can be moved by itself, with the keyboard too
    stuck = page.evaluate(
        """() => [...document.querySelectorAll("main *")].filter(one =>
            one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".wide[tabindex='0']")).length"""
    )
    assert stuck == 0


def test_pictures_are_drawn(opened):
    page, _, _ = opened
    boxes = page.evaluate(
        "() => [...document.querySelectorAll('figure svg, figure img')].map(one => one.getBoundingClientRect().height)"
    )
    assert len(boxes) == 9
    assert min(boxes) > 80
    assert page.evaluate("() => [...document.images].every(one => one.complete && one.naturalWidth > 0)")


def test_a_figures_link_opens_its_record(opened):
    page, _, _ = opened
    page.locator("#layers td a").first.click()
    page.wait_for_function("() => document.querySelector('li:target details')?.open")
    assert "elmo task train" in page.locator("li:target pre").first.inner_text()
    assert page.evaluate("() => document.querySelector('li:target').getBoundingClientRect().top < innerHeight")


def test_what_is_folded_opens_with_the_keyboard(opened):
    page, heard, _ = opened
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip", "the first stop leads past the menu"
    page.locator("details.more summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details.more table").first.is_visible()
    assert heard == []


def test_the_page_is_dark_where_dark_is_asked_for(opened):
    page, _, _ = opened
    wants_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (
        sum(map(int, ground.removeprefix("rgb(").rstrip(")").split(","))) < 200
        if wants_dark
        else ground == "rgb(255, 255, 255)"
    )


def test_text_stands_out_from_its_ground_as_drawn(opened):
    page, _, _ = opened
    pairs = page.evaluate(
        """() => {
            const ground = one => { for (; one; one = one.parentElement) {
                const color = getComputedStyle(one).backgroundColor;
                if (color !== "rgba(0, 0, 0, 0)") return color; } };
            return [...document.querySelectorAll("p, li, th, td, a, span, caption, figcaption, summary, code, h1, h2")]
                .map(one => [getComputedStyle(one).color, ground(one)]); }"""
    )
    from elmo.charts.svg import contrast

    def as_hex(color: str) -> str:
        return "#" + "".join(f"{int(part):02x}" for part in color.removeprefix("rgb(").rstrip(")").split(","))

    assert min(contrast(as_hex(text), as_hex(ground)) for text, ground in map(tuple, pairs)) >= 4.5
