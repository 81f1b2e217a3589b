"""Kills, stops and signals training runs at chosen or random moments, and says what became of them.

    python kill_train.py TEST FOLDER COUNT       TEST: steps, moments, saves, signals, sleep, spike

A process of its own with one thread, so that it may fork: a child costs milliseconds where a fresh `import torch` costs
seconds. It ends with 0 if all went as it must.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny_run
import torch
import torch._dynamo  # what the first optimizer would import, seconds in every child

from elmo.cli.main import main as elmo
from elmo.pretrain.train import spike_guard
from elmo.pretrain.train.checkpoint import (
    list_checkpoints,
    newest_sound,
    prune_checkpoints,
    save_checkpoint,
    sweep_leftovers,
)
from elmo.pretrain.train.step import StepMetrics, Trainer
from elmo.pretrain.train.step_inputs import StepInputs

SHORT_WINDOWS = {
    "FAST_WINDOW": 4,
    "SLOW_WINDOW": 40,
    "PATIENCE": 4,
    "SETTLING_STEPS": 12,
}  # of `spike_guard`, a tenth or so


def main() -> None:
    torch.set_num_threads(1)
    test, folder, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    TESTS[test](folder, count, random.Random(count))
    print("passed", test)


def kill_at_steps(folder: Path, count: int, chance: random.Random) -> None:
    """One run, killed `count` times: just before or after the update of a random step, each time continued."""
    text, expected = uninterrupted(folder, 40)
    out = folder / "killed"
    for _ in range(count):
        assert in_child(lambda: die_after(chance.randint(1, 16), chance.random() < 0.5, text, out)) == -signal.SIGKILL
    assert in_child(lambda: tiny_run.run(text, out)) == 0
    assert tiny_run.digest(out) == expected


def kill_at_moments(folder: Path, count: int, chance: random.Random) -> None:
    """`count` runs of 200 steps, each killed at a random time, preparing the text included, and then continued."""
    steps = tiny_run.train_settings(max_steps=200)
    begun = time.monotonic()
    text, expected = uninterrupted(folder, 200)
    seconds, killed = time.monotonic() - begun, 0
    for number in range(count):
        out = folder / f"killed-{number}"
        killed += in_child(lambda out=out: tiny_run.run(text, out, steps), after=chance.uniform(0, seconds)) != 0
        assert in_child(lambda out=out: tiny_run.run(text, out, steps)) == 0, out
        assert tiny_run.digest(out) == expected, out
        trained = [r["step"] for r in tiny_run.records(out) if "forward" in r]
        assert trained == list(range(1, 201))
        shutil.rmtree(out)
    assert killed > count // 2


def kill_saves(folder: Path, count: int, chance: random.Random) -> None:
    """A loop of checkpoints, killed `count` times: what was acknowledged is there, what is half-written goes."""
    kept = 0
    for number in range(count):
        out = folder / f"saves-{number}"
        read, write = os.pipe()
        status = in_child(lambda out=out, write=write: save_without_end(out, write), after=chance.uniform(0.02, 0.3))
        assert status == -signal.SIGKILL
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            acknowledged = len(pipe.read())
        found = newest_sound(out) if list_checkpoints(out) else None
        newest = found[2]["step"] if found else 0
        assert newest >= acknowledged, (number, newest, acknowledged)
        if found:
            assert torch.equal(found[1]["w"], torch.full((50_000,), float(newest)))
            kept += 1
        sweep_leftovers(out)
        assert not out.exists() or all(path.name.startswith("step-") for path in out.iterdir())
        shutil.rmtree(out, ignore_errors=True)
    assert kept > count // 2


def send_signals(folder: Path, count: int, chance: random.Random) -> None:
    """Ctrl-C and SIGTERM: the step in hand is saved, the exit code says which, the same command continues."""
    text, expected = uninterrupted(folder, 40)
    for number in (signal.SIGINT, signal.SIGTERM)[:count]:
        out = folder / number.name
        words = tiny_run.command(text, out)[3:]
        status = in_child(lambda words=words: slow_steps(lambda: elmo(words)), ready=out / "metrics.jsonl", send=number)
        assert status == 128 + number, status
        newest = newest_sound(out / "checkpoints")
        assert newest is not None
        assert 0 < newest[2]["step"] < 40
        assert in_child(lambda words=words: elmo(words)) == 0
        assert tiny_run.digest(out) == expected


def sleep_and_wake(folder: Path, count: int, chance: random.Random) -> None:
    """Stopped for longer than --stop-after, as a closed laptop is: on waking, the run saves, ends and continues."""
    text, _ = uninterrupted(folder, 40)
    out = folder / "slept"
    words = tiny_run.command(text, out, "--stop-after", "1s", "--max-steps", "100000")[3:]
    status = in_child(lambda: elmo(words), ready=out / "metrics.jsonl", send=signal.SIGSTOP, wake=1.5)
    assert status == 0
    found = newest_sound(out / "checkpoints")
    assert found is not None
    assert 0 < found[2]["step"] < 100_000
    assert (out / "model").is_dir()


def kill_in_spikes(folder: Path, count: int, chance: random.Random) -> None:
    """A run that returns to a checkpoint at about its 70th step, killed around that and `count` times later."""
    text, out = tiny_run.write_text(folder / "text.txt"), folder / "killed"
    longer = tiny_run.train_settings(max_steps=90, validate_every=20)
    for name, steps in SHORT_WINDOWS.items():
        setattr(spike_guard, name, steps)
    update = Trainer.update

    def wild(trainer: Trainer, inputs: list[StepInputs], number: int) -> StepMetrics:
        if 66 <= number < 76 and trainer.lr_factor == 1.0:
            throw_off(trainer)
        return update(trainer, inputs, number)

    Trainer.update = wild  # type: ignore[method-assign]  # in a process of its own
    assert in_child(lambda: tiny_run.run(text, folder / "whole", longer)) == 0
    assert [r["step"] for r in tiny_run.records(folder / "whole") if "rollback" in r] == [40]
    for first in (68, 71, 73, 84):
        shutil.rmtree(out, ignore_errors=True)
        for steps in (first, *(chance.randint(1, 16) for _ in range(count))):
            in_child(lambda steps=steps: die_after(steps, chance.random() < 0.5, text, out, longer))
        assert in_child(lambda: tiny_run.run(text, out, longer)) == 0
        assert tiny_run.digest(out) == tiny_run.digest(folder / "whole")


TESTS = {
    "spike": kill_in_spikes,
    "steps": kill_at_steps,
    "moments": kill_at_moments,
    "saves": kill_saves,
    "signals": send_signals,
    "sleep": sleep_and_wake,
}


def uninterrupted(folder: Path, steps: int) -> tuple[Path, str]:
    text, out = tiny_run.write_text(folder / "text.txt"), folder / "whole"
    assert in_child(lambda: tiny_run.run(text, out, tiny_run.train_settings(max_steps=steps))) == 0
    return text, tiny_run.digest(out)


def throw_off(trainer: Trainer) -> None:
    """Weights of the softmax as a wild update leaves them."""
    weight = trainer.model.head.weight  # type: ignore[union-attr]  # a plain softmax
    with torch.no_grad():
        weight.copy_(25.0 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))


def die_after(steps: int, before: bool, text: Path, out: Path, *layers: dict[str, Any]) -> None:
    update, seen = Trainer.update, 0

    def counted(*args: object) -> object:
        nonlocal seen
        seen += 1
        if seen == steps and before:
            os.kill(os.getpid(), signal.SIGKILL)
        found = update(*args)  # type: ignore[arg-type]  # the arguments as they came
        if seen == steps:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    Trainer.update = counted  # type: ignore[method-assign,assignment]  # in a child of its own
    tiny_run.run(text, out, *layers)


def slow_steps(work: Callable[[], object]) -> None:
    """The work with a pause after each step, so that a signal finds it in the middle."""
    update = Trainer.update

    def paused(*args: object) -> object:
        time.sleep(0.05)
        return update(*args)  # type: ignore[arg-type]  # the arguments as they came

    Trainer.update = paused  # type: ignore[method-assign,assignment]  # in a child of its own
    work()


def save_without_end(out: Path, pipe: int) -> None:
    for step in range(1, 1_000_000):
        weights, training = {"w": torch.full((50_000,), float(step))}, {"step": step}
        save_checkpoint(out, step, weights, training, {"identity": {}})
        os.write(pipe, b".")
        prune_checkpoints(out, 2, step)


def in_child(
    work: Callable[[], object],
    after: float | None = None,
    *,
    ready: Path | None = None,
    send: signal.Signals = signal.SIGKILL,
    wake: float | None = None,
) -> int:
    """The exit code of the work in a forked process, which gets a signal after a time, or once a file is there."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            work()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            os._exit(code)
    if ready is not None:
        while not ready.exists() and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            time.sleep(0.02)
        after = 0.3
    if after is not None:
        time.sleep(after)
        os.kill(pid, send)
    if wake is not None:
        time.sleep(wake)
        os.kill(pid, signal.SIGCONT)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main()
