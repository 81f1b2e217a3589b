"""`elmo export`: writes what other tools read; `export_words` has the command for static word vectors."""

from __future__ import annotations

from elmo.cli.export_words import EXAMPLE, export_words

COMMANDS = {"words": (export_words, EXAMPLE)}


def run() -> None:
    """Export from a model for other tools: static word vectors."""
