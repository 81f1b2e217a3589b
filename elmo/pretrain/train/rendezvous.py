"""A store of its own for every start of the processes, also where `torchrun` keeps one store over its restarts.

The agents of torchrun give restarted processes the store of the first start, which still has the addresses of processes
that died: a process that reads one of them cannot connect, and all restarts are used up. Rank 0 therefore draws a new
name at every start. It answers the others under a number that each of them has just drawn, so that no process takes the
name of an earlier start, and waits until every one of them has the name.
"""

from __future__ import annotations

import time
import uuid
from datetime import timedelta

from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

POLL_SECONDS = 0.02  # between polls in Python, which signals can interrupt


def join_store(timeout: timedelta) -> tuple[Store, int, int]:
    """The store of this start, the rank and the number of processes, from the variables that torchrun sets."""
    store, rank, world_size = next(iter(rendezvous("env://", timeout=timeout)))
    store.set_timeout(timeout)
    return PrefixStore(agree_on_name(store, rank, world_size, timeout), store), rank, world_size


def agree_on_name(store: Store, rank: int, world_size: int, timeout: timedelta) -> str:
    """A name that is new at every start and the same in all processes."""
    deadline = time.monotonic() + timeout.total_seconds()
    drawn = uuid.uuid4().hex
    if rank > 0:
        store.set(f"elmo/question/{rank}", drawn)
        while not store.check([f"elmo/answer/{drawn}"]):
            _pause(deadline, "process 0")
        name: str = store.get(f"elmo/answer/{drawn}").decode()
        store.set(f"elmo/received/{name}/{rank}", "")
        return name
    waiting = set(range(1, world_size))
    while waiting:
        for other in sorted(waiting):
            if store.check([f"elmo/received/{drawn}/{other}"]):
                waiting.remove(other)
            elif store.check([f"elmo/question/{other}"]):  # perhaps of an earlier start: then nobody reads the answer
                store.set(f"elmo/answer/{store.get(f'elmo/question/{other}').decode()}", drawn)
        if waiting:
            _pause(deadline, f"process {min(waiting)}")
    return drawn


def _pause(deadline: float, awaited: str) -> None:
    if time.monotonic() > deadline:
        raise RuntimeError(f"timed out while waiting for {awaited}")
    time.sleep(POLL_SECONDS)
