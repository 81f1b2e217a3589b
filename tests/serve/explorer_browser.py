"""The explorer page in a real Chromium, against a real server; what its tests share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_MS = 120_000  # no assertion depends on it: only how long a failing test waits on a busy machine
BANK = """The bank refused my deposit request .
I lay flat on the bank and heard the river and the rain .
Curly crawled out and up the bank spluttering like a porpoise .
A central bank can intervene in exchange markets in two ways .
It 's the money I had in the bank .
A shell burst short near the river bank .
The play was written for the stage .
Children play in the yard .
"""


def write_bank(folder: Path) -> Path:
    """A file with a few sentences, whose vectors are computed at once."""
    path = folder / "bank.txt"
    path.write_text(BANK, encoding="utf-8")
    return path


@dataclass
class Opened:
    """A page, its console messages and the requests that it made."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def wait(self, condition: str) -> None:
        """Returns when a JavaScript expression is true."""
        self.page.wait_for_function(f"() => {condition}", timeout=PATIENCE_MS)

    def api_requests(self) -> list[str]:
        """The requests for other things than the files of the page."""
        return [url for url in self.requests if "/static/" not in url]

    def settle(self) -> None:
        """Returns when the maps, the substitutes and the neighbours of the chosen word are shown."""
        self.wait("document.querySelectorAll('.panel svg .frame').length > 0 && !document.querySelector('[aria-busy]')")
        self.wait("!/^Searching/.test(document.querySelector('#neighbours-note').textContent)")
        self.wait("!/^Guessing/.test(document.querySelector('#substitutes-note').textContent)")

    def groups(self) -> dict[str, str]:
        """Number of the sentence -> group of the chosen word's use in it, as the page colours it."""
        return self.page.evaluate(
            """() => Object.fromEntries([...document.querySelectorAll('#sentences .use')].map(
                one => [Number(one.dataset.place.split('.')[0]) + 1, one.className.match(/g(\\d)/)[1]]))"""
        )

    def type_sentences(self, text: str) -> None:
        """Types sentences into the editor and shows them."""
        if not self.page.locator("#text").is_visible():
            self.page.locator("#editor summary").click()
        self.page.locator("#text").fill(text)
        self.page.locator("#show").click()
        first = text.strip().splitlines()[0].split()[0]
        self.page.locator(f"#sentences .word >> text={first}").first.wait_for(timeout=PATIENCE_MS)
        self.settle()


@contextlib.contextmanager
def opened_page(
    browser: Any, url: str, *, width: int = 1280, scheme: str = "light", **options: Any
) -> Iterator[Opened]:
    """The page at an address, in a window of its own."""
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, accept_downloads=True, **options
    )
    context.set_default_timeout(PATIENCE_MS)
    opened = Opened(context.new_page())
    opened.page.on("console", lambda message: opened.messages.append(message.text))
    opened.page.on("pageerror", lambda error: opened.messages.append(str(error)))
    opened.page.on("dialog", lambda dialog: (opened.messages.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    opened.page.on("request", lambda request: opened.requests.append(request.url))
    opened.page.goto(url)
    try:
        yield opened
    finally:
        context.close()
