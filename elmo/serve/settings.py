"""The settings of the server, with the limits that protect it."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from dataclasses import dataclass, fields
from pathlib import Path

from elmo.errors import ConfigError

MAX_HEADER_BYTES = 16 * 1024  # of the request line and the headers together
HOST_NAME = r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]"  # the name in a Host header


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """All settings of the server except the choice of its model. Times are in seconds."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: any free port
    workers: int = 1
    threads: int = 0  # per worker; 0: the cores divided by the workers
    batch_tokens: int = 4096  # most tokens per batch
    batch_texts: int = 256  # most texts per batch
    queue_requests: int = 256  # most requests that wait for a worker
    queue_tokens: int = 65_536  # most tokens of all unfinished requests, which bounds the memory of their vectors
    max_body: int = 2_000_000  # bytes
    max_texts: int = 1024  # per request
    max_tokens: int = 8192  # per request
    max_top: int = 100  # substitutes or neighbours per list
    timeout: float = 60.0  # of a request, if its header X-Request-Timeout does not set a shorter one
    read_timeout: float = 10.0  # of a request's headers, and of its body
    write_timeout: float = 30.0  # of a client that does not read its answer
    keep_alive: float = 15.0  # of an idle connection
    grace: float = 30.0  # for running requests after SIGTERM
    batch_timeout: float = 120.0  # a worker that takes longer for a batch is killed
    stall_timeout: float = 20.0  # a worker without heartbeat for this long is killed
    start_timeout: float = 300.0  # for loading the model
    api_keys: tuple[str, ...] = ()  # any of them opens the API; none: no key is needed
    allowed_hosts: tuple[str, ...] = ()  # of the Host header, in lower case: see middleware.host_is_allowed
    bank: Path | None = None  # sentences of /similar; None: the shipped ones
    log_requests: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            if not math.isfinite(value) or value < 0 or value == 0 and field.name not in ("port", "threads"):
                raise ConfigError(f"{field.name} is {value}; expected a number above 0.")
        if self.port > 65535:
            raise ConfigError(f"port is {self.port}; expected 0 to 65535.")
        for name in self.allowed_hosts:
            if not re.fullmatch(HOST_NAME, name):
                raise ConfigError(
                    f"allowed_hosts has {name!r}; expected a name or an address without scheme, port and wildcard.",
                    "Write for example elmo.example.org, or an IPv6 address as [2001:db8::1].",
                )
        if self.queue_tokens < self.max_tokens:
            raise ConfigError(
                f"queue_tokens is {self.queue_tokens} and max_tokens is {self.max_tokens}: the largest request would "
                "never be accepted.",
                "Lower --max-tokens, or raise --queue-tokens.",
            )

    def threads_per_worker(self) -> int:
        """The threads of each worker: as set, or this process's cores divided by the workers."""
        return self.threads or max(1, usable_cores() // self.workers)


def usable_cores() -> int:
    """The cores that this process may use: its CPU affinity, and in a container the CPU quota of its cgroup."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, cgroup_cores(Path("/sys/fs/cgroup"))))


def cgroup_cores(folder: Path) -> int:
    """The whole cores of a cgroup's CPU quota (version 2 or 1), rounded up; a large number if there is none."""
    unlimited = 1 << 20
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu" / "cpu.cfs_period_us").read_text()
        return unlimited if quota == "max" or int(quota) <= 0 else math.ceil(int(quota) / int(period))
    except (OSError, ValueError):
        return unlimited


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
