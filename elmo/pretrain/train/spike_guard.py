"""Detection of loss spikes: when the training loss rises and stays high, and which checkpoint to roll back to.

A learning rate that is too high can make training diverge: the loss jumps and takes thousands of steps to recover, if
it recovers at all. The loop then rolls back to a checkpoint from before the jump and continues with half the learning
rate. Every decision depends on nothing but the losses, so a run that is killed and resumed decides the same; the state
of the guard is part of each checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

FAST_WINDOW, SLOW_WINDOW = 20, 200  # steps of the two running averages of the loss
PATIENCE = 20  # consecutive steps above the limit that make a spike, so that a single bad batch makes none
MIN_RISE = 1.5  # least distance of limit and level, in standard deviations of a step's loss: nine of the fast average
MAX_DEVIATION = 4  # larger deviations of a loss, in standard deviations, enter the variance as this one
SETTLING_STEPS = 2 * FAST_WINDOW + PATIENCE  # a spike that began before a checkpoint shows within this many steps
LR_DECAY = 0.5  # factor of the learning rate per rollback


@dataclass
class SpikeGuard:
    """Running averages of the loss, the checkpoints for a rollback, and the learning rate factor so far.

    The level is the lowest slow average so far, so a falling loss (also during warm-up) never makes a spike. There is
    no level during the first SLOW_WINDOW steps. `recent` and `settled` are the steps of two checkpoints that must not
    be deleted, 0 for none: `settled` is older and certainly from before a spike, `recent` is used if the spike began
    well after it.
    """

    threshold: float | None  # nats above the level; None: no detection
    fast: float = 0.0  # the fast average
    slow: float = 0.0  # the slow average
    variance: float = 0.0  # of single losses around the slow average
    level: float = math.inf
    num_losses: int = 0
    num_above: int = 0  # consecutive steps above the limit
    recent: int = 0
    settled: int = 0
    lr_factor: float = 1.0
    num_rollbacks: int = 0

    @property
    def limit(self) -> float:
        """The value above which the fast average is too high."""
        return self.level + max(self.threshold or 0.0, MIN_RISE * math.sqrt(self.variance))

    def observe(self, loss: float) -> bool:
        """Updates the averages with the loss of a step; true if this step completes a spike."""
        if self.threshold is None:
            return False
        self.num_losses += 1
        self.fast += (loss - self.fast) / min(self.num_losses, FAST_WINDOW)
        square = (loss - self.slow) ** 2
        if self.num_losses > SLOW_WINDOW:  # the losses of a spike must not count as ordinary noise
            square = min(square, MAX_DEVIATION**2 * self.variance)
        self.variance += (square - self.variance) / min(self.num_losses, SLOW_WINDOW)
        self.slow += (loss - self.slow) / min(self.num_losses, SLOW_WINDOW)
        if self.num_losses < SLOW_WINDOW:
            return False
        self.level = min(self.level, self.slow)
        self.num_above = self.num_above + 1 if self.fast > self.limit else 0
        return self.num_above >= PATIENCE

    def record_checkpoint(self, step: int) -> None:
        """Records the step of a checkpoint that is about to be written, unless the loss is already rising."""
        is_calm = self.num_losses >= SLOW_WINDOW and self.fast <= (self.level + self.limit) / 2
        if not is_calm or step <= max(self.recent, self.settled):
            return
        if not self.recent:
            self.recent = step
        elif step - self.recent >= SETTLING_STEPS:
            self.settled, self.recent = self.recent, step

    def rollback_step(self, step: int) -> int:
        """The step of the checkpoint from before the spike that step `step` completed; 0: the start of the run."""
        spike_start = step - self.num_above - 2 * FAST_WINDOW  # the fast average reacts with a delay
        return self.recent if 0 < self.recent <= spike_start else self.settled

    def roll_back_to(self, step: int, state: dict[str, Any]) -> None:
        """Takes over the averages from the `state` saved in the checkpoint of `step`, and halves the learning rate."""
        averages = ("fast", "slow", "variance", "level", "num_losses")
        self.restore({"num_above": 0, **{name: state[name] for name in averages}})
        self.settled, self.recent = self.settled if step else 0, self.recent if step == self.recent else 0
        self.lr_factor *= LR_DECAY
        self.num_rollbacks += 1

    def state(self) -> dict[str, Any]:
        """All fields except the threshold as plain numbers, for a checkpoint."""
        return {name: value for name, value in asdict(self).items() if name != "threshold"}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from a saved state; the threshold is not part of it."""
        for field in fields(self):
            if field.name in state and field.name != "threshold":
                setattr(self, field.name, state[field.name])
