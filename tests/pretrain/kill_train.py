"""Kills, suspends and signals training runs at chosen or random times, and checks that they resume exactly.

    python kill_train.py TEST FOLDER COUNT       TEST: steps, moments, saves, signals, sleep, spike

This is a separate process with one thread, so that it can fork: a forked child starts in milliseconds, a new `import
torch` takes seconds. The exit code is 0 if the test passed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tiny_run
import torch
import torch._dynamo  # the first optimizer imports it, which would take seconds in every child
from forked import in_child, num_killed

from elmo.cli.main import main as elmo
from elmo.pretrain.train import spike_guard
from elmo.pretrain.train.checkpoint import (
    list_checkpoints,
    newest_sound,
    prune_checkpoints,
    remove_unfinished,
    save_checkpoint,
)
from elmo.pretrain.train.step import StepMetrics, Trainer
from elmo.pretrain.train.step_inputs import StepInputs
from elmo.stop_signals import StopSignals

SHORT_WINDOWS = {
    "FAST_WINDOW": 4,
    "SLOW_WINDOW": 40,
    "PATIENCE": 4,
    "SETTLING_STEPS": 12,
}  # for `spike_guard`, about a tenth of the real windows


def main() -> None:
    torch.set_num_threads(1)
    test, folder, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    TESTS[test](folder, count, random.Random(count))
    print("passed", test, "with", num_killed(), "kills")


def kill_at_steps(folder: Path, count: int, rng: random.Random) -> None:
    """One run is killed `count` times, just before or after the update of a random step, and resumed each time."""
    text, expected = run_uninterrupted(folder, 40)
    out = folder / "killed"
    for _ in range(count):
        assert in_child(lambda: die_after(rng.randint(1, 16), rng.random() < 0.5, text, out)) == -signal.SIGKILL
    assert in_child(lambda: tiny_run.run(text, out)) == 0
    assert tiny_run.digest(out) == expected


def kill_at_moments(folder: Path, count: int, rng: random.Random) -> None:
    """`count` runs of 200 steps are killed at a random time, maybe while text is prepared, and then resumed."""
    steps = tiny_run.train_settings(max_steps=200)
    start = time.monotonic()
    text, expected = run_uninterrupted(folder, 200)
    seconds, num_killed = time.monotonic() - start, 0
    for number in range(count):
        out = folder / f"killed-{number}"
        pause = rng.uniform(0, seconds)
        num_killed += in_child(lambda out=out: tiny_run.run(text, out, steps), until=partial(time.sleep, pause)) != 0
        assert in_child(lambda out=out: tiny_run.run(text, out, steps)) == 0, out
        assert tiny_run.digest(out) == expected, out
        steps_trained = [r["step"] for r in tiny_run.records(out) if "forward" in r]
        assert steps_trained == list(range(1, 201))
        shutil.rmtree(out)
    assert num_killed > count // 2


def kill_saves(folder: Path, count: int, rng: random.Random) -> None:
    """A loop of saves is killed `count` times: no finished checkpoint is lost, and half-written ones are removed."""
    for number in range(count):
        out = folder / f"saves-{number}"
        read, write = os.pipe()
        num_saves, pause = rng.randint(0, 6), rng.uniform(0, 0.03)  # a random moment after so many saves

        def wait(read: int = read, num_saves: int = num_saves, pause: float = pause) -> None:
            for _ in range(num_saves):
                os.read(read, 1)
            time.sleep(pause)

        status = in_child(lambda out=out, write=write: save_forever(out, write), until=wait)
        assert status == -signal.SIGKILL
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            acknowledged = num_saves + len(pipe.read())
        newest = newest_sound(out) if list_checkpoints(out) else None
        step = newest[2]["step"] if newest else 0
        assert step >= acknowledged, (number, step, acknowledged)
        if newest:
            assert torch.equal(newest[1]["w"], torch.full((50_000,), float(step)))
        remove_unfinished(out)
        assert not out.exists() or all(path.name.startswith("step-") for path in out.iterdir())
        shutil.rmtree(out, ignore_errors=True)


def send_signals(folder: Path, count: int, rng: random.Random) -> None:
    """After SIGINT or SIGTERM the current step is saved, the exit code names the signal, and the run resumes."""
    text, expected = run_uninterrupted(folder, 40)
    for number in (signal.SIGINT, signal.SIGTERM)[:count]:
        out = folder / number.name
        arguments = tiny_run.command(text, out)[3:]
        step = rng.randint(2, 39)
        status = in_child(partial(signal_after, step, number, partial(elmo, arguments)))
        assert status == 128 + number, status
        newest = newest_sound(out / "checkpoints")
        assert newest is not None
        assert newest[2]["step"] == step
        assert in_child(lambda arguments=arguments: elmo(arguments)) == 0
        assert tiny_run.digest(out) == expected


def suspend_and_continue(folder: Path, count: int, rng: random.Random) -> None:
    """A run is suspended for longer than --stop-after, as on a closed laptop: it then saves, exports and ends."""
    text, _ = run_uninterrupted(folder, 40)
    out = folder / "suspended"
    arguments = tiny_run.command(text, out, "--stop-after", "1s", "--max-steps", "100000")[3:]
    status = in_child(
        lambda: elmo(arguments), until=lambda: wait_for(out / "metrics.jsonl"), send=signal.SIGSTOP, wake=1.5
    )
    assert status == 0
    newest = newest_sound(out / "checkpoints")
    assert newest is not None
    assert 0 < newest[2]["step"] < 100_000
    assert (out / "model").is_dir()


def kill_in_spikes(folder: Path, count: int, rng: random.Random) -> None:
    """A run that rolls back at about its 70th step is killed around that step and `count` times afterwards."""
    text, out = tiny_run.write_text(folder / "text.txt"), folder / "killed"
    longer = tiny_run.train_settings(max_steps=90, validate_every=20)
    for name, steps in SHORT_WINDOWS.items():
        setattr(spike_guard, name, steps)
    update = Trainer.update

    def spiking_update(trainer: Trainer, inputs: list[StepInputs], step: int) -> StepMetrics:
        if 66 <= step < 76 and trainer.lr_factor == 1.0:
            randomize_softmax(trainer)
        return update(trainer, inputs, step)

    Trainer.update = spiking_update  # type: ignore[method-assign]  # in a separate process
    assert in_child(lambda: tiny_run.run(text, folder / "uninterrupted", longer)) == 0
    assert [r["step"] for r in tiny_run.records(folder / "uninterrupted") if "rollback" in r] == [40]
    for first in (68, 71, 73, 84):
        shutil.rmtree(out, ignore_errors=True)
        for steps in (first, *(rng.randint(1, 16) for _ in range(count))):
            in_child(lambda steps=steps: die_after(steps, rng.random() < 0.5, text, out, longer))
        assert in_child(lambda: tiny_run.run(text, out, longer)) == 0
        assert tiny_run.digest(out) == tiny_run.digest(folder / "uninterrupted")


TESTS = {
    "spike": kill_in_spikes,
    "steps": kill_at_steps,
    "moments": kill_at_moments,
    "saves": kill_saves,
    "signals": send_signals,
    "sleep": suspend_and_continue,
}


def run_uninterrupted(folder: Path, steps: int) -> tuple[Path, str]:
    """The text of a run that is not killed, and the digest of the run."""
    text, out = tiny_run.write_text(folder / "text.txt"), folder / "uninterrupted"
    assert in_child(lambda: tiny_run.run(text, out, tiny_run.train_settings(max_steps=steps))) == 0
    return text, tiny_run.digest(out)


def randomize_softmax(trainer: Trainer) -> None:
    """Replaces the softmax weights by large random numbers, as after a diverged update."""
    weight = trainer.model.head.weight  # type: ignore[union-attr]  # a plain softmax
    with torch.no_grad():
        weight.copy_(25.0 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))


def die_after(steps: int, before: bool, text: Path, out: Path, *layers: dict[str, Any]) -> None:
    """Runs and kills the own process at update number `steps`: before the update, or after it."""
    update, num_updates = Trainer.update, 0

    def counting_update(*args: object) -> object:
        nonlocal num_updates
        num_updates += 1
        if num_updates == steps and before:
            os.kill(os.getpid(), signal.SIGKILL)
        metrics = update(*args)  # type: ignore[arg-type]  # passed through
        if num_updates == steps:
            os.kill(os.getpid(), signal.SIGKILL)
        return metrics

    Trainer.update = counting_update  # type: ignore[method-assign]  # in a separate child
    tiny_run.run(text, out, *layers)


def signal_after(steps: int, number: signal.Signals, work: Callable[[], object]) -> None:
    """Calls `work` and sends the own process a signal in the middle of update number `steps` of the training loop.

    Updates before the loop, which measure the speed of training, do not count: the loop alone handles signals.
    """
    update = Trainer.update

    def counting_update(trainer: Trainer, inputs: list[StepInputs], step: int) -> StepMetrics:
        in_loop = isinstance(getattr(signal.getsignal(number), "__self__", None), StopSignals)
        if in_loop and step == steps - 1:
            os.kill(os.getpid(), number)
        return update(trainer, inputs, step)

    Trainer.update = counting_update  # type: ignore[method-assign]  # in a separate child
    work()


def save_forever(out: Path, pipe: int) -> None:
    for step in range(1, 1_000_000):
        weights, training = {"w": torch.full((50_000,), float(step))}, {"step": step}
        save_checkpoint(out, step, weights, training, {"identity": {}, "settings": {}})
        os.write(pipe, b".")
        prune_checkpoints(out, 2, step)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


if __name__ == "__main__":
    main()
