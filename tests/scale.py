"""How many mutants, kills or calls a slow test makes: its full count times the environment's ELMO_SCALE."""

from __future__ import annotations

import os

VARIABLE = "ELMO_SCALE"  # set by `python3 run.py slow --scale`


def scale() -> float:
    return float(os.environ.get(VARIABLE) or 1)


def scaled(count: int, at_least: int = 1) -> int:
    """The full count of a slow test, times the scale."""
    return max(at_least, round(count * scale()))
