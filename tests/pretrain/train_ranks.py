"""Runs training in several processes that talk through gloo, as torchrun would start them, and does them harm.

    python train_ranks.py FOLDER TEST ...       TEST: a name of TESTS, for example equal, muon or spike

A process of its own with one thread, so that it may fork: a child costs milliseconds where a fresh `import torch` costs
seconds. It says which tests passed.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_run
import torch
import torch._dynamo  # what the first optimizer would import, seconds in every child
from kill_train import SHORT_WINDOWS, throw_off
from safetensors.torch import load_file

from elmo.errors import ConfigError
from elmo.pretrain import job
from elmo.pretrain.train import distributed, spike_guard
from elmo.pretrain.train import step as step_module
from elmo.pretrain.train.checkpoint import newest_sound
from elmo.pretrain.train.step import Trainer

EXACT = {"objective": {"dropout": 0.0}, "train": {"rows": 16, "max_steps": 50, "reset": 0.3}}
Ranks = list[int]  # process ids


def main() -> None:
    torch.set_num_threads(1)
    for test in sys.argv[2:]:
        folder = Path(sys.argv[1], test)
        folder.mkdir()
        text = tiny_run.write_text(folder / "text.txt")
        if exit_codes([fork(lambda test=test, text=text, folder=folder: TESTS[test](text, folder), test)]) == [0]:
            print("passed", test, flush=True)


def two_are_one(text: Path, folder: Path, *more: dict[str, Any]) -> None:
    """Two processes with 8 rows each take the steps of one with 16."""
    one = start(1, lambda: tiny_run.run(text, folder / "one", EXACT, *more))
    assert exit_codes(one) == [0]
    two = start(2, lambda: tiny_run.run(text, folder / "two", EXACT, *more))
    assert exit_codes(two) == [0, 0]
    a, b = (tiny_run.records(folder / name) for name in ("one", "two"))
    assert len(a) == len(b) >= 50
    for kind in ("forward", "backward"):
        x, y = (np.array([r[kind] for r in records if kind in r]) for records in (a, b))
        assert np.abs(x - y).max() < 1e-5, np.abs(x - y).max()
    one_weights, two_weights = (load_file(folder / name / "model" / "model.safetensors") for name in ("one", "two"))
    assert max(float((one_weights[k] - two_weights[k]).abs().max()) for k in one_weights) < 1e-4


def two_are_one_muon(text: Path, folder: Path) -> None:
    """The same with Muon: each process makes the whole update."""
    two_are_one(text, folder, {"optim": {"name": "muon", "lr": 2e-3}})


def all_return_after_a_spike(text: Path, folder: Path) -> None:
    """Both processes go back to the same checkpoint and end as a single one does."""
    for name, steps in SHORT_WINDOWS.items():
        setattr(spike_guard, name, steps)
    update = Trainer.update

    def wild(trainer: Trainer, inputs: Any, number: int) -> Any:
        if 66 <= number < 76 and trainer.lr_factor == 1.0:
            throw_off(trainer)
        return update(trainer, inputs, number)

    Trainer.update = wild
    two_are_one(text, folder, tiny_run.train_settings(max_steps=80))
    for name in ("one", "two"):
        assert [r["step"] for r in tiny_run.records(folder / name) if "rollback" in r] == [40]


def two_are_one_sparse(text: Path, folder: Path) -> None:
    """The same where the softmax has gradients of a few rows: other rows on each process."""
    step_module.MIN_SPARSE_VOCAB = 1
    two_are_one(text, folder, {"recipe": "paper"}, {"train": {"accumulate": 2, "rows": 16}})


def lost_process_ends_all(text: Path, folder: Path) -> None:
    out = folder / "run"
    ranks = start(2, lambda: slowly(lambda: tiny_run.run(text, out, EXACT, ENDLESS)))
    wait_for(out / "checkpoints")
    os.kill(ranks[1], signal.SIGKILL)
    begun = time.monotonic()
    assert exit_codes(ranks) == [1, -signal.SIGKILL]
    assert time.monotonic() - begun < 30
    check_and_continue(text, out)


def stalled_process_ends_the_others(text: Path, folder: Path) -> None:
    out = folder / "run"
    ranks = start(2, lambda: slowly(lambda: tiny_run.run(text, out, EXACT, ENDLESS)))
    wait_for(out / "checkpoints")
    os.kill(ranks[1], signal.SIGSTOP)
    begun = time.monotonic()
    assert exit_codes(ranks[:1]) == [1]
    assert time.monotonic() - begun < 32
    os.kill(ranks[1], signal.SIGKILL)
    exit_codes(ranks[1:])
    check_and_continue(text, out)


def nan_on_one_is_skipped_by_all(text: Path, folder: Path) -> None:
    out = folder / "run"

    def work() -> None:
        losses = Trainer.losses

        def sometimes_nan(self: Trainer, *args: Any) -> Any:
            found, state = losses(self, *args)
            bad = distributed.rank() == 1 and self.number in (7, 8)
            return [loss * float("nan") if bad else loss for loss in found], state

        update = Trainer.update

        def numbered(self: Trainer, batch: Any, number: int) -> Any:
            self.number = number + 1
            return update(self, batch, number)

        Trainer.losses, Trainer.update = sometimes_nan, numbered
        result = tiny_run.run(text, out, EXACT)
        assert result.train.step == 50

    assert exit_codes(start(2, work)) == [0, 0]
    skipped = [r["step"] for r in tiny_run.records(out) if r.get("skipped")]
    assert skipped == [7, 8]
    assert all(bool(t.isfinite().all()) for t in load_file(out / "model" / "model.safetensors").values())
    assert sorted(path.name for path in (out / "bad_steps").iterdir()) == ["step-00000007.npz", "step-00000008.npz"]


def fewer_processes_continue(text: Path, folder: Path) -> None:
    out, shorter = folder / "run", tiny_run.train_settings(max_steps=20)
    assert exit_codes(start(2, lambda: tiny_run.run(text, out, EXACT, {"optim": CONSTANT}, shorter))) == [0, 0]
    assert exit_codes(start(1, lambda: tiny_run.run(text, out, EXACT, {"optim": CONSTANT}))) == [0]
    assert exit_codes(start(1, lambda: tiny_run.run(text, folder / "one", EXACT, {"optim": CONSTANT}))) == [0]
    a, b = ([r["forward"] for r in tiny_run.records(f) if "forward" in r] for f in (out, folder / "one"))
    assert np.abs(np.array(a) - np.array(b)).max() < 1e-5


def long_work_of_the_first_is_waited_for(text: Path, folder: Path) -> None:
    """Preparing text and writing take longer than the others may be silent in a step."""
    distributed.STEP_TIMEOUT = timedelta(seconds=2)
    prepare = job.prepare

    def slow_prepare(*args: Any, **options: Any) -> Any:
        if distributed.rank() == 0:
            time.sleep(4)
        return prepare(*args, **options)

    job.prepare = slow_prepare
    assert exit_codes(start(2, lambda: tiny_run.run(text, folder / "run", EXACT))) == [0, 0]


def rows_that_cannot_be_shared_are_refused(text: Path, folder: Path) -> None:
    def work() -> None:
        with pytest.raises(ConfigError, match="4 rows cannot be shared by 3 processes"):
            tiny_run.run(text, folder / "run", tiny_run.train_settings(rows=4, accumulate=2))

    assert exit_codes(start(3, work)) == [0, 0, 0]


CONSTANT = {"warmup": 0.0, "decay": "none"}
ENDLESS = tiny_run.train_settings(max_steps=100_000, checkpoint_every=5)
TESTS: dict[str, Callable[[Path, Path], None]] = {
    "equal": two_are_one,
    "muon": two_are_one_muon,
    "spike": all_return_after_a_spike,
    "sparse": two_are_one_sparse,
    "lost": lost_process_ends_all,
    "stalled": stalled_process_ends_the_others,
    "nan": nan_on_one_is_skipped_by_all,
    "fewer": fewer_processes_continue,
    "patient": long_work_of_the_first_is_waited_for,
    "shares": rows_that_cannot_be_shared_are_refused,
}


def check_and_continue(text: Path, out: Path) -> None:
    """The last checkpoint is whole and one process goes on from it."""
    found = newest_sound(out / "checkpoints", strict=True)
    assert found is not None
    longer = tiny_run.train_settings(max_steps=found[2]["step"] + 3)
    assert exit_codes(start(1, lambda: tiny_run.run(text, out, EXACT, longer))) == [0]


def slowly(work: Callable[[], object]) -> None:
    update = Trainer.update

    def paused(*args: Any) -> Any:
        time.sleep(0.02)
        return update(*args)

    Trainer.update = paused
    work()


def start(count: int, work: Callable[[], object]) -> Ranks:
    """So many processes, each with the environment torchrun gives."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(count):
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_RANK": str(rank)}
        environment = where | {"RANK": str(rank), "WORLD_SIZE": str(count)}
        ranks.append(fork(work, f"process {rank}", environment))
    return ranks


def fork(work: Callable[[], object], name: str, environment: dict[str, str] | None = None) -> int:
    pid = os.fork()
    if pid == 0:
        os.environ |= environment or {}
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return pid


def exit_codes(ranks: Ranks) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.05)
    time.sleep(0.5)


if __name__ == "__main__":
    main()
