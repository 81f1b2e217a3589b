"""`torchrun` on two machines, here two network namespaces: a lost one costs the steps since the last checkpoint.

The agents of torchrun restart all processes, and these continue from the last checkpoint in the shared run folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tiny_run import ENVIRONMENT, command, digest, records, write_text

NUM_STEPS = 150
SETTINGS = ["--rows", "16", "--max-steps", str(NUM_STEPS), "--set", "train.checkpoint_every=10"]
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Machine:
    """Where an agent of torchrun runs: its network namespace, its address and its network interface."""

    namespace: str
    address: str
    interface: str

    def kill_all(self) -> None:
        """Kills all processes of this machine. torchrun starts each worker in a session of its own."""
        pids = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=True)
        for pid in map(int, pids.stdout.split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def lose(self) -> None:
        """Cuts the cable first, so that the other machine hears nothing, not even the end of a connection."""
        ip("-n", self.namespace, "link", "set", self.interface, "down")
        self.kill_all()


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    """Two network namespaces that are connected by a virtual cable."""
    names = [f"elmo-{side}-{os.getpid()}" for side in "ab"]
    if subprocess.run(["ip", "netns", "add", names[0]], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces need root")
    try:
        ip("netns", "add", names[1])
        ip("link", "add", "v0", "netns", names[0], "type", "veth", "peer", "name", "v1", "netns", names[1])
        machines = []
        for number, name in enumerate(names):
            address = f"10.77.0.{number + 1}"
            ip("-n", name, "addr", "add", f"{address}/24", "dev", f"v{number}")
            for interface in ("lo", f"v{number}"):
                ip("-n", name, "link", "set", interface, "up")
            machines.append(Machine(name, address, f"v{number}"))
        yield machines
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def start(machine: Machine, first: Machine, text: Path, out: Path, *, least: int = 2) -> subprocess.Popen[bytes]:
    """An agent of torchrun with one process; the agents meet at the address of the first machine."""
    launch = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", f"{least}:2", "--nproc-per-node", "1",
        "--max-restarts", "5", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{first.address}:29477",
        "--rdzv-id", "elmo", "--rdzv-conf", f"is_host={int(machine == first)},join_timeout=900,last_call_timeout=5",
        "--local-addr", machine.address,
    ]  # fmt: skip
    words = ["ip", "netns", "exec", machine.namespace, *launch, *command(text, out, *SETTINGS)[1:]]
    environment = ENVIRONMENT | {"GLOO_SOCKET_IFNAME": machine.interface}
    with open(out.with_name(f"log-{machine.address}"), "wb") as log:
        return subprocess.Popen(words, env=environment, stdout=log, stderr=log)


def worker_of(agent: subprocess.Popen[bytes]) -> psutil.Process | None:
    """The training process of an agent."""
    for process in psutil.Process(agent.pid).children(recursive=True):
        if "pretrain" in process.cmdline() and "torch.distributed.run" not in process.cmdline():
            return process
    return None


def wait_for_step(out: Path, step: int, agent: subprocess.Popen[bytes]) -> None:
    while last_step(out) < step:
        assert agent.poll() is None, logs(out)
        time.sleep(0.02)


def last_step(out: Path) -> int:
    """The step of the newest checkpoint, or 0."""
    names = [path.name for path in (out / "checkpoints").glob("step-*")]
    return max((int(name.removeprefix("step-")) for name in names if name[5:].isdigit()), default=0)


def logs(out: Path) -> str:
    return "\n".join(path.read_text(errors="replace")[-4000:] for path in sorted(out.parent.glob("log-*")))


def stop(machines: list[Machine], agents: list[subprocess.Popen[bytes]]) -> None:
    for machine, agent in zip(machines, agents, strict=True):
        machine.kill_all()
        agent.wait()


def test_a_killed_process_on_another_machine_costs_only_steps_since_the_checkpoint(machines, tmp_path):
    text = write_text(tmp_path / "text.txt")
    for name, is_killed in (("undisturbed", False), ("killed", True)):
        out = tmp_path / name
        agents = [start(machine, machines[0], text, out) for machine in machines]
        try:
            if is_killed:
                wait_for_step(out, 30, agents[0])
                worker = worker_of(agents[1])
                assert worker is not None
                worker.kill()
                assert last_step(out) < NUM_STEPS  # in the middle
            assert [agent.wait() for agent in agents] == [0, 0], logs(out)
        finally:
            stop(machines, agents)
    steps = [r["step"] for r in records(tmp_path / "killed") if "forward" in r]
    assert steps == list(range(1, NUM_STEPS + 1))  # no step is missing and none is there twice
    assert digest(tmp_path / "killed") == digest(tmp_path / "undisturbed")


def test_the_other_machine_goes_on_alone_when_one_is_lost(machines, tmp_path):
    text, out = write_text(tmp_path / "text.txt"), tmp_path / "run"
    agents = [start(machine, machines[0], text, out, least=1) for machine in machines]
    try:
        wait_for_step(out, 20, agents[0])
        machines[1].lose()
        lost_at = last_step(out)
        assert lost_at < NUM_STEPS
        assert agents[0].wait() == 0, logs(out)
        assert f"continuing from step {lost_at}" in logs(out)  # one process, with all rows
    finally:
        stop(machines, agents)
    assert [r["step"] for r in records(out) if "forward" in r] == list(range(1, NUM_STEPS + 1))
