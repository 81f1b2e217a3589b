"""The parallel map: order, errors, and that workers end when their parent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from elmo.errors import ConfigError, DataError
from elmo.pretrain.data.parallel import map_in_order

ROOT = Path(__file__).resolve().parent.parent.parent


def power(exponent: int, number: int) -> int:
    if number == 7:
        raise DataError("seven", "Take another.")
    return number**exponent


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order_and_errors_come_through(workers):
    jobs = (n for n in range(30) if n != 7)
    assert list(map_in_order(partial(power, 2), jobs, workers)) == [n**2 for n in range(30) if n != 7]
    with pytest.raises(DataError, match="seven") as caught:
        list(map_in_order(partial(power, 2), range(30), workers))
    assert caught.value.hint == "Take another."


def test_zero_workers_is_an_error():
    with pytest.raises(ConfigError, match="workers is 0"):
        list(map_in_order(abs, [1], 0))


WORK = """
import os, time

def work(number):
    if number < 2:
        return os.getpid()
    time.sleep(100_000)
"""
SCRIPT = """
from worker_code import work
from elmo.pretrain.data.parallel import map_in_order

for number in map_in_order(work, range(100), 2):
    print(number, flush=True)
"""


def test_a_script_without_a_main_guard_runs_once(tmp_path):
    (tmp_path / "worker_code.py").write_text("def double(number):\n    return 2 * number\n", encoding="utf-8")
    script = SCRIPT.replace("work\n", "double as work\nprint('started')\n", 1).replace("100", "3")
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    command = [sys.executable, tmp_path / "script.py"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["started", "0", "2", "4"], "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals and process checks differ on Windows")
def test_workers_end_when_their_parent_is_killed(tmp_path):
    (tmp_path / "worker_code.py").write_text(WORK, encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, tmp_path / "script.py"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = {int(parent.stdout.readline()) for _ in range(2)}
        assert parent.pid not in workers
        try:
            parent.send_signal(signal.SIGKILL)
            assert parent.stdout.read() == ""  # the pipe ends when every worker, which has inherited it, has ended
        finally:
            for worker in workers:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
