"""The explorer at its edges: hostile text, other models, models without softmax, a stopped server, an API key."""

from __future__ import annotations

import pytest
from browser import chromium
from explorer_browser import opened_page, write_bank
from live_server import live_server
from served_models import load_tiny

from elmo.serve.model_source import ModelSource

HOSTILE = [
    "<script>window.hacked = 1</script> bank",
    '"><img src=x onerror="window.hacked = 1"> bank',
    "<svg onload=alert(1)> javascript:alert(1) {{7*7}} ${1} bank",
    "a\u202e b \u0000 bank &lt;b&gt; </textarea>",
]
UNHURT = "window.hacked === undefined && !document.querySelector('main img, main script, main b')"


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def tiny_address(tiny_server):
    return f"http://127.0.0.1:{tiny_server.port}/"


def test_markup_in_sentences_is_shown_as_text(browser, tiny_address):
    with opened_page(browser, tiny_address) as opened:
        opened.settle()
        opened.page.locator("#editor summary").click()
        opened.page.locator("#text").fill("\n".join(HOSTILE))
        opened.page.locator("#show").click()
        opened.page.locator("#sentences", has_text="onerror").wait_for()
        opened.settle()
        for mark in opened.page.locator(".panel[data-layer=mix] [role=button]").all():
            mark.hover(force=True)
        assert opened.page.evaluate(UNHURT)
        assert "window.hacked" in opened.page.locator("#sentences").inner_text()
        with opened_page(browser, opened.page.url) as again:  # the same text in a link
            again.settle()
            assert again.page.evaluate(UNHURT)
            assert again.messages == []
        assert opened.messages == []


@pytest.mark.parametrize(
    "fragment",
    ["#s=", "#s=One&w=99.99", "#s=One&layer=77&mix=a,b&gamma=x&with=-3", "#%E0%A4%A", "#s=One&mix=1,2,3,4,5,6,7&w=0.0"],
)
def test_a_broken_link_opens_the_page_all_the_same(browser, tiny_address, fragment):
    with opened_page(browser, tiny_address + fragment) as opened:
        opened.settle()
        assert opened.page.locator(".word[aria-pressed=true]").count() == 1
        assert opened.messages == []


def test_a_model_of_another_shape_works(browser, tiny_address, tiny_server):
    info = tiny_server.get("/v1/models").json()["data"][0]
    assert info["dim"] != 512
    with opened_page(browser, tiny_address) as opened:
        opened.settle()
        assert opened.page.locator(".panel").count() == info["num_layers"] + 1
        assert opened.page.locator("#weights input").count() == info["num_layers"] + 1


def test_a_model_without_softmax_says_why_there_are_no_substitutes(browser, tmp_path):
    with live_server(ModelSource(model="tiny-random", device="cpu"), bank=write_bank(tmp_path)) as server:
        with opened_page(browser, f"http://127.0.0.1:{server.port}/") as opened:
            opened.wait("/cannot predict/.test(document.querySelector('#substitutes-note').textContent)")
            assert "softmax" in opened.page.locator("#substitutes-note").inner_text()
            assert opened.page.locator("#substitutes li").count() == 0
            assert opened.page.locator("#message").is_hidden()
            assert opened.page.locator(".panel svg .frame").count() > 1, "the rest of the page works"


def test_an_empty_text_gets_a_message(browser, tiny_address):
    with opened_page(browser, tiny_address) as opened:
        opened.settle()
        opened.page.locator("#editor summary").click()
        opened.page.locator("#text").fill(" \n\n ")
        opened.page.locator("#show").click()
        assert "at least one sentence" in opened.page.locator("#message").inner_text()


def test_a_pasted_paragraph_becomes_one_sentence_per_line(browser, tiny_address):
    with opened_page(browser, tiny_address) as opened:
        opened.settle()
        opened.page.locator("#editor summary").click()
        opened.page.locator("#text").fill("The bank is closed. Is the bank steep? Yes.")
        opened.page.locator("#split").click()
        assert opened.page.locator("#text").input_value().splitlines() == [
            "The bank is closed.",
            "Is the bank steep?",
            "Yes.",
        ]


def test_more_sentences_than_a_map_can_show_are_refused_aloud(browser, tiny_address):
    with opened_page(browser, tiny_address) as opened:
        opened.settle()
        opened.page.locator("#editor summary").click()
        opened.page.locator("#text").fill("The bank .\n" * 103)
        opened.page.locator("#show").click()
        opened.wait("!document.querySelector('#message').hidden")
        assert "3 more were left out" in opened.page.locator("#message").inner_text()
        assert opened.page.locator("#sentences li").count() == 100


def test_a_server_that_does_not_answer_is_reported(browser, tmp_path):
    with live_server(load_tiny, bank=write_bank(tmp_path)) as server:
        with opened_page(browser, f"http://127.0.0.1:{server.port}/") as opened:
            opened.settle()
            opened.page.route("**/embed", lambda route: route.abort())
            opened.page.locator("#examples button", has_text="play").click()
            opened.wait("/does not answer/.test(document.querySelector('#message').textContent)")


def test_only_the_neighbours_are_busy_while_the_bank_is_searched(browser, tiny_address):
    with opened_page(browser, "about:blank") as opened:
        opened.page.route("**/similar", lambda route: None)  # never answered
        opened.page.goto(tiny_address)
        opened.wait(
            "document.querySelectorAll('#substitutes li').length > 0 && document.querySelector('#legend strong')"
        )
        opened.wait("!document.querySelector('#substitutes[aria-busy]')")
        busy = opened.page.evaluate("[...document.querySelectorAll('[aria-busy]')].map(one => one.id || one.tagName)")
        assert busy == ["neighbours"]
        assert opened.page.locator("#status").inner_text().startswith("6 uses of bank")


def test_a_server_with_a_key_asks_for_it(browser, tmp_path):
    with live_server(load_tiny, bank=write_bank(tmp_path), api_keys=("secret-key",)) as server:
        with opened_page(browser, f"http://127.0.0.1:{server.port}/") as opened:
            opened.page.locator("#key").fill("secret-key")
            opened.page.locator("#key-form button").click()
            opened.settle()
            assert opened.page.locator("#sentences li").count() == 6
            assert opened.page.locator("#key-form").is_hidden()
            assert "secret-key" not in opened.page.url


def test_a_link_without_a_choice_shows_the_bank_where_uses_are_few(browser, tiny_address):
    few, many = "#s=The+bank+.%0AA+bank+.", "#s=" + "The+bank+.%0A" * 5
    for fragment, is_shown in ((few, True), (many, False), (few + "&bank=0", False), (many + "&bank=1", True)):
        with opened_page(browser, tiny_address + fragment) as opened:
            opened.settle()
            assert opened.page.locator("#show-bank").is_checked() is is_shown, fragment
