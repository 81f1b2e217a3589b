"""What does a step of one LSTM layer consist of on this GPU, forward and backward? Both directions, bf16.

    python benchmarks/gpu_parts.py

Microseconds a layer and step, each part alone in a CUDA graph of 20 steps, median of five in turns in one process; then
one JSON line. "one kernel" (on Hopper) and "two kernels" are gates and cells (`elmo.kernels.gates_cuda`) with nothing
kept, or with what training keeps. What is missing of a step are copies: of x, of weights, of states.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_lstm import SIZES, STEPS, recorded, timed

from elmo.kernels.cells_cuda import cell_backward, hand_on, outputs_backward
from elmo.kernels.gates_cuda import Steps
from elmo.kernels.lstm_cuda import ALIGNED, ONES, _InParts

ROWS = {"original": (128, 1024), "medium": (1024,), "small": (1024, 4096)}


def parts(cell: int, proj: int, num_rows: int) -> Iterator[tuple[str, Callable[[int], object]]]:
    """Each part of step t."""
    D, T, B, H, P = 2, STEPS, num_rows, cell, proj

    def some(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*shape, device="cuda").to(dtype)

    rows, kernel, projection = some(D, T, B, 2 * P + ALIGNED), some(D, 2 * P, 4 * H) * P**-0.5, some(D, H, P) * H**-0.5
    bias, keep = some(D, 4 * H), (torch.rand(D, T, B, device="cuda") < 0.95).to(torch.bfloat16)
    gates, cells = some(D, T, B, 4 * H), some(D, T + 1, B, H, dtype=torch.float32)
    inner, out, d_rows = some(D, T, B, H), some(D, T, B, P), some(D, T, B, 2 * P)
    d_cell, d_hidden, d_gates = some(D, B, H, dtype=torch.float32) * 0, some(D, T, B, P), some(D, T, B, 4 * H)
    for name, one in {"one kernel": True, "two kernels": False}.items():
        steps = Steps(rows, kernel, bias, one=one)
        if steps.by_one_kernel != one:
            continue
        yield (
            f"{name}, nothing kept",
            lambda t, steps=steps: steps.step(t, d_cell, d_cell, inner[:, 0], None, keep[:, t], clip=3.0),
        )
        yield (
            f"{name}, training",
            lambda t, steps=steps: steps.step(
                t, cells[:, t], cells[:, t + 1], inner[:, t], gates[:, t], keep[:, t], clip=3.0
            ),
        )
    following = rows[:, 0, :, P : 2 * P]
    yield "projection", lambda t: torch.bmm(inner[:, t], projection, out=out[:, t])
    yield "handed on", lambda t: hand_on(out[:, t], out[:, t], following, keep[:, t], clip=3.0)
    later = d_rows[:, None, :, :, P:]
    yield (
        "backward: outputs",
        lambda t: outputs_backward(out[:, t], later[:, :, t], out[:, t], d_hidden[:, t], keep[:, t], clip=3.0),
    )
    d_inner = inner[:, 0].clone()
    yield "projection's", lambda t: torch.bmm(d_hidden[:, t], projection.transpose(1, 2), out=d_inner)
    yield (
        "cells'",
        lambda t: cell_backward(
            gates[:, t], bias, cells[:, t], d_inner, d_cell, d_gates[:, t], keep[:, t], clip=3.0, forget_bias=1.0
        ),
    )
    yield "gates'", lambda t: torch.bmm(d_gates[:, t], kernel.transpose(1, 2), out=d_rows[:, t])
    in_parts = _InParts(kernel, out)
    yield "gates' to h, in parts", lambda t: in_parts.step(t + 1, d_gates[:, t])
    read = rows.view(D, T * B, -1)[..., : 2 * P + ONES].transpose(1, 2)
    states, d_states = inner.view(D, T * B, H).transpose(1, 2), d_hidden.view(D, T * B, P)
    yield "projection's weights', a share", lambda t: None if t else torch.bmm(states, d_states)
    yield "weights', a share", lambda t: None if t else torch.bmm(read, d_gates.view(D, T * B, -1))


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    results = []
    for size, (cell, proj) in SIZES.items():
        for num_rows in ROWS[size]:
            made = dict(parts(cell, proj, num_rows))
            replays = {name: recorded(lambda part=part: [part(t) for t in range(STEPS)]) for name, part in made.items()}
            seconds: dict[str, list[float]] = {name: [] for name in replays}
            for _ in range(5):
                for name, replay in replays.items():
                    seconds[name].append(timed(replay, 3) / STEPS)
            for name, values in seconds.items():
                micro = statistics.median(values) * 1e6
                results.append({"size": size, "rows": num_rows, "part": name, "microseconds": micro})
                print(f"{size:9} rows {num_rows:5} {name:32} {micro:7.1f}")
            del made, replays
            torch.cuda.empty_cache()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
