"""The report in a browser: no errors, no requests, nothing cut off, on a phone and a wide screen, light and dark.

`python3 run.py browser` installs Playwright and Chromium; these tests are skipped without them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import chromium
from sample_records import write_all

from elmo.report.build import make_page, write_page
from elmo.report.collect import collect

SCREENS = [(320, "dark"), (360, "light"), (1280, "light"), (1280, "dark")]  # width in pixels, colour scheme


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    page, _ = make_page(collect([write_all(folder / "runs")]))
    write_page(page, folder / "out")
    return folder / "out" / "index.html"


@pytest.fixture(params=SCREENS, ids=lambda one: f"{one[0]}-{one[1]}")
def opened(request, browser, report):
    """The page, its console messages and the addresses that it requested."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    messages: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    yield page, messages, requests
    context.close()


def test_the_page_has_no_errors_no_requests_and_fits(opened, report):
    page, messages, requests = opened
    assert messages == []
    assert [url for url in requests if not url.startswith("data:")] == [report.as_uri()]
    wide, screen = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide <= screen
    # what is wider than the screen is in a region that scrolls, also with the keyboard
    stuck = page.evaluate(
        """() => [...document.querySelectorAll("main *")].filter(one =>
            one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".wide[tabindex='0']")).length"""
    )
    assert stuck == 0


def test_a_phone_shows_our_columns_of_table_1_without_scrolling(opened):
    page, _, _ = opened
    cells = page.locator("#six-tasks tbody tr").first.locator("td")
    heads = cells.evaluate_all("all => all.map(one => one.dataset.head)")
    assert sum(head.startswith("Ours") for head in heads) == 3
    right = cells.evaluate_all("all => Math.max(...all.map(one => one.getBoundingClientRect().right))")
    assert right <= page.evaluate("innerWidth"), heads
    # in a card, each of our numbers stands beside the paper's
    tops = dict(zip(heads, cells.evaluate_all("all => all.map(one => one.getBoundingClientRect().top)"), strict=True))
    assert abs(tops["Paper: gain"] - tops["Ours: gain"]) < 2


def test_what_scrolls_sideways_says_so_and_keeps_its_first_column(opened):
    page, _, _ = opened
    regions = page.evaluate(
        """() => [...document.querySelectorAll(".wide")].filter(one => one.checkVisibility()).map(one => {
            const hint = getComputedStyle(one, "::before").content;
            const overflows = one.scrollWidth > one.clientWidth + 1;
            one.scrollLeft = 9999;
            const head = one.querySelector("tbody th"), box = head && head.getBoundingClientRect();
            const isVisible = !head || box.left >= one.getBoundingClientRect().left - 1 && box.right <= innerWidth;
            return [overflows, hint.startsWith('"Scroll'), isVisible]; })"""
    )
    assert len(regions) > 10
    assert all(hinted == overflows for overflows, hinted, _ in regions)
    assert all(is_visible for *_, is_visible in regions)
    assert any(overflows for overflows, *_ in regions) == (page.evaluate("innerWidth") < 400)


def test_the_page_opens_with_pictures(opened):
    page, _, _ = opened
    tops = page.evaluate(
        """() => ["#opening figure", "nav", "#findings"].map(one =>
            document.querySelector(one).getBoundingClientRect().top)"""
    )
    assert tops == sorted(tops)
    assert tops[0] < page.evaluate("innerHeight"), "the first picture begins on the first screen"


def test_explanations_unfold_and_print_in_full(opened):
    page, _, _ = opened
    assert not page.locator("details.more p, details.more table").first.is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.more p, details.more table").first.is_visible()


def test_pictures_are_drawn(opened):
    page, _, _ = opened
    boxes = page.evaluate(
        "() => [...document.querySelectorAll('figure svg')].map(one => one.getBoundingClientRect().height)"
    )
    assert len(boxes) == 10
    assert min(boxes) > 80


def test_the_link_of_a_score_opens_its_record(opened):
    page, _, _ = opened
    page.locator("#layers td a").first.click()
    page.wait_for_function("() => document.querySelector('li:target details')?.open")
    assert "elmo task train" in page.locator("li:target pre").first.inner_text()
    assert page.evaluate("() => document.querySelector('li:target').getBoundingClientRect().top < innerHeight")


def test_collapsed_tables_open_with_the_keyboard(opened):
    page, messages, _ = opened
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip", "the first stop leads past the menu"
    page.locator("details.more summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details.more table").first.is_visible()
    assert messages == []


def test_the_page_is_dark_in_dark_mode(opened):
    page, _, _ = opened
    wants_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (
        sum(map(int, ground.removeprefix("rgb(").rstrip(")").split(","))) < 200
        if wants_dark
        else ground == "rgb(255, 255, 255)"
    )


def test_rendered_text_has_enough_contrast(opened):
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
