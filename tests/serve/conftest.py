"""One server of the tiny model for all tests of a module that do not change it; skips where FastAPI is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi", reason="the server's tests need FastAPI: pip install fastapi uvicorn")
pytest.importorskip("uvicorn", reason="the server's tests need uvicorn: pip install fastapi uvicorn")

if TYPE_CHECKING:
    from live_server import LiveServer

BANK = "The bank of the river .\nA bank lends money .\n\nThe cat sat on the mat .\nThe dog sat .\n"


@pytest.fixture(scope="module")
def tiny_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    from live_server import live_server
    from served_models import load_tiny

    bank: Path = tmp_path_factory.mktemp("bank") / "bank.txt"
    bank.write_text(BANK)
    with live_server(load_tiny, bank=bank) as server:
        yield server
