"""Notices when the training loss leaves its level, and knows which checkpoint to return to.

A rate that is too high can throw a model off: the loss jumps and takes thousands of steps to come back, if it does. The
loop then goes back to a checkpoint from before the jump and continues with half the learning rate. Everything here is a
function of the losses, so a run that is killed and continued decides the same; `state` is a part of each checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

FAST, SLOW = 20, 200  # steps that the two running averages of the loss span
PATIENCE = 20  # steps in a row above the limit that make a spike; a single bad batch is none
NOISE = 1.5  # standard deviations of a step's loss that the limit is above the level at least: nine of the fast average
OUTLIER = 4  # standard deviations at which a loss counts as noise at most
SETTLED = 2 * FAST + PATIENCE  # steps after which a checkpoint has shown that no spike had begun in it
SLOWDOWN = 0.5  # of the learning rate, for each return


@dataclass
class SpikeGuard:
    """Running averages of the loss, the checkpoints to return to, and the slowdown so far.

    The level is the lowest slow average so far, so a falling loss (warm-up included) cannot trigger; before SLOW steps
    there is no level. `recent` and `settled` are the steps of two checkpoints that must stay on disk, 0 for none yet:
    `settled` is older and proven, `recent` is returned to if the spike began well after it.
    """

    threshold: float | None  # nats above the level; None: off
    fast: float = 0.0
    slow: float = 0.0
    variance: float = 0.0  # of single losses around the slow average
    level: float = math.inf
    num_losses: int = 0
    num_above: int = 0  # steps in a row above the limit
    recent: int = 0
    settled: int = 0
    lr_factor: float = 1.0
    num_rollbacks: int = 0

    @property
    def limit(self) -> float:
        """The fast average that is too high."""
        return self.level + max(self.threshold or 0.0, NOISE * math.sqrt(self.variance))

    def is_spike(self, loss: float) -> bool:
        """Takes in the loss of a step; whether it completes a spike."""
        if self.threshold is None:
            return False
        self.num_losses += 1
        self.fast += (loss - self.fast) / min(self.num_losses, FAST)
        square = (loss - self.slow) ** 2
        if self.num_losses > SLOW:  # losses of a spike must not pass for noise
            square = min(square, OUTLIER**2 * self.variance)
        self.variance += (square - self.variance) / min(self.num_losses, SLOW)
        self.slow += (loss - self.slow) / min(self.num_losses, SLOW)
        if self.num_losses < SLOW:
            return False
        self.level = min(self.level, self.slow)
        self.num_above = self.num_above + 1 if self.fast > self.limit else 0
        return self.num_above >= PATIENCE

    def checkpointed(self, step: int) -> None:
        """Remembers a checkpoint that is about to be written, unless the loss is already rising."""
        is_calm = self.num_losses >= SLOW and self.fast <= (self.level + self.limit) / 2
        if not is_calm or step <= max(self.recent, self.settled):
            return
        if not self.recent:
            self.recent = step
        elif step - self.recent >= SETTLED:
            self.settled, self.recent = self.recent, step

    def return_step(self, step: int) -> int:
        """The checkpoint from before the spike that step `step` completed; 0: the beginning of the run."""
        begin = step - self.num_above - 2 * FAST  # the fast average is late
        return self.recent if 0 < self.recent <= begin else self.settled

    def return_to(self, step: int, state: dict[str, Any]) -> None:
        """Takes over the averages of a checkpoint's saved `state`, and halves the rate from now on."""
        averages = ("fast", "slow", "variance", "level", "num_losses")
        self.restore({"num_above": 0, **{name: state[name] for name in averages}})
        self.settled, self.recent = self.settled if step else 0, self.recent if step == self.recent else 0
        self.lr_factor *= SLOWDOWN
        self.num_rollbacks += 1

    def state(self) -> dict[str, Any]:
        """Plain numbers for a checkpoint."""
        return {name: value for name, value in asdict(self).items() if name != "threshold"}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from a saved state; the threshold is this run's own."""
        for field in fields(self):
            if field.name in state and field.name != "threshold":
                setattr(self, field.name, state[field.name])
