"""How long does each part of an LSTM step take on this GPU, forward and backward? Two directions, bfloat16.

    python benchmarks/gpu_parts.py

Microseconds per layer and step with a wavefront of two layers. Each part is a CUDA graph of 20 steps; median of five
rounds in which the parts take turns in one process. Prints a table, then one JSON line. "one kernel" (on Hopper GPUs)
and "two kernels" compute gates and cells (`elmo.kernels.cuda.gates`), either storing nothing or storing what training
needs. The copies of x, weights and states are the parts of a step that are not measured.
Shapes: R directions, LR layers * directions, T steps, B rows, P projection, H cells.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_lstm import SIZES, STEPS, captured, time_call

from elmo.kernels.cuda.cells import cell_backward, output_backward, output_forward
from elmo.kernels.cuda.gates import StepLauncher
from elmo.kernels.cuda.lstm import ALIGNMENT, NUM_ONES

ROWS = {"original": (128, 1024), "medium": (1024,), "small": (1024, 4096)}
NUM_LAYERS, R = 2, 2


def step_parts(cell_dim: int, proj_dim: int, num_rows: int) -> Iterator[tuple[str, Callable[[int], object]]]:
    """The name of each part of a step, and a function that runs it for step t."""
    LR, T, B, H, P = NUM_LAYERS * R, STEPS, num_rows, cell_dim, proj_dim

    def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*shape, device="cuda").to(dtype)

    rows = random(LR, T, B, 2 * P + ALIGNMENT)
    kernel, projection = random(LR, 2 * P, 4 * H) * P**-0.5, random(LR, H, P) * H**-0.5
    bias, keep = random(LR, 4 * H), (torch.rand(LR, T, B, device="cuda") < 0.95).to(torch.bfloat16)
    gates, cells = random(LR, T, B, 4 * H), random(LR, T + 1, B, H, dtype=torch.float32)
    inner, out, d_rows = random(LR, T, B, H), random(LR, T, B, P), random(LR, T, B, 2 * P)
    d_cell, d_hidden = random(LR, B, H, dtype=torch.float32) * 0, random(LR, T, B, P)
    d_gates = random(LR, T, B, 4 * H)
    for name, fused in {"one kernel": True, "two kernels": False}.items():
        launcher = StepLauncher(rows, kernel, bias, fused=fused)
        if launcher.is_fused != fused:
            continue
        yield (
            f"{name}, inference",
            lambda t, launcher=launcher: launcher.step(t, d_cell, d_cell, inner[:, 0], None, keep[:, t], clip=3.0),
        )
        yield (
            f"{name}, training",
            lambda t, launcher=launcher: launcher.step(
                t, cells[:, t], cells[:, t + 1], inner[:, t], gates[:, t], keep[:, t], clip=3.0
            ),
        )
    above, following = rows[:, 0, :, :P], rows[:, 0, :, P : 2 * P]
    yield "projection", lambda t: torch.bmm(inner[:, t], projection, out=out[:, t])
    yield (
        "outputs",
        lambda t: output_forward(
            out[:, t], above, following, keep[:, t], clip=3.0, clip_in_place=True, skip=rows[:, 1, :, :P]
        ),
    )
    skip = d_hidden[:, 0]
    yield (
        "backward: outputs",
        lambda t: output_backward(
            d_rows[:, t, :, :P], d_rows[:, t, :, P:], d_hidden[:, t], keep[:, t], clip=3.0, skip=skip, num_linked=R
        ),
    )  # fmt: skip
    d_inner = inner[:, 0].clone()
    yield "backward: projection", lambda t: torch.bmm(d_hidden[:, t], projection.transpose(1, 2), out=d_inner)
    yield (
        "backward: cells",
        lambda t: cell_backward(
            gates[:, t], bias, cells[:, t], d_inner, d_cell, gates[:, t], keep[:, t], clip=3.0, forget_bias=1.0
        ),
    )
    yield "backward: gates", lambda t: torch.bmm(d_gates[:, t], kernel.transpose(1, 2), out=d_rows[:, t])
    inputs = rows.view(LR, T * B, -1)[..., : 2 * P + NUM_ONES].transpose(1, 2)
    states, d_states = inner.view(LR, T * B, H).transpose(1, 2), d_hidden.view(LR, T * B, P)
    for name, left, right in (
        ("backward: projection weights", states, d_states),
        ("backward: kernel weights", inputs, d_gates.view(LR, T * B, -1)),
    ):  # one product for all steps, launched at step 0
        yield (
            f"{name}, per step",
            lambda t, left=left, right=right: [
                None if t else torch.bmm(left[lr : lr + R], right[lr : lr + R]) for lr in range(0, LR, R)
            ],
        )


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    results = []
    for size, (cell_dim, proj_dim) in SIZES.items():
        for num_rows in ROWS[size]:
            parts = dict(step_parts(cell_dim, proj_dim, num_rows))
            replays = {
                name: captured(lambda part=part: [part(t) for t in range(STEPS)]) for name, part in parts.items()
            }
            seconds: dict[str, list[float]] = {name: [] for name in replays}
            for _ in range(5):
                for name, replay in replays.items():
                    seconds[name].append(time_call(replay, 3) / STEPS)
            for name, times in seconds.items():
                microseconds = statistics.median(times) * 1e6 / NUM_LAYERS
                results.append({"size": size, "rows": num_rows, "part": name, "microseconds": microseconds})
                print(f"{size:9} rows {num_rows:5} {name:38} {microseconds:7.1f}")
            del parts, replays
            torch.cuda.empty_cache()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
