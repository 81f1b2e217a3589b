"""How fast is the projected LSTM stack on this GPU, compared with cuDNN and with the matmul peak?

    python benchmarks/gpu_lstm.py [--sizes original small] [--rows 128 1024]

Two layers, two directions. Tokens per second over 20 steps, median of seven rounds; all variants of one configuration
take turns in one process. Prints a table, then one JSON line. cuDNN's `nn.LSTM(proj_size)` has no clips, so it does a
little less work. The weights of both are bfloat16; gradients are written, not added to earlier ones. "graph": the
steps are replayed as a CUDA graph, as in pretraining. "embedding": the steps as `elmo embed` replays them, which store
all layers and nothing for a backward pass.
Shapes: R directions, B rows, T steps, P projection.
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

from elmo.bench.roofline import product_peak
from elmo.kernels.api import find_kernel
from elmo.kernels.cuda.graphs import capture_graph
from elmo.kernels.cuda.steps import ChunkRunner, LayerWeights
from elmo.model.config import LSTMConfig
from elmo.model.lstm import LSTMStack, State
from elmo.model.stacks import run_stacks_fused

SIZES = {"original": (4096, 512), "medium": (2048, 256), "small": (1024, 128)}  # cells, projection
STEPS = 20


def time_call(function, repeats: int) -> float:
    """Seconds per call."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        function()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / repeats


def captured(function):
    """The replay of the function as a CUDA graph."""
    return capture_graph(function)[0].replay


def embedding_steps(stacks: nn.ModuleList, config: LSTMConfig, x: torch.Tensor):
    """The steps of embedding over vectors x (R, B, T, P), in chunks as long as the buffers allow."""
    _, B, T, P = x.shape
    runner = ChunkRunner(LayerWeights.from_stacks(stacks, config), B, use_graphs=True)
    num_full, rest = divmod(T, runner.max_steps)
    chunk = x[:, :, : runner.max_steps].transpose(1, 2)  # (R, n, B, P)
    runner.layers[0, :, : chunk.shape[1], :, :P] = chunk
    runner.keep[:] = torch.rand(runner.keep.shape[2:], device=x.device) > 0.05

    def run() -> None:
        for num_steps in [runner.max_steps] * num_full + [rest] * bool(rest):
            runner.run(num_steps, config.num_layers)

    return run


def make_variants(cell_dim: int, proj_dim: int, num_rows: int) -> dict:
    config = LSTMConfig(cell_dim=cell_dim, proj_dim=proj_dim)
    stacks = nn.ModuleList(LSTMStack(config) for _ in range(2)).cuda().bfloat16()
    x = torch.randn(2, num_rows, STEPS, proj_dim, device="cuda", dtype=torch.bfloat16) * 0.5
    state = State(
        torch.zeros(2, 2, num_rows, proj_dim, device="cuda", dtype=torch.bfloat16),
        torch.zeros(2, 2, num_rows, cell_dim, device="cuda"),
    )
    fresh = torch.rand(2, num_rows, STEPS, device="cuda") < 0.05
    fused = find_kernel("bilstm", "cuda", "bfloat16")
    grad = torch.randn(2, num_rows, STEPS, proj_dim, device="cuda", dtype=torch.bfloat16)
    cudnn = nn.ModuleList(nn.LSTM(proj_dim, cell_dim, 2, proj_size=proj_dim) for _ in range(2)).cuda().bfloat16()
    for lstm in cudnn:
        lstm.flatten_parameters()
    time_major = x.transpose(1, 2).contiguous()

    def ours_forward() -> None:
        with torch.no_grad():
            run_stacks_fused(fused, stacks, x, state, fresh, 0.0)

    def ours_forward_backward() -> None:
        stacks.zero_grad(set_to_none=True)
        out, _ = run_stacks_fused(fused, stacks, x.detach().requires_grad_(), state, fresh, 0.0)
        out.backward(grad)

    embed = embedding_steps(stacks, config, x)

    def cudnn_forward() -> None:
        with torch.no_grad():
            for direction in range(2):
                cudnn[direction](time_major[direction])

    def cudnn_forward_backward() -> None:
        cudnn.zero_grad(set_to_none=True)
        for direction in range(2):
            out, _ = cudnn[direction](time_major[direction].detach().requires_grad_())
            out.backward(grad[direction].transpose(0, 1))

    return {
        "ours embedding": embed,
        "ours graph forward": captured(ours_forward),
        "ours graph f+b": captured(ours_forward_backward),
        "ours forward": ours_forward,
        "cudnn forward": cudnn_forward,
        "ours f+b": ours_forward_backward,
        "cudnn f+b": cudnn_forward_backward,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--rows", nargs="+", type=int, default=[128, 1024, 4096])
    options = parser.parse_args()
    random.seed(0)
    peak = 1e9 * product_peak("bfloat16", "cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bf16 matmul {peak / 1e12:.0f} TFLOP/s")
    results = []
    for size in options.sizes:
        cell_dim, proj_dim = SIZES[size]
        flops = 2 * 2 * (2 * 2 * proj_dim * 4 * cell_dim + 2 * cell_dim * proj_dim)  # per token, forward
        for num_rows in options.rows:
            variants = make_variants(cell_dim, proj_dim, num_rows)
            seconds: dict[str, list[float]] = {name: [] for name in variants}
            for function in variants.values():
                function()
                function()
            for _ in range(7):
                # in a different order each time: after a demanding variant the GPU is hot and slower
                for name, function in random.sample(list(variants.items()), len(variants)):
                    seconds[name].append(time_call(function, 3))
            for name, times in seconds.items():
                tokens = num_rows * STEPS / statistics.median(times)
                share = tokens * flops * (3 if "f+b" in name else 1) / peak
                results.append({"size": size, "rows": num_rows, "what": name, "tokens_per_s": tokens, "share": share})
                print(f"{size:9} rows {num_rows:5} {name:22} {tokens / 1e6:8.2f}M tokens/s {share:6.1%} of peak")
            torch.cuda.empty_cache()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
