"""The sentences of the shipped bank, in which the server looks for neighbours; bank/README.md names their sources."""

from __future__ import annotations

from pathlib import Path

from elmo.xz import open_xz

BANK = Path(__file__).parent / "bank" / "sentences.txt.xz"


def read_bank(path: Path = BANK) -> list[tuple[str, ...]]:
    """The tokens of each sentence; a file has one sentence per line, with tokens separated by spaces."""
    with open_xz(path) as file:
        return [tuple(line.split()) for line in file.read().decode("utf-8").splitlines() if line.strip()]
