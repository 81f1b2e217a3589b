"""How fast is embedding on this CPU? Every path side by side in one process, in turn, on the same sentences.

    python benchmarks/cpu_inference.py --sizes small,original --threads 2
    python benchmarks/cpu_inference.py --text tokens.txt --sentences 192 --dtypes float32 --rounds 7

From lists of tokens to arrays of all layers, the word cache empty at the start of every call. Bulk gives all sentences
at once; single gives one at a time. Paths:

    loop          PyTorch as one would write it down: batches of 64 in file order, each token's 50 characters convolved,
                  a loop over time in which short sentences drop out; what AllenNLP's module does, in our words
    loop sorted   the same, fed sentences of like length
    plain         this package with ELMO_KERNELS=off
    torch         its twin in PyTorch alone
    native        its compiled twin, for each dtype

The limit counts the products that remain when each distinct word is encoded once and its input product made once, and
divides them into what a large prepacked product reaches here in the same run. Weights are random: speed does not depend
on them. `--text` has a tokenised sentence a line; without it, the prose of Python's own language reference is used,
which every installation carries. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait must not spin: other work runs here, too
os.environ.setdefault("GOMP_SPINCOUNT", "0")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from torch import Tensor

from elmo.kernels.build import CannotBuild, processor_level
from elmo.kernels.cpu_abi import DTYPES, PackedMatrix, has_dtype
from elmo.kernels.cpu_native import NativeBiLM
from elmo.kernels.cpu_torch import TorchBiLM, can_prepack
from elmo.kernels.work import make_work
from elmo.model.bilm import BiLM
from elmo.model.config import PRESETS
from elmo.text.batch import make_batch
from elmo.text.indexer import ByteIndexer
from elmo.text.sentences import split_sentences
from elmo.text.tokenize import tokenizer

Sentences = Sequence[Sequence[str]]
Path_ = Callable[[Sentences], "list[np.ndarray]"]
BATCH = 64
BULK = {"tiny": 384, "small": 192, "medium": 96, "original": 64}  # sentences
SINGLE = {"tiny": 24, "small": 12, "medium": 8, "original": 4}


def main() -> None:
    options = read_options()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    if options.memory_of:
        size, name = options.memory_of.split(":")
        paths_of(size, options.dtypes)[name](sentences_for(options, BULK[size]))
        print(peak_of_this_process())
        return
    peaks = {dtype: product_peak(dtype) for dtype in options.dtypes}
    results = []
    for size in options.sizes:
        for feed in options.feeds:
            count = options.sentences or (BULK if feed == "bulk" else SINGLE)[size]
            results += measure(size, feed, sentences_for(options, count), options, peaks)
    print_table(results, peaks, options)
    print(json.dumps({"machine": machine(options.threads), "gflops": peaks, "results": results}))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--sizes", type=words, default=["small", "original"], help="of tiny, small, medium, original")
    parser.add_argument("--feeds", type=words, default=["bulk", "single"], help="of bulk, single")
    parser.add_argument("--dtypes", type=words, default=["float32", "bfloat16", "int8"])
    parser.add_argument("--paths", type=words, help="only these, by name")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--sentences", type=int, help="how many; fewer for large sizes if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--text", help="tokenised sentences, one a line")
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory (a process for each path)")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    return parser.parse_args()


def sentences_for(options: argparse.Namespace, count: int) -> list[list[str]]:
    """`count` sentences of 3 to 60 tokens, in a fixed random order."""
    if options.text:
        found = [line.split() for line in Path(options.text).read_text(encoding="utf-8").splitlines()]
    else:
        from pydoc_data.topics import topics

        split = tokenizer("default")
        paragraphs = [p for text in topics.values() for p in text.split("\n\n") if p[:1].isalpha()]
        prose = [" ".join(p.split()) for p in paragraphs]
        found = [[t.text for t in split(p[s.start : s.end])] for p in prose for s in split_sentences(p)]
    found = [sentence for sentence in found if 3 <= len(sentence) <= 60]
    order = np.random.default_rng(0).permutation(len(found))[:count]
    return [found[i] for i in order]


def paths_of(size: str, dtypes: Sequence[str]) -> dict[str, Path_]:
    """Every path this machine has, by name."""
    torch.manual_seed(0)
    model = BiLM(PRESETS[size]).eval().requires_grad_(False)
    paths: dict[str, Path_] = {
        "loop": lambda sentences: obvious_loop(model, sentences),
        "loop sorted": lambda sentences: in_order_of_length(model, sentences),
        "plain": lambda sentences: plain(model, sentences),
    }
    made: dict[str, Any] = {}  # weights are packed at first use, so that a path's memory is its own

    def through(name: str, kind: type, dtype: str) -> Path_:
        def run(sentences: Sentences) -> list[np.ndarray]:
            if name not in made:
                made[name] = kind(model, dtype)
            return through_twin(made[name], sentences)

        return run

    for dtype in dtypes:
        if dtype in ("float32", "bfloat16"):
            paths[f"torch {dtype}"] = through(f"torch {dtype}", TorchBiLM, dtype)
        try:
            if has_dtype(dtype):
                paths[f"native {dtype}"] = through(f"native {dtype}", NativeBiLM, dtype)
        except CannotBuild as error:
            print(f"no compiled kernels: {error}", file=sys.stderr)
    return paths


def through_twin(twin: Any, sentences: Sentences) -> list[np.ndarray]:
    """What embedding does with a twin: distinct words, then all sentences."""
    indexer, rows = ByteIndexer(), {}
    for sentence in sentences:
        for token in sentence:
            rows.setdefault(token, len(rows) + 2)
    table = twin.encode_rows(np.stack([indexer.begin, indexer.end, *map(indexer.row, rows)]))  # (2 + N, P)
    numbered = [[0, *(rows[token] for token in sentence), 1] for sentence in sentences]
    mix = np.eye(twin.model.config.num_layers, dtype=np.float32)
    out = twin.contextualize(make_work(table, numbered, mix)).out  # (L + 1, words, D)
    ends = np.cumsum([len(sentence) for sentence in sentences])
    return np.split(out, ends[:-1], axis=1)


def plain(model: BiLM, sentences: Sentences) -> list[np.ndarray]:
    """The package itself without twins."""
    from elmo.embed.embedder import Embedder

    before = os.environ.get("ELMO_KERNELS")
    os.environ["ELMO_KERNELS"] = "off"
    try:
        return Embedder(model, ByteIndexer()).embed([list(s) for s in sentences], layers="all", batch_size=BATCH)
    finally:
        os.environ.pop("ELMO_KERNELS")
        if before is not None:
            os.environ["ELMO_KERNELS"] = before


def in_order_of_length(model: BiLM, sentences: Sentences) -> list[np.ndarray]:
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    found = obvious_loop(model, [sentences[i] for i in order])
    return [found[order.index(i)] for i in range(len(order))]


def obvious_loop(model: BiLM, sentences: Sentences) -> list[np.ndarray]:
    """Batches in the order given; all tokens of a batch, padding too, through the characters; then a loop over time."""
    found: list[np.ndarray] = []
    for start in range(0, len(sentences), BATCH):
        batch = make_batch(sentences[start : start + BATCH], ByteIndexer())
        lengths = torch.from_numpy(batch.mask.sum(axis=1))
        order = lengths.argsort(descending=True)  # so that those still at work are the first rows
        tokens = characters(model, torch.from_numpy(batch.ids)[order].flatten(0, 1)).unflatten(0, batch.mask.shape)
        directions = [stack_loop(stack, tokens, lengths[order], d == 1) for d, stack in enumerate(model.stacks)]
        layers = torch.cat([torch.cat([tokens, tokens], dim=-1)[None], torch.cat(directions, dim=-1)])  # (L+1, B, T, D)
        back = layers[:, order.argsort()].numpy()
        found += [back[:, row, 1 : int(n) - 1] for row, n in enumerate(lengths)]
    return found


def characters(model: BiLM, ids: Tensor) -> Tensor:
    """(N, 50) to (N, P), all columns convolved."""
    encoder: Any = model.token_encoder
    x = torch.nn.functional.pad(encoder.chars.table, (0, 0, 1, 0))[ids].transpose(1, 2)  # (N, E, 50)
    x = torch.cat([torch.relu(convolution(x).amax(dim=-1)) for convolution in encoder.chars.convolutions], dim=-1)
    for highway in encoder.chars.highways:
        x = highway(x)
    return encoder.project(x)


def stack_loop(stack: Any, x: Tensor, lengths: Tensor, backward: bool) -> Tensor:
    """(B, T, P), longest sentence first, to (L, B, T, P)."""
    outputs = []
    for number, layer in enumerate(stack.layers):
        P, H = x.shape[2], layer.bias.shape[0] // 4
        out, h, c = torch.zeros_like(x), x.new_zeros(len(x), P), x.new_zeros(len(x), H)
        steps = range(x.shape[1])
        for t in reversed(steps) if backward else steps:
            n = int((lengths > t).sum())  # rows that have a token here
            gates = x[:n, t] @ layer.kernel[:P] + layer.bias + h[:n] @ layer.kernel[P:]  # (n, 4H)
            i, j, f, o = gates.chunk(4, dim=-1)
            new_c = torch.sigmoid(f + layer.forget_bias) * c[:n] + torch.sigmoid(i) * torch.tanh(j)
            c[:n] = new_c.clamp(-layer.cell_clip, layer.cell_clip)
            h[:n] = ((torch.sigmoid(o) * torch.tanh(c[:n])) @ layer.projection).clamp(-layer.proj_clip, layer.proj_clip)
            out[:n, t] = h[:n]
        x = out + x if number > 0 else out
        outputs.append(x)
    return torch.stack(outputs)


def measure(
    size: str, feed: str, sentences: list[list[str]], options: argparse.Namespace, peaks: dict[str, float]
) -> list[dict[str, Any]]:
    """Each path once per round, in turn; the first round warms up."""
    paths = paths_of(size, options.dtypes)
    paths = {name: path for name, path in paths.items() if not options.paths or name in options.paths}
    if feed == "single":
        paths.pop("loop sorted", None)
    seconds: dict[str, list[float]] = {name: [] for name in paths}
    first: dict[str, list[np.ndarray]] = {}
    calls = [sentences] if feed == "bulk" else [[sentence] for sentence in sentences]
    for number in range(options.rounds + 1):
        for name, path in paths.items():
            start = time.perf_counter()
            found = [vectors for call in calls for vectors in path(call)]
            if number:
                seconds[name].append(time.perf_counter() - start)
            else:
                first[name] = found
    num_words = sum(map(len, sentences))
    results = []
    for name, times in seconds.items():
        dtype = name.split()[-1] if name.split()[-1] in peaks else "float32"
        speeds = sorted(num_words / t for t in times)
        limit = options.threads * peaks[dtype] * 1e9 * num_words / operations(size, calls) if dtype in peaks else None
        result: dict[str, Any] = {
            "size": size,
            "feed": feed,
            "path": name,
            "sentences": len(sentences),
            "words": num_words,
        }
        result["words_per_second"] = round(statistics.median(speeds), 1)
        result["spread"] = [round(speeds[0], 1), round(speeds[-1], 1)]
        for other in ("loop", "loop sorted"):  # round by round: what else the machine does falls on both
            ratios = [a / b for a, b in zip(seconds.get(other, ()), times, strict=False)]
            result[f"times_{other.replace(' ', '_')}"] = round(statistics.median(ratios), 2) if ratios else None
        result["share_of_limit"] = round(statistics.median(speeds) / limit, 3) if limit else None
        result["difference_to_plain"] = largest_difference(first[name], first.get("plain"))
        if feed == "bulk" and not options.no_memory:
            result["peak_mb"] = peak_memory(size, name, options)
        results.append(result)
        print(f"{size} {feed} {name}: {result['words_per_second']:,.0f} words/s", file=sys.stderr)
    return results


def largest_difference(found: list[np.ndarray], truth: list[np.ndarray] | None) -> float | None:
    if truth is None:
        return None
    return float(max(np.abs(a - b).max(initial=0.0) for a, b in zip(found, truth, strict=True)))


def peak_memory(size: str, name: str, options: argparse.Namespace) -> int:
    command = [sys.executable, __file__, "--memory-of", f"{size}:{name}", "--threads", str(options.threads)]
    command += ["--dtypes", ",".join(options.dtypes), *(["--text", options.text] if options.text else [])]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def peak_of_this_process() -> int:
    """MB. Not getrusage: it counts the parent this process was forked from."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) // 1024


def operations(size: str, calls: Sequence[Sentences]) -> float:
    """Multiplications and additions that are left when nothing is computed twice within a call."""
    config = PRESETS[size]
    lstm, chars, total = config.lstm, config.chars, 0.0
    assert chars is not None
    P, H, L, F = lstm.proj_dim, lstm.cell_dim, lstm.num_layers, chars.num_filters
    for sentences in calls:
        words = {token for sentence in sentences for token in sentence}
        num_tokens = sum(len(sentence) + 2 for sentence in sentences)
        for word in words:
            windows = min(len(word.encode()) + 2, chars.max_chars) + 1
            total += 2 * sum(min(windows, chars.max_chars - w + 1) * w * chars.char_dim * n for w, n in chars.filters)
        total += len(words) * (4 * F * F * chars.num_highways + 2 * F * P)
        directions = len(words) * 8 * P * H + num_tokens * (L * 8 * P * H + (L - 1) * 8 * P * H + L * 2 * P * H)
        total += config.num_directions * directions
    return total


def product_peak(dtype: str) -> float:
    """GFLOP/s of one thread in a large product with prepacked weights: the best of many."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    M, K, N = 960, 1024, 4096
    try:
        if dtype == "int8":
            return native_peak(M, K, N)
        kind = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
        x, weight = torch.randn(M, K).to(kind), torch.randn(N, K).to(kind)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, M) if can_prepack(dtype) else None
        best = 0.0
        for _ in range(20):
            start = time.perf_counter()
            if packed is None:
                torch.nn.functional.linear(x, weight)
            else:
                torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
            best = max(best, 2e-9 * M * K * N / (time.perf_counter() - start))
        return round(best, 1)
    finally:
        torch.set_num_threads(threads)


def native_peak(M: int, K: int, N: int) -> float:
    # PyTorch has no 8-bit product without conversions around it: ours is measured instead
    x, out = torch.randn(M, K), torch.empty(M, N)
    matrix = PackedMatrix(torch.randn(N, K), None, DTYPES["int8"])
    best = 0.0
    for _ in range(20):
        start = time.perf_counter()
        matrix.multiply(x, out, repeats=4)
        best = max(best, 4 * 2e-9 * M * K * N / (time.perf_counter() - start))
    return round(best, 1)


def print_table(results: list[dict[str, Any]], peaks: dict[str, float], options: argparse.Namespace) -> None:
    print(f"{options.threads} threads; a large product reaches, one thread: ", end="")
    print(", ".join(f"{dtype} {peak:.0f} GFLOP/s" for dtype, peak in peaks.items()))
    titles = ("size", "feed", "path", "words/s", "spread", "x loop", "x sorted", "of limit", "difference", "peak MB")
    print(" | ".join(titles))
    for r in results:
        low, high = r["spread"]
        share = "" if r["share_of_limit"] is None else f"{100 * r['share_of_limit']:.0f} %"
        difference = "" if r["difference_to_plain"] is None else f"{r['difference_to_plain']:.1e}"
        cells = (
            r["size"], r["feed"], r["path"], f"{r['words_per_second']:,.0f}", f"{low:,.0f}-{high:,.0f}",
            r["times_loop"], r["times_loop_sorted"], share, difference, r.get("peak_mb", ""),
        )  # fmt: skip
        print(" | ".join(str(cell) for cell in cells))


def machine(threads: int) -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    try:
        level = processor_level().name
    except CannotBuild as error:
        level = str(error)
    load = [round(x, 2) for x in os.getloadavg()]
    return {"cpu": name, "threads": threads, "level": level, "torch": torch.__version__, "load": load}


if __name__ == "__main__":
    main()
