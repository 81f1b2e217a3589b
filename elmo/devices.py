"""The device to compute on: the best one of this machine, or the one that is named, if it is available."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import torch

from elmo.errors import ConfigError

log = logging.getLogger(__name__)


def available_devices() -> list[str]:
    """The devices of this machine, best first: cuda:0, cuda:1, ..., mps, cpu."""
    devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return [*devices, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]


def choose_device(device: str | torch.device) -> str:
    """The name of a device that can be used; `auto` takes CUDA, then MPS, then the CPU, and logs which.

    `device` is auto, cpu, cuda (the current CUDA device), cuda:N or mps.
    """
    device, available = str(device), available_devices()
    kinds = list(dict.fromkeys(name.partition(":")[0] for name in available))  # cuda, mps, cpu
    if device == "auto":
        log.info("device auto: %s", kinds[0])
        return kinds[0]
    if device not in (*kinds, *available):
        raise ConfigError(f"device is {device!r}; this machine has {', '.join(available)}.", "Try auto.")
    try:
        torch.empty(0, device=device)
    except RuntimeError as error:  # a device that is there and cannot be used: a wrong driver, exclusive use by others
        raise ConfigError(f"device {device!r} cannot be used ({str(error).splitlines()[0]}).", "Try cpu.") from error
    return device


def free_memory(device: str) -> float:
    """The bytes of memory that a program can still use on a device; infinity where the system does not say it."""
    if device.startswith("cuda"):
        return float(torch.cuda.mem_get_info(device)[0])
    limits = [_container_memory()]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux
        lines = []
    limits += [1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return min(limits)


def _container_memory() -> float:
    """The bytes that the limit of a container leaves (cgroup version 2); infinity without a limit."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = ((folder / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return math.inf
    return math.inf if limit == "max" else float(int(limit) - int(used))
