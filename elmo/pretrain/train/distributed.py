"""Data-parallel training in several processes: rank, averaged gradients, gathered LSTM states and barriers.

The code calls collectives directly instead of wrapping the model: `gradient_exchange` averages the gradients during the
backward pass, and `average_gradients` after it, with one all-reduce of a flat tensor. Every process therefore makes the
same update from the same weights, and a non-finite number in one process is seen by all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.model.lstm import State
from elmo.pretrain.train.rendezvous import join_store

STEP_TIMEOUT = timedelta(seconds=25)  # a lost or stalled process ends the job within half a minute
# for barriers: while processes start, or while rank 0 prepares text or writes files; a lost process still ends the job
BARRIER_TIMEOUT = timedelta(hours=6)
# collectives of training steps use this group with the short timeout; the default group is for barriers
_step_group: dist.ProcessGroup | None = None


def rank() -> int:
    """The number of this process; 0 without torchrun."""
    return dist.get_rank() if _is_initialized() else 0


def world_size() -> int:
    """The number of processes; 1 without torchrun."""
    return dist.get_world_size() if _is_initialized() else 1


def first_process_only(say: Callable[[str], None]) -> Callable[[str], None]:
    """`say` itself on rank 0, and a function that does nothing on all other processes: each line is printed once."""
    return say if rank() == 0 else _say_nothing


def _say_nothing(line: str) -> None:
    pass


@contextmanager
def join_processes(device: str) -> Iterator[str]:
    """Joins the process group if `torchrun` started this process; yields the device of this process."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield device
        return
    cuda = device.startswith("cuda")
    if cuda:
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    global _step_group
    try:
        store, own_rank, size = join_store(BARRIER_TIMEOUT)
        dist.init_process_group("gloo", store=store, rank=own_rank, world_size=size, timeout=BARRIER_TIMEOUT)
        _step_group = dist.new_group(backend="nccl" if cuda else "gloo", timeout=STEP_TIMEOUT)
        yield device
    except RuntimeError as error:
        if any(word in str(error).lower() for word in ("gloo", "nccl", "timed out", "connection")):
            raise ElmoError(
                f"Process {os.environ['RANK']} of {os.environ['WORLD_SIZE']} lost the connection to the others "
                f"({str(error).splitlines()[0][:200]}).",
                "Another process was killed, failed or stalled. The same command continues from the last checkpoint.",
            ) from error
        raise
    finally:
        _step_group = None
        if dist.is_initialized():
            dist.destroy_process_group()


def average_gradients(parameters: list[nn.Parameter]) -> None:
    """Replaces each gradient by its mean over all processes."""
    if not _is_initialized() or world_size() == 1:
        return
    dense = [p for p in parameters if p.grad is not None and not p.grad.is_sparse]
    flat = torch.cat([p.grad.flatten() for p in dense if p.grad is not None])
    dist.all_reduce(flat, group=_step_group)
    flat /= world_size()
    for p, part in zip(dense, flat.split([p.numel() for p in dense]), strict=True):
        assert p.grad is not None
        p.grad.copy_(part.view_as(p))
    average_sparse_gradients(parameters)


def average_sparse_gradients(parameters: list[nn.Parameter]) -> None:
    """Replaces each sparse gradient by its mean over all processes."""
    for p in parameters:
        if p.grad is not None and p.grad.is_sparse:
            p.grad = _average_sparse(p.grad)


def step_group() -> dist.ProcessGroup | None:
    """The group for the collectives of training steps."""
    return _step_group


def mean_over_processes(value: Tensor) -> Tensor:
    """The mean of a tensor over all processes."""
    if _is_initialized():
        value = value.clone()
        dist.all_reduce(value, group=_step_group)
        value /= world_size()
    return value


def max_over_processes(value: int, device: torch.device) -> int:
    """The maximum of a value over all processes, so that all processes make the same decision."""
    if not _is_initialized():
        return value
    maximum = torch.tensor(value, device=device)
    dist.all_reduce(maximum, op=dist.ReduceOp.MAX, group=_step_group)
    return int(maximum)


def gather_rows(state: State) -> State:
    """The LSTM states of the rows of all processes in the order of ranks, on the CPU: (R, L, all rows, ·)."""
    if not _is_initialized():
        return State(state.h.cpu(), state.c.cpu())
    gathered = []
    for tensor in state:
        parts = [torch.empty_like(tensor) for _ in range(world_size())]
        dist.all_gather(parts, tensor.contiguous(), group=_step_group)
        gathered.append(torch.cat(parts, dim=2).cpu())
    return State(*gathered)


def local_rows(state: State, device: torch.device) -> State:
    """The rows of this process from the result of `gather_rows`."""
    return State(*(tensor.chunk(world_size(), dim=2)[rank()].contiguous().to(device) for tensor in state))


def barrier() -> None:
    """Waits until every process has reached this point, with the long timeout."""
    if _is_initialized():
        dist.all_reduce(torch.zeros(1))


def _average_sparse(gradient: Tensor) -> Tensor:
    """The mean of row-sparse gradients over all processes: gathers the rows and adds up equal ones."""
    local = gradient.coalesce()
    counts = [torch.zeros(1, dtype=torch.long, device=local.device) for _ in range(world_size())]
    dist.all_gather(counts, torch.tensor([local.indices().shape[1]], device=local.device), group=_step_group)
    max_count = int(max(int(c) for c in counts))
    # all_gather needs equal shapes: shorter tensors are padded, and the padding is cut off afterwards
    indices = torch.zeros(max_count, dtype=torch.long, device=local.device)
    values = torch.zeros(max_count, *local.values().shape[1:], device=local.device, dtype=local.dtype)
    indices[: local.indices().shape[1]] = local.indices()[0]
    values[: len(local.values())] = local.values()
    all_indices = [torch.empty_like(indices) for _ in range(world_size())]
    all_values = [torch.empty_like(values) for _ in range(world_size())]
    dist.all_gather(all_indices, indices, group=_step_group)
    dist.all_gather(all_values, values, group=_step_group)
    parts = [(i[: int(c)], v[: int(c)]) for i, v, c in zip(all_indices, all_values, counts, strict=True)]
    mean = torch.sparse_coo_tensor(
        torch.cat([i for i, _ in parts])[None],
        torch.cat([v for _, v in parts]) / world_size(),
        gradient.shape,
        check_invariants=False,
    )
    return mean.coalesce()


def _is_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()
