"""What does a step of an LSTM layer consist of on this GPU, forward and backward? Two directions, bf16.

    python benchmarks/gpu_parts.py

Microseconds a layer and step with two layers in flight, each part alone in a CUDA graph of 20 steps, median of five in
turns in one process; then one JSON line. "one kernel" (on Hopper) and "two kernels" are gates and cells
(`elmo.kernels.cuda.gates`) with nothing kept, or with what training keeps. What is missing of a step are copies: of x,
of weights, of states.
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

from elmo.kernels.cuda.cells import cell_backward, hand_on, outputs_backward
from elmo.kernels.cuda.gates import Steps
from elmo.kernels.cuda.lstm import ALIGNED, ONES

ROWS = {"original": (128, 1024), "medium": (1024,), "small": (1024, 4096)}
LAYERS, D = 2, 2


def parts(cell: int, proj: int, num_rows: int) -> Iterator[tuple[str, Callable[[int], object]]]:
    """Each part of step t."""
    E, T, B, H, P = LAYERS * D, STEPS, num_rows, cell, proj

    def some(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*shape, device="cuda").to(dtype)

    rows, kernel, projection = some(E, T, B, 2 * P + ALIGNED), some(E, 2 * P, 4 * H) * P**-0.5, some(E, H, P) * H**-0.5
    bias, keep = some(E, 4 * H), (torch.rand(E, T, B, device="cuda") < 0.95).to(torch.bfloat16)
    gates, cells = some(E, T, B, 4 * H), some(E, T + 1, B, H, dtype=torch.float32)
    inner, out, d_rows = some(E, T, B, H), some(E, T, B, P), some(E, T, B, 2 * P)
    d_cell, d_hidden = some(E, B, H, dtype=torch.float32) * 0, some(E, T, B, P)
    d_gates = some(E, T, B, 4 * H)
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
    above, following = rows[:, 0, :, :P], rows[:, 0, :, P : 2 * P]
    yield "projection", lambda t: torch.bmm(inner[:, t], projection, out=out[:, t])
    yield (
        "handed on",
        lambda t: hand_on(out[:, t], above, following, keep[:, t], clip=3.0, rewrites=True, skip=rows[:, 1, :, :P]),
    )
    skip = d_hidden[:, 0]
    yield (
        "backward: outputs",
        lambda t: outputs_backward(
            d_rows[:, t, :, :P], d_rows[:, t, :, P:], d_hidden[:, t], keep[:, t], clip=3.0, skip=skip, linked=D
        ),
    )  # fmt: skip
    d_inner = inner[:, 0].clone()
    yield "projection's", lambda t: torch.bmm(d_hidden[:, t], projection.transpose(1, 2), out=d_inner)
    yield (
        "cells'",
        lambda t: cell_backward(
            gates[:, t], bias, cells[:, t], d_inner, d_cell, gates[:, t], keep[:, t], clip=3.0, forget_bias=1.0
        ),
    )
    yield "gates'", lambda t: torch.bmm(d_gates[:, t], kernel.transpose(1, 2), out=d_rows[:, t])
    read = rows.view(E, T * B, -1)[..., : 2 * P + ONES].transpose(1, 2)
    states, d_states = inner.view(E, T * B, H).transpose(1, 2), d_hidden.view(E, T * B, P)
    for name, one, other in (
        ("projection's weights'", states, d_states),
        ("weights'", read, d_gates.view(E, T * B, -1)),
    ):
        yield (
            f"{name}, a share",
            lambda t, one=one, other=other: [
                None if t else torch.bmm(one[e : e + D], other[e : e + D]) for e in range(0, E, D)
            ],
        )


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
                micro = statistics.median(values) * 1e6 / LAYERS
                results.append({"size": size, "rows": num_rows, "part": name, "microseconds": micro})
                print(f"{size:9} rows {num_rows:5} {name:38} {micro:7.1f}")
            del made, replays
            torch.cuda.empty_cache()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
