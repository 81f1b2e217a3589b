"""Missing values in a column of texts: an error, rows that are left out, or zero vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from elmo.errors import ConfigError
from elmo.text.inputs import is_missing

MissingTexts: TypeAlias = Literal["error", "skip", "zeros"]


def present_texts(texts: Sequence[Any], missing: MissingTexts) -> tuple[list[Any], list[int]]:
    """The texts to embed and their positions. With "zeros", a missing text is empty: its vector is zero.

    With "error", missing texts stay in the list: the embedder refuses them and names their positions.
    """
    if missing not in ("error", "skip", "zeros"):
        raise ConfigError(f"missing={missing!r} is unknown.", "Use 'error', 'skip' or 'zeros'.")
    rows = [row for row, text in enumerate(texts) if missing != "skip" or not is_missing(text)]
    return ["" if missing == "zeros" and is_missing(texts[row]) else texts[row] for row in rows], rows
