"""Sample efficiency (the paper's section 5.4): the same model on shares of its training file, with and without ELMo.

Few examples make an epoch of few updates. So that a small share is not merely trained too briefly, its epochs are
raised until a run makes LEAST_UPDATES updates. It is validated about as often as the whole file, not at the end of each
of its tiny epochs, and neither stops early nor lowers its rate: after so few updates no score on dev is no sign. On a
whole file of usual size nothing changes.
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
    """Percents with commas between them, as shares in rising order, each once."""
    try:
        shares = sorted({round(float(part.strip().removesuffix("%")) / 100, 12) for part in text.split(",")})
    except ValueError as error:
        raise ConfigError(f"--shares is {text!r}.", "Expected percents with commas: 0.1,1,10,100") from error
    if not all(0 < share <= 1 for share in shares):
        raise ConfigError(f"--shares is {text!r}.", "Expected percents above 0, up to 100.")
    return tuple(shares)


def curve_cells(
    base: RunConfig, num_examples: int, shares: Sequence[float] = SHARES, *, least_updates: int = LEAST_UPDATES
) -> list[Cell]:
    """Two cells a share, without and with ELMo, smallest share first; shares that leave no example are left out.

    `num_examples`: of the whole training file.
    """
    cells = []
    counts: set[int] = set()
    for share in sorted(shares):
        count = num_examples if share == 1 else round(share * num_examples)
        if count < 1 or count in counts:
            continue
        counts.add(count)
        longer = durations(base, count, least_updates)
        for side, elmo in (("without", {"mode": "none"}), ("with", {})):
            settings = {"data": {"fraction": share}, "elmo": elmo, **longer}
            cells.append(Cell(name=f"share-{100 * share:g}/{side}", settings=settings))
    return cells


def durations(base: RunConfig, count: int, least_updates: int = LEAST_UPDATES) -> dict[str, dict[str, int]]:
    """Settings that give so many examples their updates; none where the base's do."""
    epochs = math.ceil(least_updates / math.ceil(count / base.train.batch_size))
    if epochs <= base.train.epochs:
        return {}
    often = max(1, least_updates // base.train.epochs)
    return {"train": {"epochs": epochs, "patience": epochs, "validate_after": often}, "optim": {"halve_after": 0}}
