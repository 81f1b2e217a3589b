"""Trains in several processes that communicate through gloo, as torchrun starts them, and injects faults.

    python train_ranks.py FOLDER TEST ...       TEST: a name of TESTS, for example equal, muon or spike

This is a separate process with one thread, so that it can fork: a forked child starts in milliseconds, a new `import
torch` takes seconds. It prints which tests passed.
"""

from __future__ import annotations

import itertools
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
import torch._dynamo  # the first optimizer imports it, which would take seconds in every child
import torch.distributed as dist
from kill_train import SHORT_WINDOWS, randomize_softmax
from safetensors.torch import load_file

from elmo.errors import ConfigError
from elmo.pretrain import finetune, finetune_start, job
from elmo.pretrain.train import distributed, gradient_exchange, spike_guard
from elmo.pretrain.train import step as step_module
from elmo.pretrain.train.checkpoint import newest_sound
from elmo.pretrain.train.step import Trainer
from elmo.weights.store import read_store

EXACT = {"objective": {"dropout": 0.0}, "train": {"rows": 16, "max_steps": 30, "reset": 0.3}}
STEP_TIMEOUT = distributed.STEP_TIMEOUT
Ranks = list[int]  # process ids


def main() -> None:
    torch.set_num_threads(1)
    distributed.STEP_TIMEOUT = timedelta(hours=1)  # the machine may be busy
    for test in sys.argv[2:]:
        folder = Path(sys.argv[1], test)
        folder.mkdir()
        text = tiny_run.write_text(folder / "text.txt")
        if exit_codes([fork(lambda test=test, text=text, folder=folder: TESTS[test](text, folder), test)]) == [0]:
            print("passed", test, flush=True)


def two_equal_one(text: Path, folder: Path, *more: dict[str, Any]) -> None:
    """Two processes with 8 rows each make the same steps as one process with 16 rows."""
    one = start(1, lambda: tiny_run.run(text, folder / "one", EXACT, *more))
    assert exit_codes(one) == [0]
    two = start(2, lambda: tiny_run.run(text, folder / "two", EXACT, *more))
    assert exit_codes(two) == [0, 0]
    a, b = (tiny_run.records(folder / name) for name in ("one", "two"))
    assert len(a) == len(b) >= 30
    for kind in ("forward", "backward"):
        x, y = (np.array([r[kind] for r in records if kind in r]) for records in (a, b))
        assert np.abs(x - y).max() < 1e-5, np.abs(x - y).max()
    one_weights, two_weights = (load_file(folder / name / "model" / "model.safetensors") for name in ("one", "two"))
    assert max(float((one_weights[k] - two_weights[k]).abs().max()) for k in one_weights) < 1e-4


def two_equal_one_with_muon(text: Path, folder: Path) -> None:
    """The same with Muon, where each process makes the full update."""
    two_equal_one(text, folder, {"optim": {"name": "muon", "lr": 2e-3}})


def all_roll_back_after_a_spike(text: Path, folder: Path) -> None:
    """Both processes roll back to the same checkpoint, and the run ends like that of a single process."""
    for name, steps in SHORT_WINDOWS.items():
        setattr(spike_guard, name, steps)
    update = Trainer.update

    def spiking_update(trainer: Trainer, inputs: Any, step: int) -> Any:
        if 66 <= step < 76 and trainer.lr_factor == 1.0:
            randomize_softmax(trainer)
        return update(trainer, inputs, step)

    Trainer.update = spiking_update
    two_equal_one(text, folder, tiny_run.train_settings(max_steps=80))
    for name in ("one", "two"):
        assert [r["step"] for r in tiny_run.records(folder / name) if "rollback" in r] == [40]


def two_equal_one_with_sparse_gradients(text: Path, folder: Path) -> None:
    """The same with sparse gradients of the softmax, which have different rows in each process."""
    step_module.MIN_SPARSE_VOCAB = 1
    two_equal_one(text, folder, {"recipe": "paper"}, {"train": {"accumulate": 2, "rows": 16}})


def lost_process_ends_all(text: Path, folder: Path) -> None:
    out = folder / "run"
    ranks = start(2, lambda: tiny_run.run(text, out, EXACT, ENDLESS))
    wait_for_checkpoint(out)
    os.kill(ranks[1], signal.SIGKILL)
    assert exit_codes(ranks) == [1, -signal.SIGKILL]  # because the connection is lost; the timeout is an hour
    check_and_resume(text, out)


def stalled_process_ends_the_others(text: Path, folder: Path) -> None:
    distributed.STEP_TIMEOUT = STEP_TIMEOUT
    out = folder / "run"
    ranks = start(2, lambda: tiny_run.run(text, out, EXACT, ENDLESS))
    wait_for_checkpoint(out)
    os.kill(ranks[1], signal.SIGSTOP)
    assert exit_codes(ranks[:1]) == [1]
    os.kill(ranks[1], signal.SIGKILL)
    exit_codes(ranks[1:])
    check_and_resume(text, out)


def nan_on_one_is_skipped_by_all(text: Path, folder: Path) -> None:
    out = folder / "run"

    def work() -> None:
        losses = Trainer.losses

        def sometimes_nan(self: Trainer, *args: Any) -> Any:
            good_losses, state = losses(self, *args)
            is_bad = distributed.rank() == 1 and self.completed_step in (7, 8)  # type: ignore[attr-defined]
            return [loss * float("nan") if is_bad else loss for loss in good_losses], state

        update = Trainer.update

        def numbered_update(self: Trainer, inputs: Any, step: int) -> Any:
            self.completed_step = step + 1  # type: ignore[attr-defined]
            return update(self, inputs, step)

        Trainer.losses, Trainer.update = sometimes_nan, numbered_update
        result = tiny_run.run(text, out, EXACT)
        assert result.train.step == 30

    assert exit_codes(start(2, work)) == [0, 0]
    skipped = [r["step"] for r in tiny_run.records(out) if r.get("skipped")]
    assert skipped == [7, 8]
    assert all(bool(t.isfinite().all()) for t in load_file(out / "model" / "model.safetensors").values())
    assert sorted(path.name for path in (out / "bad_steps").iterdir()) == ["step-00000007.npz", "step-00000008.npz"]


def fewer_processes_resume(text: Path, folder: Path) -> None:
    out, shorter = folder / "run", tiny_run.train_settings(max_steps=20)
    assert exit_codes(start(2, lambda: tiny_run.run(text, out, EXACT, {"optim": CONSTANT}, shorter))) == [0, 0]
    assert exit_codes(start(1, lambda: tiny_run.run(text, out, EXACT, {"optim": CONSTANT}))) == [0]
    assert exit_codes(start(1, lambda: tiny_run.run(text, folder / "one", EXACT, {"optim": CONSTANT}))) == [0]
    a, b = ([r["forward"] for r in tiny_run.records(f) if "forward" in r] for f in (out, folder / "one"))
    assert np.abs(np.array(a) - np.array(b)).max() < 1e-5


def restarted_processes_do_not_read_old_addresses(text: Path, folder: Path) -> None:
    """torchrun keeps one store over its restarts; the second start has other addresses, and rank 0 comes later."""
    port = free_port()
    keeper = fork(lambda: (dist.TCPStore("127.0.0.1", port, is_master=True), signal.pause()), "store")
    variables = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    try:
        for start_number in range(2):

            def work(start_number: int = start_number) -> None:
                if start_number == 1 and os.environ["RANK"] == "0":
                    time.sleep(1)  # the longer, the surer rank 1 reads an old address first; every time is right
                tiny_run.run(text, folder / f"run-{start_number}", EXACT, tiny_run.train_settings(max_steps=2))

            ranks = start(2, work, port, variables)
            code = exit_codes(ranks[1:])
            if code != [0]:  # rank 0 would wait for it
                os.kill(ranks[0], signal.SIGKILL)
            assert exit_codes(ranks[:1]) + code == [0, 0]
    finally:
        os.kill(keeper, signal.SIGKILL)
        exit_codes([keeper])


def others_wait_for_slow_rank_0(text: Path, folder: Path) -> None:
    """While rank 0 prepares text, the other process waits with the timeout of barriers, not with that of steps."""
    groups: list[Any] = []
    timeouts: list[timedelta] = []
    init, all_reduce, open_prepared = dist.init_process_group, dist.all_reduce, job.open_prepared

    def recording_init(*args: Any, timeout: timedelta, **options: Any) -> None:
        timeouts.append(timeout)
        init(*args, timeout=timeout, **options)

    def recording_all_reduce(tensor: torch.Tensor, *args: Any, group: Any = None, **options: Any) -> Any:
        groups.append(group)
        return all_reduce(tensor, *args, group=group, **options)

    def checking_open_prepared(*args: Any, **options: Any) -> Any:
        assert groups == [None]  # the default group, which `init_process_group` makes
        return open_prepared(*args, **options)

    dist.init_process_group, dist.all_reduce = recording_init, recording_all_reduce
    job.open_prepared = checking_open_prepared

    def work() -> None:
        tiny_run.run(text, folder / "run", EXACT)
        assert timeouts == [distributed.BARRIER_TIMEOUT]
        assert len(groups) > 30
        assert any(group is not None for group in groups)  # those of the steps

    assert timedelta(hours=1) < distributed.BARRIER_TIMEOUT
    assert exit_codes(start(2, work)) == [0, 0]


def clock_of_rank_0_decides(text: Path, folder: Path) -> None:
    """Each process has its own clock; both validate and save at the same steps, which only the clock of rank 0 sets."""
    minutes = tiny_run.train_settings(validate_minutes=0.2, checkpoint_minutes=0.3, keep=99, max_steps=30)

    def work() -> None:
        seconds = itertools.count(step=1.0 if os.environ["RANK"] == "0" else 0.001)
        time.monotonic = lambda: next(seconds)
        tiny_run.run(text, folder / "run", EXACT, minutes)

    assert exit_codes(start(2, work)) == [0, 0]
    saved = [int(path.name.removeprefix("step-")) for path in (folder / "run" / "checkpoints").iterdir()]
    assert set(saved) - {10, 20, 30}
    assert any(record.get("by_time") for record in tiny_run.records(folder / "run"))


def gradients_are_sent_during_the_backward_pass(text: Path, folder: Path) -> None:
    """All buckets but the last ones are on their way before the backward pass ends, in the same order everywhere."""
    gradient_exchange.BUCKET_BYTES = 256

    def work() -> None:
        events: list[str] = []
        all_reduce, gradients = dist.all_reduce, Trainer.gradients

        def recording_all_reduce(tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
            if options.get("async_op"):
                events.append(f"send {tensor.numel()}")
            return all_reduce(tensor, *args, **options)

        def recording_gradients(self: Trainer, *args: Any) -> Any:
            result = gradients(self, *args)
            events.append("end")
            return result

        dist.all_reduce, Trainer.gradients = recording_all_reduce, recording_gradients
        tiny_run.run(text, folder / "run", EXACT, tiny_run.train_settings(max_steps=3))
        first_step = events[: events.index("end")]
        assert len(first_step) >= 5, events[:20]
        (folder / f"events-{os.environ['RANK']}").write_text("\n".join(events))

    assert exit_codes(start(2, work)) == [0, 0]
    assert (folder / "events-0").read_text() == (folder / "events-1").read_text()


def rows_that_cannot_be_shared_are_refused(text: Path, folder: Path) -> None:
    def work() -> None:
        with pytest.raises(ConfigError, match="4 rows cannot be shared by 3 processes"):
            tiny_run.run(text, folder / "run", tiny_run.train_settings(rows=4, accumulate=2))

    assert exit_codes(start(3, work)) == [0, 0, 0]


def only_the_first_starts_fine_tuning(text: Path, folder: Path) -> None:
    """Rank 0 alone counts the words, writes the start of the run and says lines; two processes train like one."""
    assert exit_codes(start(1, lambda: tiny_run.run(text, folder / "old", EXACT))) == [0]
    counting, writing = finetune_start.adapt_vocabulary, finetune.atomic_file

    def work(out: Path) -> None:
        lines: list[str] = []

        def on_first_only(function: Callable[..., Any]) -> Callable[..., Any]:
            def checked(*args: Any, **options: Any) -> Any:
                assert os.environ["RANK"] == "0"
                return function(*args, **options)

            return checked

        finetune_start.adapt_vocabulary, finetune.atomic_file = on_first_only(counting), on_first_only(writing)
        config, parts = tiny_run.settings(text, EXACT), read_store(folder / "old" / "model")
        result, _ = finetune.finetune(parts, config, out, also=(str(text),), num_workers=1, say=lines.append)
        is_first = os.environ["RANK"] == "0"
        assert (result.model is not None, bool(lines)) == (is_first, is_first)

    for count in (1, 2):
        assert exit_codes(start(count, lambda count=count: work(folder / str(count)))) == [0] * count
    one, two = (load_file(folder / str(count) / "model" / "model.safetensors") for count in (1, 2))
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < 1e-4


CONSTANT = {"warmup": 0.0, "decay": "none"}
ENDLESS = tiny_run.train_settings(max_steps=1_000_000, checkpoint_every=5)
TESTS: dict[str, Callable[[Path, Path], None]] = {
    "equal": two_equal_one,
    "muon": two_equal_one_with_muon,
    "spike": all_roll_back_after_a_spike,
    "sparse": two_equal_one_with_sparse_gradients,
    "lost": lost_process_ends_all,
    "stalled": stalled_process_ends_the_others,
    "nan": nan_on_one_is_skipped_by_all,
    "fewer": fewer_processes_resume,
    "restart": restarted_processes_do_not_read_old_addresses,
    "patient": others_wait_for_slow_rank_0,
    "clocks": clock_of_rank_0_decides,
    "overlap": gradients_are_sent_during_the_backward_pass,
    "shares": rows_that_cannot_be_shared_are_refused,
    "finetune": only_the_first_starts_fine_tuning,
}


def check_and_resume(text: Path, out: Path) -> None:
    """Checks that the last checkpoint is undamaged and that one process resumes from it."""
    newest = newest_sound(out / "checkpoints", strict=True)
    assert newest is not None
    longer = tiny_run.train_settings(max_steps=newest[2]["step"] + 3)
    assert exit_codes(start(1, lambda: tiny_run.run(text, out, EXACT, longer))) == [0]


def start(count: int, work: Callable[[], object], port: int = 0, variables: dict[str, str] | None = None) -> Ranks:
    """Starts `count` processes with the environment variables that torchrun sets; returns their process ids."""
    port = port or free_port()
    ranks = []
    for rank in range(count):
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_RANK": str(rank)}
        environment = address | {"RANK": str(rank), "WORLD_SIZE": str(count)} | (variables or {})
        ranks.append(fork(work, f"process {rank}", environment))
    return ranks


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def fork(work: Callable[[], object], name: str, environment: dict[str, str] | None = None) -> int:
    """Calls `work` in a forked process; returns its process id."""
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


def wait_for_checkpoint(out: Path) -> None:
    while not list((out / "checkpoints").glob("step-*/manifest.json")):
        time.sleep(0.05)


if __name__ == "__main__":
    main()
