"""`elmo explore`: the server and its explorer page in a browser, in one go."""

from __future__ import annotations

import json
import threading
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from elmo.cli.options import Device, ModelName, Tokenizer, print_status
from elmo.cli.serve import require_server

if TYPE_CHECKING:
    from elmo.serve.server import Started

EXAMPLE = "elmo explore"


def run(
    model: ModelName = "default",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes any free port.")] = 0,
    device: Device = "auto",
    tokenizer: Tokenizer = None,
    open_browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Whether to open the page in the default browser.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON when the page is ready.")] = False,
) -> None:
    """Show in a browser how a model tells the meanings of a word apart; Ctrl-C stops the server."""
    require_server()
    from elmo.serve.model_source import ModelSource
    from elmo.serve.server import serve
    from elmo.serve.settings import ServeSettings

    def announce(started: Started) -> None:
        if as_json:
            print(json.dumps({"url": started.url, "model": started.info.name}), flush=True)
        else:
            print_status(f"elmo: the explorer of {started.info.name} is at {started.url} (Ctrl-C stops it)")
        if open_browser:  # in a thread of its own, because a browser in the terminal returns only when it is closed
            threading.Thread(target=_open, args=(started.url,), daemon=True).start()

    source = ModelSource(model=model, device=device, tokenizer=tokenizer)
    raise typer.Exit(serve(ServeSettings(port=port), source, on_start=announce))


def _open(url: str) -> None:
    if not webbrowser.open(url):
        print_status(f"elmo: no browser could be opened; open {url} yourself")
