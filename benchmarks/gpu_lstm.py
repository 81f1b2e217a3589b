"""How fast is the projected-LSTM stack on this GPU, beside cuDNN's and beside the matmul peak? 2 layers, 2 directions.

    python benchmarks/gpu_lstm.py [--sizes original small] [--rows 128 1024]

Tokens/s of 20 steps, median of seven, all variants of a row in turns in one process; then one JSON line.
cuDNN's `nn.LSTM(proj_size)` has no clips, so it does a little less work. Weights of both are bfloat16 and gradients are
made anew, not added to older ones. "recorded": replayed as a CUDA graph, as in pretraining; "embedding": steps as
`elmo embed` replays them, which keep all layers and nothing for a gradient.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from elmo.bench.limit import product_peak
from elmo.kernels.api import find_kernel
from elmo.kernels.cuda.graphs import capture_graph
from elmo.kernels.cuda.steps import Layers, Stretch
from elmo.model.config import LSTMConfig
from elmo.model.lstm import LSTMStack, State
from elmo.model.stacks import run_stacks

SIZES = {"original": (4096, 512), "medium": (2048, 256), "small": (1024, 128)}
STEPS = 20


def timed(function, repeats: int) -> float:
    """Seconds of one call."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        function()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / repeats


def recorded(function):
    """The function as a CUDA graph's replay."""
    return capture_graph(function)[0].replay


def embedding(stacks: nn.ModuleList, config: LSTMConfig, x: torch.Tensor):
    """Steps as embedding takes them over vectors x (D, B, T, P), in stretches as long as its buffers allow."""
    _, B, T, P = x.shape
    stretch = Stretch(Layers.of(stacks, config), B, use_graphs=True)
    whole, rest = divmod(T, stretch.most_steps)
    part = x[:, :, : stretch.most_steps].transpose(1, 2)  # (D, n, B, P)
    stretch.layers[0, :, : part.shape[1], :, :P] = part
    stretch.keep[:] = torch.rand(stretch.keep.shape[2:], device=x.device) > 0.05

    def run() -> None:
        for steps in [stretch.most_steps] * whole + [rest] * bool(rest):
            stretch.run(steps, config.num_layers)

    return run


def variants(cell: int, proj: int, rows: int) -> dict:
    config = LSTMConfig(cell_dim=cell, proj_dim=proj)
    stacks = nn.ModuleList(LSTMStack(config) for _ in range(2)).cuda().bfloat16()
    x = torch.randn(2, rows, STEPS, proj, device="cuda", dtype=torch.bfloat16) * 0.5
    state = State(
        torch.zeros(2, 2, rows, proj, device="cuda", dtype=torch.bfloat16), torch.zeros(2, 2, rows, cell, device="cuda")
    )
    fresh = torch.rand(2, rows, STEPS, device="cuda") < 0.05
    fused = find_kernel("bilstm", "cuda", "bfloat16")
    grad = torch.randn(2, rows, STEPS, proj, device="cuda", dtype=torch.bfloat16)
    cudnn = nn.ModuleList(nn.LSTM(proj, cell, 2, proj_size=proj) for _ in range(2)).cuda().bfloat16()
    for lstm in cudnn:
        lstm.flatten_parameters()
    time_major = x.transpose(1, 2).contiguous()

    def ours_forward() -> None:
        with torch.no_grad():
            run_stacks(stacks, x, state, fresh, fused=fused)

    def ours_both() -> None:
        stacks.zero_grad(set_to_none=True)
        out, _ = run_stacks(stacks, x.detach().requires_grad_(), state, fresh, fused=fused)
        out.backward(grad)

    embed = embedding(stacks, config, x)

    def cudnn_forward() -> None:
        with torch.no_grad():
            for d in range(2):
                cudnn[d](time_major[d])

    def cudnn_both() -> None:
        cudnn.zero_grad(set_to_none=True)
        for d in range(2):
            out, _ = cudnn[d](time_major[d].detach().requires_grad_())
            out.backward(grad[d].transpose(0, 1))

    return {
        "ours embedding": embed,
        "ours recorded forward": recorded(ours_forward),
        "ours recorded f+b": recorded(ours_both),
        "ours forward": ours_forward,
        "cudnn forward": cudnn_forward,
        "ours f+b": ours_both,
        "cudnn f+b": cudnn_both,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--rows", nargs="+", type=int, default=[128, 1024, 4096])
    given = parser.parse_args()
    random.seed(0)
    top = 1e9 * product_peak("bfloat16", "cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bf16 matmul {top / 1e12:.0f} TFLOP/s")
    results = []
    for size in given.sizes:
        cell, proj = SIZES[size]
        flops = 2 * 2 * (2 * 2 * proj * 4 * cell + 2 * cell * proj)  # a token, forward
        for rows in given.rows:
            functions = variants(cell, proj, rows)
            seconds: dict[str, list[float]] = {name: [] for name in functions}
            for function in functions.values():
                function()
                function()
            for _ in range(7):
                # in another order each time: what runs after a hot neighbour finds a slower GPU
                for name, function in random.sample(list(functions.items()), len(functions)):
                    seconds[name].append(timed(function, 3))
            for name, values in seconds.items():
                tokens = rows * STEPS / statistics.median(values)
                share = tokens * flops * (3 if "f+b" in name else 1) / top
                results.append({"size": size, "rows": rows, "what": name, "tokens_per_s": tokens, "share": share})
                print(f"{size:9} rows {rows:5} {name:22} {tokens / 1e6:8.2f}M tokens/s {share:6.1%} of peak")
            torch.cuda.empty_cache()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
