"""The roofline: the words per second that matrix products alone would allow on this hardware.

It is the number of operations that are necessary, divided by the measured speed of a large product. Only the products
are counted that remain when each distinct word of a call is encoded once and its input product is computed once. The
states after the sentence boundaries are the same for all sentences and are not counted, nor is anything but products.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from elmo.bench.baseline import Sentences
from elmo.kernels.cpu.abi import DTYPES, PackedMatrix
from elmo.kernels.cpu.pytorch import can_prepack
from elmo.model.config import BiLMConfig

ROWS, INPUTS, OUTPUTS = 960, 1024, 4096  # of the product on a CPU
GPU_DIM = 8192  # of the square matrices on a GPU
REPEATS = 20


def count_operations(config: BiLMConfig, calls: Sequence[Sentences]) -> float:
    """Multiplications and additions that are necessary when nothing is computed twice within a call."""
    lstm, total = config.lstm, 0.0
    P, H, L = lstm.proj_dim, lstm.cell_dim, lstm.num_layers
    for sentences in calls:
        words = {token for sentence in sentences for token in sentence}
        num_tokens = sum(map(len, sentences))
        total += _encoder_operations(config, words)
        projection = 2 * P * H if lstm.projects else 0
        per_word, per_token = 8 * P * H, L * 8 * P * H + (L - 1) * 8 * P * H + L * projection
        total += config.num_directions * (len(words) * per_word + num_tokens * per_token)
    return total


def _encoder_operations(config: BiLMConfig, words: set[str]) -> float:
    total, chars = 0.0, config.chars
    if chars is not None:
        F = chars.num_filters
        for word in words:
            windows = min(len(word.encode()) + 2, chars.max_chars) + 1
            total += 2 * sum(min(windows, chars.max_chars - w + 1) * w * chars.char_dim * n for w, n in chars.filters)
        total += len(words) * 4 * F * F * chars.num_highways
    return total + (len(words) * 2 * config.token_dim * config.lstm.proj_dim if config.projects_tokens else 0)


def product_peak(dtype: str, device: str = "cpu") -> float:
    """GFLOP/s of a large product, the best of many: of one CPU thread with prepacked weights, or of a GPU."""
    if device != "cpu":
        return _gpu_peak(dtype, device)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _int8_peak() if dtype == "int8" else _cpu_peak(dtype)
    finally:
        torch.set_num_threads(num_threads)


def _cpu_peak(dtype: str) -> float:
    torch_dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    x, weight = torch.randn(ROWS, INPUTS).to(torch_dtype), torch.randn(OUTPUTS, INPUTS).to(torch_dtype)
    if not can_prepack(dtype):
        return _best_gflops(lambda: torch.nn.functional.linear(x, weight), ROWS * INPUTS * OUTPUTS)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
    product = torch.ops.mkldnn._linear_pointwise
    return _best_gflops(lambda: product(x, packed, None, "none", [], ""), ROWS * INPUTS * OUTPUTS)


def _int8_peak() -> float:
    # PyTorch has no int8 product without conversions around it, so our own product is measured
    x, out = torch.randn(ROWS, INPUTS), torch.empty(ROWS, OUTPUTS)
    matrix = PackedMatrix(torch.randn(OUTPUTS, INPUTS), None, DTYPES["int8"])
    return _best_gflops(lambda: matrix.multiply(x, out, repeats=4), 4 * ROWS * INPUTS * OUTPUTS)


def _gpu_peak(dtype: str, device: str) -> float:
    torch_dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
    a, b = (torch.randn(GPU_DIM, GPU_DIM, device=device, dtype=torch_dtype) for _ in range(2))

    def product() -> None:
        torch.mm(a, b)
        torch.cuda.synchronize(device)

    return _best_gflops(product, GPU_DIM**3)


def _best_gflops(product: Callable[[], object], num_multiplications: int) -> float:
    best = 0.0
    with torch.inference_mode():
        for _ in range(REPEATS):
            start = time.perf_counter()
            product()
            best = max(best, 2e-9 * num_multiplications / (time.perf_counter() - start))
    return round(best, 1)
