"""How many words a second does embedding take in on this GPU, from lists of tokens to arrays on the host?

    python benchmarks/gpu_embed.py
    python benchmarks/gpu_embed.py --text tokens.txt --sizes small original shipped --dtypes float16 --rounds 5

Two ways: `pooled` is `Embedder.encode`, one vector a sentence (the mean of the averaged layers), and `all layers` is
`Embedder.layers`, three vectors a word. Paths: `bulk`, the CUDA twin, with the word memory empty at the start of every
call (cold) or filled by the call before (warm); `plain`, the same package with ELMO_KERNELS=off, cold, on fewer
sentences. All paths take turns in one process; medians. The difference is the largest between the two paths' numbers
of all layers, each in its own dtype, and that of either to the plain path in float32.

Sizes small, medium and original have random weights: speed does not depend on them. `shipped` is the model in the
package. `--text` has a tokenised sentence a line; without it, words are made up and drawn by Zipf's law.
Host alone: what the host does for `pooled` (checking, numbering words, packing) without any GPU.
Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

import elmo
from elmo.embed.embedder import Embedder
from elmo.embed.run.cuda import WINDOW_TOKENS
from elmo.embed.run.word_rows import WordRows
from elmo.kernels.api import find_kernel
from elmo.kernels.packing import pack
from elmo.model.bilm import BiLM
from elmo.model.config import PRESETS
from elmo.text.batch import windows_of
from elmo.text.indexer import ByteIndexer
from elmo.text.inputs import normalize_input
from elmo.text.tokenize import tokenizer

Sentences = list[list[str]]


def main() -> None:
    options = read_options()
    if find_kernel("bilm_bulk", options.device, options.dtypes[0]) is None:
        sys.exit(f"There is no twin for {options.dtypes[0]} on {options.device} here; the log says why.")
    sentences = read_text(options)
    machine = {
        "device": torch.cuda.get_device_name(options.device),
        "torch": torch.__version__, "sentences": len(sentences), "words": count(sentences),
        "types": len({token for sentence in sentences for token in sentence}),
        "host_words_per_s": host_alone(sentences),
    }  # fmt: skip
    print(
        ", ".join(
            f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in machine.items()
        )
    )
    print(f"{'size':9} {'dtype':9} {'way':11} {'path':11} {'words/s':>12} {'lowest':>12} {'highest':>12}  difference")
    results = []
    for size in options.sizes:
        for dtype in options.dtypes:
            results += measure(size, dtype, sentences, options)
    print(json.dumps({"machine": machine, "results": results}))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["small", "medium", "original", "shipped"])
    parser.add_argument("--dtypes", nargs="+", default=["float16", "bfloat16", "float32"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--words", type=int, default=1_000_000, help="how many, of the text or made up")
    parser.add_argument("--plain-words", type=int, default=50_000, help="how many of them for the plain path")
    parser.add_argument("--layer-words", type=int, default=300_000, help="how many of them for all layers")
    parser.add_argument("--text", help="tokenised sentences, one a line")
    return parser.parse_args()


def read_text(options: argparse.Namespace) -> Sentences:
    if options.text:
        lines = Path(options.text).read_text(encoding="utf-8").splitlines()
        return first([line.split() for line in lines], options.words)
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    names = ["".join(rng.choice(letters, size)) for size in np.clip(rng.poisson(7, 100_000), 1, 30)]
    share = 1 / np.arange(1, len(names) + 1)
    drawn = rng.choice(len(names), options.words, p=share / share.sum())
    ends = np.cumsum(np.clip(rng.lognormal(3.0, 0.6, options.words // 10), 1, 120).astype(int))
    pieces = np.split(drawn, ends[ends < options.words])
    return [[names[i] for i in piece] for piece in pieces]


def first(sentences: Sentences, num_words: int) -> Sentences:
    """As many sentences as have so many words."""
    ends = np.cumsum([len(sentence) for sentence in sentences])
    return sentences[: int(np.searchsorted(ends, num_words)) + 1]


def count(sentences: Sentences) -> int:
    return sum(map(len, sentences))


def host_alone(sentences: Sentences) -> int:
    split, seconds = tokenizer("default"), []
    for _ in range(3):
        start = time.perf_counter()
        given, rows = normalize_input(sentences, split), WordRows(ByteIndexer())
        for window in windows_of(given.sentences, WINDOW_TOKENS):
            lengths = np.fromiter(map(len, window), dtype=np.int64, count=len(window))
            rows.number(window, lengths)
            pack(lengths + 2 * (lengths > 0), 100)
        seconds.append(time.perf_counter() - start)
    return int(count(sentences) / statistics.median(seconds))


def make(size: str, dtype: str, device: str, kernels: str) -> Embedder:
    os.environ["ELMO_KERNELS"] = kernels
    if size == "shipped":
        return elmo.load(device=device, dtype=dtype)
    torch.manual_seed(0)
    return Embedder(BiLM(PRESETS[size]), ByteIndexer(), device=device, dtype=dtype)


def measure(size: str, dtype: str, sentences: Sentences, options: argparse.Namespace) -> list[dict]:
    bulk, plain = make(size, dtype, options.device, ""), make(size, dtype, options.device, "off")
    exact = make(size, "float32", options.device, "off")
    few, some = first(sentences, options.plain_words), first(sentences, options.layer_words)

    def cold(embedder: Embedder, run: Callable[[Sentences], object], given: Sentences) -> float:
        embedder.forget_words()
        return timed(run, given)

    paths = {
        ("pooled", "bulk cold"): lambda: cold(bulk, bulk.encode, sentences),
        ("pooled", "bulk warm"): lambda: timed(bulk.encode, sentences),
        ("pooled", "plain"): lambda: off(lambda: cold(plain, plain.encode, few)),
        ("all layers", "bulk cold"): lambda: cold(bulk, bulk.layers, some),
        ("all layers", "bulk warm"): lambda: timed(bulk.layers, some),
        ("all layers", "plain"): lambda: off(lambda: cold(plain, plain.layers, few)),
    }
    speeds: dict[tuple[str, str], list[float]] = {name: [] for name in paths}
    for turn in range(options.rounds + 1):
        for name, run in paths.items():
            speed = run()
            if turn:  # kernels are compiled and steps recorded in the first
                speeds[name].append(speed)
    differences = compare(bulk, plain, exact, first(sentences, 5000))
    results = []
    for (way, path), values in speeds.items():
        mine = differences["plain" if path == "plain" else "bulk"]
        results.append({
            "size": size, "dtype": dtype, "way": way, "path": path, "words_per_s": statistics.median(values),
            "lowest": min(values), "highest": max(values), **mine,
        })  # fmt: skip
        numbers = f"{statistics.median(values):12,.0f} {min(values):12,.0f} {max(values):12,.0f}"
        shown = ", ".join(f"{name} {value:.1e}" for name, value in mine.items())
        print(f"{size:9} {dtype:9} {way:11} {path:11} {numbers}  {shown}")
    torch.cuda.empty_cache()
    return results


def off(run: Callable[[], float]) -> float:
    """Without any twin: the character network looks for its own at every call."""
    before, os.environ["ELMO_KERNELS"] = os.environ["ELMO_KERNELS"], "off"
    try:
        return run()
    finally:
        os.environ["ELMO_KERNELS"] = before


def timed(run: Callable[[Sentences], object], sentences: Sentences) -> float:
    """Words a second; what comes back lies on the host, so nothing is left to wait for."""
    start = time.perf_counter()
    run(sentences)
    return count(sentences) / (time.perf_counter() - start)


def compare(bulk: Embedder, plain: Embedder, exact: Embedder, sentences: Sentences) -> dict[str, dict[str, float]]:
    os.environ["ELMO_KERNELS"] = ""
    found = bulk.layers(sentences)
    os.environ["ELMO_KERNELS"] = "off"
    twin, truth = plain.layers(sentences), exact.layers(sentences)
    os.environ["ELMO_KERNELS"] = ""
    return {
        "bulk": {"to plain": largest(found, twin), "to plain float32": largest(found, truth)},
        "plain": {"to plain float32": largest(twin, truth)},
    }


def largest(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    return max(
        float(np.abs(x.astype(np.float32) - y.astype(np.float32)).max(initial=0)) for x, y in zip(a, b, strict=True)
    )


if __name__ == "__main__":
    main()
