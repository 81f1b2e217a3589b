"""What the hardware would allow: the products that must be made, over the speed of a large product measured here.

The products are those that are left when each distinct word of a call is encoded once and its input product is made
once. What a sentence's boundaries leave behind is the same for all sentences and is not counted, nor is anything but
products: a share of the limit is a share of what multiplying alone would reach.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from elmo.bench.baseline import Sentences
from elmo.kernels.cpu.abi import DTYPES, PackedMatrix
from elmo.kernels.cpu.pytorch import can_prepack
from elmo.model.config import BiLMConfig

ROWS, INPUTS, OUTPUTS = 960, 1024, 4096
SQUARE = 8192  # on a GPU
TIMES = 20


def operations(config: BiLMConfig, calls: Sequence[Sentences]) -> float:
    """Multiplications and additions that are left when nothing is computed twice within a call."""
    lstm, total = config.lstm, 0.0
    P, H, L = lstm.proj_dim, lstm.cell_dim, lstm.num_layers
    for sentences in calls:
        words = {token for sentence in sentences for token in sentence}
        num_tokens = sum(map(len, sentences))
        total += _encoding(config, words)
        projection = 2 * P * H if lstm.projects else 0
        once, again = 8 * P * H, L * 8 * P * H + (L - 1) * 8 * P * H + L * projection
        total += config.num_directions * (len(words) * once + num_tokens * again)
    return total


def _encoding(config: BiLMConfig, words: set[str]) -> float:
    total, chars = 0.0, config.chars
    if chars is not None:
        F = chars.num_filters
        for word in words:
            windows = min(len(word.encode()) + 2, chars.max_chars) + 1
            total += 2 * sum(min(windows, chars.max_chars - w + 1) * w * chars.char_dim * n for w, n in chars.filters)
        total += len(words) * 4 * F * F * chars.num_highways
    return total + (len(words) * 2 * config.token_dim * config.lstm.proj_dim if config.projects_tokens else 0)


def product_peak(dtype: str, device: str = "cpu") -> float:
    """GFLOP/s of a large product, the best of many: of one thread with prepacked weights, or of a whole GPU."""
    if device != "cpu":
        return _gpu_peak(dtype, device)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _int8_peak() if dtype == "int8" else _cpu_peak(dtype)
    finally:
        torch.set_num_threads(threads)


def _cpu_peak(dtype: str) -> float:
    kind = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    x, weight = torch.randn(ROWS, INPUTS).to(kind), torch.randn(OUTPUTS, INPUTS).to(kind)
    if not can_prepack(dtype):
        return _best(lambda: torch.nn.functional.linear(x, weight), ROWS * INPUTS * OUTPUTS)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
    product = torch.ops.mkldnn._linear_pointwise
    return _best(lambda: product(x, packed, None, "none", [], ""), ROWS * INPUTS * OUTPUTS)


def _int8_peak() -> float:
    # PyTorch has no 8-bit product without conversions around it: ours is measured instead
    x, out = torch.randn(ROWS, INPUTS), torch.empty(ROWS, OUTPUTS)
    matrix = PackedMatrix(torch.randn(OUTPUTS, INPUTS), None, DTYPES["int8"])
    return _best(lambda: matrix.multiply(x, out, repeats=4), 4 * ROWS * INPUTS * OUTPUTS)


def _gpu_peak(dtype: str, device: str) -> float:
    kind = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
    a, b = (torch.randn(SQUARE, SQUARE, device=device, dtype=kind) for _ in range(2))

    def product() -> None:
        torch.mm(a, b)
        torch.cuda.synchronize(device)

    return _best(product, SQUARE**3)


def _best(product: Callable[[], object], num_products: int) -> float:
    best = 0.0
    with torch.inference_mode():
        for _ in range(TIMES):
            start = time.perf_counter()
            product()
            best = max(best, 2e-9 * num_products / (time.perf_counter() - start))
    return round(best, 1)
