"""The runs of a learning curve (paper section 5.4): training on shares of the data, with and without ELMo.

A small share has few updates per epoch. So that it is not undertrained, its number of epochs is raised until a run
makes at least LEAST_UPDATES updates. Such a run is validated about as often as a run on the whole file, not after each
of its very short epochs. It does not stop early and does not lower its learning rate, because a dev score of zero after
so few updates does not mean that training failed. Runs on a whole file of usual size are not changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from elmo.errors import ConfigError
from elmo.tasks.config import RunConfig
from elmo.tasks.sweep import Cell

SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of the training file
LEAST_UPDATES = 300


def read_shares(text: str) -> tuple[float, ...]:
    """Parses percentages separated by commas into distinct shares in ascending order."""
    try:
        shares = sorted({round(float(percent.strip().removesuffix("%")) / 100, 12) for percent in text.split(",")})
    except ValueError as error:
        raise ConfigError(f"--shares is {text!r}.", "Expected percentages with commas: 0.1,1,10,100") from error
    if not all(0 < share <= 1 for share in shares):
        raise ConfigError(f"--shares is {text!r}.", "Expected percentages above 0, up to 100.")
    return tuple(shares)


def learning_curve_cells(
    base: RunConfig, num_examples: int, shares: Sequence[float] = SHARES, *, least_updates: int = LEAST_UPDATES
) -> list[Cell]:
    """Two cells per share, without and with ELMo, in ascending order of shares.

    `num_examples` is the size of the whole training file. Shares without any example are skipped, and so are shares
    with the same number of examples as a smaller one.
    """
    cells = []
    counts: set[int] = set()
    for share in sorted(shares):
        count = num_examples if share == 1 else round(share * num_examples)
        if count < 1 or count in counts:
            continue
        counts.add(count)
        train_settings = longer_training(base, count, least_updates)
        for side, elmo in (("without", {"mode": "none"}), ("with", {})):
            settings = {"data": {"fraction": share}, "elmo": elmo, **train_settings}
            cells.append(Cell(name=f"share-{100 * share:g}/{side}", settings=settings))
    return cells


def longer_training(base: RunConfig, count: int, least_updates: int = LEAST_UPDATES) -> dict[str, dict[str, int]]:
    """Settings with which `count` examples get at least so many updates; empty if the base settings suffice."""
    epochs = math.ceil(least_updates / math.ceil(count / base.train.batch_size))
    if epochs <= base.train.epochs:
        return {}
    validate_after = max(1, least_updates // base.train.epochs)
    return {
        "train": {"epochs": epochs, "patience": epochs, "validate_after": validate_after},
        "optim": {"halve_after": 0},
    }
