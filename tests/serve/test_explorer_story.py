"""The explorer's main story in a browser: an example at once, typing, selecting a word, moving a slider."""

from __future__ import annotations

import re

import pytest
from browser import chromium
from explorer_browser import opened_page, write_bank
from live_server import live_server

from elmo.serve.model_source import ModelSource

OWN = """We walked along the bank of the river.
The bank lent us the money.
She works at a bank in London.
They reached the far bank of the stream."""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with live_server(ModelSource(device="cpu"), bank=write_bank(tmp_path_factory.mktemp("bank"))) as server:
        yield f"http://127.0.0.1:{server.port}/"


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module", params=[(360, "dark"), (1280, "light")], ids=["phone-dark", "wide-light"])
def first_view(request, browser, address):
    """The page as it opens, for tests that change nothing on it."""
    width, scheme = request.param
    with opened_page(browser, address, width=width, scheme=scheme) as page:
        page.settle()
        yield page


@pytest.fixture(params=[(360, "dark"), (1280, "light")], ids=["phone-dark", "wide-light"])
def opened(request, browser, address):
    width, scheme = request.param
    with opened_page(browser, address, width=width, scheme=scheme) as page:
        page.settle()
        yield page


@pytest.fixture
def wide(browser, address):
    with opened_page(browser, address) as page:
        page.settle()
        yield page


def test_the_page_opens_with_two_meanings_coloured_apart(first_view):
    assert first_view.groups() == {"1": "0", "2": "0", "3": "0", "4": "1", "5": "1", "6": "1"}
    assert "separate into two meanings" in first_view.page.locator("#lead").inner_text()
    panels = first_view.page.locator(".panel")
    assert panels.count() == 4
    assert panels.nth(0).locator(".count").text_content() == "6×", "without context all uses are one point"
    for layer in (1, 2, 3):
        assert panels.nth(layer).locator("svg circle:not(.halo)").count() == 3
        assert panels.nth(layer).locator(".mark rect").count() == 3
    legend = first_view.page.locator("#legend").inner_text()
    assert "could be replaced by" in legend
    assert "ECB" in legend, "words are written as the model writes them"


def test_the_page_makes_no_external_request_has_no_errors_and_fits(first_view, address):
    assert first_view.messages == []
    assert [url for url in first_view.requests if not url.startswith(address)] == []
    wide, screen = first_view.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= screen
    stuck = first_view.page.evaluate(
        """() => [...document.querySelectorAll("main *")].filter(one => one.getClientRects().length &&
            one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".wide[tabindex='0'], svg, .hidden"))
            .map(one => one.outerHTML.slice(0, 80))"""
    )
    assert stuck == []


def test_the_story_from_typing_to_selecting_to_mixing(opened):
    page = opened.page
    opened.type_sentences(OWN)
    assert opened.groups() == {"1": "0", "2": "1", "3": "1", "4": "0"}  # the repeated word is chosen at once
    page.locator("#sentences .word", has_text=re.compile("^money$")).click()
    opened.settle()
    assert opened.groups() == {"2": "0"}
    assert "money occurs once" in page.locator("#lead").inner_text()
    page.locator("[data-place='0.4']").click()
    opened.settle()
    assert page.locator("#neighbours tbody tr").count() >= 6
    assert page.locator("#substitutes .here .word").inner_text() == "bank"
    assert page.locator("#substitutes .here .both").inner_text() != ""
    # the weights of layers 1 and 2 go to zero: what is left is the spelling, which does not tell the uses apart
    requests = len(opened.api_requests())
    for slider in (1, 2):
        page.locator("#weights input").nth(slider).focus()
        page.keyboard.press("Home")
    opened.wait("document.querySelector('#weights output').textContent === '100 %'")
    assert set(opened.groups().values()) == {"0"}
    assert page.locator(".panel.chosen .name").inner_text() == "Mix"
    assert page.locator(".panel.chosen .count").text_content() == "4×"
    assert len(opened.api_requests()) == requests, "mixing layers asks nothing of the server"
    assert opened.messages == []


def test_a_slider_weighs_neighbours_and_similarities_again(wide):
    def shown() -> tuple[str, str]:
        return wide.page.locator("#neighbours").inner_text(), wide.page.locator("#heat").inner_text()

    before, requests = shown(), len(wide.api_requests())
    wide.page.locator("#weights input").nth(0).focus()
    wide.page.keyboard.press("End")
    wide.wait("document.querySelector('#weights output').textContent === '50 %'")
    after = shown()
    assert after[0] != before[0]
    assert after[1] != before[1]
    assert len(wide.api_requests()) == requests


def test_gamma_changes_distances_and_no_cosine(wide):
    heat, marks = "#heat", ".panel[data-layer=mix] .scale-bar text"
    before = wide.page.locator(heat).inner_text(), wide.page.locator(marks).text_content()
    wide.page.locator("#weights input").last.focus()
    wide.page.keyboard.press("End")
    wide.wait("[...document.querySelectorAll('#weights output')].at(-1).textContent === '3.0'")
    assert wide.page.locator(heat).inner_text() == before[0]
    assert wide.page.locator(marks).text_content() != before[1]


def test_a_link_shows_the_same_view_again(wide, browser):
    page = wide.page
    wide.type_sentences(OWN)
    page.locator("[data-place='2.4']").click()
    page.locator("#weights input").nth(2).focus()
    page.keyboard.press("End")
    page.locator("#compare").select_option("1")
    page.locator("#show-bank").check()
    wide.settle()

    def view(one) -> list[str]:
        return [one.locator(part).inner_html() for part in ("#sentences", "#panels", "#legend", "#heat", "#neighbours")]

    with opened_page(browser, page.url) as again:
        again.settle()
        assert view(again.page) == view(page)
        assert again.messages == []


def test_a_changed_address_in_the_same_page_is_followed(wide):
    wide.page.evaluate("location.hash = '#s=The+light+is+on.%0AA+light+bag.&w=1.2&layer=2'")
    wide.page.locator("#sentences .word", has_text="bag").wait_for()
    wide.settle()
    assert wide.page.locator(".word[aria-pressed=true]").inner_text() == "light"
    assert wide.page.locator(".panel.chosen .name").inner_text() == "Layer 2"


def test_everything_works_with_the_keyboard_alone(wide):
    page = wide.page

    def tab_to(condition: str, limit: int = 150) -> None:
        for _ in range(limit):
            page.keyboard.press("Tab")
            if page.evaluate(f"(() => {{ const here = document.activeElement; return {condition}; }})()"):
                return
        raise AssertionError(f"Tab does not reach: {condition}")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    tab_to("here.textContent === 'play'")
    page.keyboard.press("Enter")
    page.locator("#sentences .word", has_text="acts").wait_for()
    wide.settle()
    tab_to("here.dataset.place === '0.8'")  # "the" of the first sentence
    page.keyboard.press("Enter")
    wide.wait("document.querySelector('#lead strong').textContent === 'the'")
    assert page.evaluate("document.activeElement.dataset.place") == "0.8", "the focus stays on the word"
    tab_to("here.matches('#editor summary')")
    page.keyboard.press("Enter")
    tab_to("here.id === 'text'")
    page.keyboard.press("Control+A")
    page.keyboard.type(OWN)
    page.keyboard.press("Control+Enter")
    page.locator("#sentences .word", has_text="works").wait_for()
    wide.settle()
    tab_to("here.name === 'layer'")
    page.keyboard.press("ArrowLeft")
    assert page.locator(".panel.chosen .name").inner_text() != "Mix"
    tab_to("here.matches('.panel[data-layer=mix] [role=button]')")
    label = "document.activeElement.getAttribute('aria-label')"
    first = page.evaluate(label)
    page.keyboard.press("ArrowRight")
    second = page.evaluate(label)
    assert first != second
    assert "sentence" in second
    assert page.locator("#tip").is_visible()
    page.keyboard.press("Enter")
    wide.wait("document.activeElement.getAttribute('aria-pressed') === 'true'")
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()
    assert wide.messages == []


def test_the_map_has_a_table_and_every_control_a_name(wide):
    page = wide.page
    page.locator("#map-table summary").click()
    assert page.locator("#map-table tbody tr").count() == 6
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, textarea, [role=button], [role=region], svg")]
            .filter(one => !(one.textContent.trim() || one.labels?.length || one.ariaLabel ||
                             one.getAttribute("aria-labelledby")))
            .map(one => one.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    assert page.locator("#status").inner_text() == "6 uses of bank in two groups"


def test_rendered_text_has_enough_contrast(first_view):
    pairs = first_view.page.evaluate(
        """() => {
            const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
            const rgb = color => { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
                return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); };
            const ground = one => { for (; one; one = one.parentElement) {
                const color = getComputedStyle(one).backgroundColor;
                if (color !== "rgba(0, 0, 0, 0)") return color; } };
            return [...document.querySelectorAll("p, li, th, td, button, span, label, dd, dt, summary, h1, h2, output")]
                .filter(one => one.getClientRects().length && one.textContent.trim())
                .map(one => [rgb(getComputedStyle(one).color), rgb(ground(one)), one.outerHTML.slice(0, 90)]); }"""
    )
    from elmo.charts.svg import contrast

    def as_hex(color: list[int]) -> str:
        return "#" + "".join(f"{part:02x}" for part in color)

    weak = [(html, text, ground) for text, ground, html in pairs if contrast(as_hex(text), as_hex(ground)) < 4.5]
    assert weak == []
