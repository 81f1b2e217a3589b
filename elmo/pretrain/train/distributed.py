"""Several processes as one: who we are, gradients averaged, everyone told to stop together.

Plain collectives instead of a wrapper module: after each backward pass the gradients are averaged in one flat exchange,
so every process makes the same update from the same weights, and a bad number anywhere is seen everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.model.lstm import State

TIMEOUT = timedelta(seconds=25)  # a lost or stalled process ends the job within half a minute
PATIENCE = timedelta(hours=6)  # while processes start, or one prepares text or writes for all; a lost one still ends it
# steps talk in a group of their own, impatient; the default group is for waiting
_steps: dist.ProcessGroup | None = None


def rank() -> int:
    return dist.get_rank() if _running() else 0


def world_size() -> int:
    return dist.get_world_size() if _running() else 1


@contextmanager
def joined(device: str) -> Iterator[str]:
    """Joins the other processes if `torchrun` started us; gives the device of this one."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield device
        return
    cuda = device.startswith("cuda")
    if cuda:
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    global _steps
    dist.init_process_group("gloo", timeout=PATIENCE)
    _steps = dist.new_group(backend="nccl" if cuda else "gloo", timeout=TIMEOUT)
    try:
        yield device
    except RuntimeError as error:
        if any(sign in str(error).lower() for sign in ("gloo", "nccl", "timed out", "connection")):
            raise ElmoError(
                f"Process {rank()} of {world_size()} lost touch with the others ({str(error).splitlines()[0][:200]}).",
                "One of them was killed, failed or stalled. The same command continues from the last checkpoint.",
            ) from error
        raise
    finally:
        dist.destroy_process_group()


def average_gradients(parameters: list[nn.Parameter]) -> None:
    """Replaces each gradient by its mean over all processes."""
    if not _running() or world_size() == 1:
        return
    dense = [p for p in parameters if p.grad is not None and not p.grad.is_sparse]
    flat = torch.cat([p.grad.flatten() for p in dense if p.grad is not None])
    dist.all_reduce(flat, group=_steps)
    flat /= world_size()
    for p, part in zip(dense, flat.split([p.numel() for p in dense]), strict=True):
        assert p.grad is not None
        p.grad.copy_(part.view_as(p))
    for p in parameters:
        if p.grad is not None and p.grad.is_sparse:
            p.grad = _average_sparse(p.grad)


def average_value(value: Tensor) -> Tensor:
    """The mean of a tensor over all processes."""
    if _running():
        value = value.clone()
        dist.all_reduce(value, group=_steps)
        value /= world_size()
    return value


def highest(value: int, device: torch.device) -> int:
    """The highest of all processes' values: all learn of it, so all stop or none."""
    if not _running():
        return value
    shared = torch.tensor(value, device=device)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX, group=_steps)
    return int(shared)


def all_rows(state: State) -> State:
    """The states of every process's rows side by side, on the CPU: (directions, L, all rows, ·)."""
    if not _running():
        return State(state.h.cpu(), state.c.cpu())
    parts = []
    for tensor in state:
        pieces = [torch.empty_like(tensor) for _ in range(world_size())]
        dist.all_gather(pieces, tensor.contiguous(), group=_steps)
        parts.append(torch.cat(pieces, dim=2).cpu())
    return State(*parts)


def my_rows(state: State, device: torch.device) -> State:
    """This process's share of `all_rows`."""
    parts = [tensor.chunk(world_size(), dim=2)[rank()].contiguous().to(device) for tensor in state]
    return State(*parts)


def wait_for_all() -> None:
    """Returns when every process has come here, however long one of them works."""
    if _running():
        dist.all_reduce(torch.zeros(1))


def _average_sparse(gradient: Tensor) -> Tensor:
    """The mean of row-sparse gradients: every process's rows side by side, same rows added up."""
    mine = gradient.coalesce()
    counts = [torch.zeros(1, dtype=torch.long, device=mine.device) for _ in range(world_size())]
    dist.all_gather(counts, torch.tensor([mine.indices().shape[1]], device=mine.device), group=_steps)
    most = int(max(int(c) for c in counts))
    indices = torch.zeros(most, dtype=torch.long, device=mine.device)
    values = torch.zeros(most, *mine.values().shape[1:], device=mine.device, dtype=mine.dtype)
    indices[: mine.indices().shape[1]] = mine.indices()[0]
    values[: len(mine.values())] = mine.values()
    all_indices = [torch.empty_like(indices) for _ in range(world_size())]
    all_values = [torch.empty_like(values) for _ in range(world_size())]
    dist.all_gather(all_indices, indices, group=_steps)
    dist.all_gather(all_values, values, group=_steps)
    kept = [(i[: int(c)], v[: int(c)]) for i, v, c in zip(all_indices, all_values, counts, strict=True)]
    together = torch.sparse_coo_tensor(
        torch.cat([i for i, _ in kept])[None],
        torch.cat([v for _, v in kept]) / world_size(),
        gradient.shape,
        check_invariants=False,
    )
    return together.coalesce()


def _running() -> bool:
    return dist.is_available() and dist.is_initialized()
