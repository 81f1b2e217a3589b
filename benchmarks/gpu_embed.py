"""How many words per second does embedding process on this GPU, from token lists to arrays on the host?

    python benchmarks/gpu_embed.py
    python benchmarks/gpu_embed.py --text tokens.txt --sizes small original shipped --dtypes float16 --rounds 5

Two results ("way"): `pooled` is `Embedder.encode`, one vector per sentence (the mean of the averaged layers), and
`all layers` is `Embedder.layers`, three vectors per word. Variants ("path"): `bulk` uses the CUDA kernels, with the
word cache empty at the start of every call (cold) or filled by the call before (warm); `plain` is the same package with
ELMO_KERNELS=off, cold, on fewer sentences. All variants take turns in one process; speeds are medians. The difference
is the largest one between all layers of the two variants in the same dtype, and of each to plain float32.

Sizes small, medium and original have random weights, because speed does not depend on them. `shipped` is the model in
the package. `--text` is a file of tokenised sentences, one per line; without it, artificial words are drawn by Zipf's
law. Host alone: the work of the host for `pooled` (checks, word numbers, packing) without a GPU.
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
        sys.exit(f"There is no kernel for {options.dtypes[0]} on {options.device} here; the log says why.")
    sentences = read_text(options)
    machine = {
        "device": torch.cuda.get_device_name(options.device),
        "torch": torch.__version__, "sentences": len(sentences), "words": count_words(sentences),
        "types": len({token for sentence in sentences for token in sentence}),
        "host_words_per_s": measure_host(sentences),
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
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds after the warm-up")
    parser.add_argument("--words", type=int, default=1_000_000, help="number of words, of the text or artificial")
    parser.add_argument("--plain-words", type=int, default=50_000, help="number of words for the plain variant")
    parser.add_argument("--layer-words", type=int, default=300_000, help="number of words for all layers")
    parser.add_argument("--text", help="file of tokenised sentences, one per line")
    return parser.parse_args()


def read_text(options: argparse.Namespace) -> Sentences:
    if options.text:
        lines = Path(options.text).read_text(encoding="utf-8").splitlines()
        return first_sentences([line.split() for line in lines], options.words)
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    vocabulary = ["".join(rng.choice(letters, size)) for size in np.clip(rng.poisson(7, 100_000), 1, 30)]
    frequencies = 1 / np.arange(1, len(vocabulary) + 1)
    ids = rng.choice(len(vocabulary), options.words, p=frequencies / frequencies.sum())
    ends = np.cumsum(np.clip(rng.lognormal(3.0, 0.6, options.words // 10), 1, 120).astype(int))
    return [[vocabulary[i] for i in sentence] for sentence in np.split(ids, ends[ends < options.words])]


def first_sentences(sentences: Sentences, num_words: int) -> Sentences:
    """The first sentences, as many as are needed for a number of words."""
    ends = np.cumsum([len(sentence) for sentence in sentences])
    return sentences[: int(np.searchsorted(ends, num_words)) + 1]


def count_words(sentences: Sentences) -> int:
    return sum(map(len, sentences))


def measure_host(sentences: Sentences) -> int:
    """Words per second of the host's work alone."""
    split, seconds = tokenizer("default"), []
    for _ in range(3):
        start = time.perf_counter()
        normalized, rows = normalize_input(sentences, split), WordRows(ByteIndexer())
        for window in windows_of(normalized.sentences, WINDOW_TOKENS):
            lengths = np.fromiter(map(len, window), dtype=np.int64, count=len(window))
            rows.number(window, lengths)
            pack(lengths + 2 * (lengths > 0), 100)
        seconds.append(time.perf_counter() - start)
    return int(count_words(sentences) / statistics.median(seconds))


def make_embedder(size: str, dtype: str, device: str, kernels: str) -> Embedder:
    os.environ["ELMO_KERNELS"] = kernels
    if size == "shipped":
        return elmo.load(device=device, dtype=dtype)
    torch.manual_seed(0)
    return Embedder(BiLM(PRESETS[size]), ByteIndexer(), device=device, dtype=dtype)


def measure(size: str, dtype: str, sentences: Sentences, options: argparse.Namespace) -> list[dict]:
    bulk, plain = (make_embedder(size, dtype, options.device, kernels) for kernels in ("", "off"))
    plain_float32 = make_embedder(size, "float32", options.device, "off")
    plain_sentences = first_sentences(sentences, options.plain_words)
    layer_sentences = first_sentences(sentences, options.layer_words)

    def cold_speed(embedder: Embedder, embed: Callable[[Sentences], object], sentences: Sentences) -> float:
        embedder.forget_words()
        return measure_speed(embed, sentences)

    variants = {
        ("pooled", "bulk cold"): lambda: cold_speed(bulk, bulk.encode, sentences),
        ("pooled", "bulk warm"): lambda: measure_speed(bulk.encode, sentences),
        ("pooled", "plain"): lambda: without_kernels(lambda: cold_speed(plain, plain.encode, plain_sentences)),
        ("all layers", "bulk cold"): lambda: cold_speed(bulk, bulk.layers, layer_sentences),
        ("all layers", "bulk warm"): lambda: measure_speed(bulk.layers, layer_sentences),
        ("all layers", "plain"): lambda: without_kernels(lambda: cold_speed(plain, plain.layers, plain_sentences)),
    }
    speeds: dict[tuple[str, str], list[float]] = {name: [] for name in variants}
    for number in range(options.rounds + 1):
        for name, run in variants.items():
            speed = run()
            if number:  # the first round compiles kernels and captures CUDA graphs
                speeds[name].append(speed)
    differences = compare(bulk, plain, plain_float32, first_sentences(sentences, 5000))
    results = []
    for (way, variant), values in speeds.items():
        difference = differences["plain" if variant == "plain" else "bulk"]
        results.append({
            "size": size, "dtype": dtype, "way": way, "path": variant, "words_per_s": statistics.median(values),
            "lowest": min(values), "highest": max(values), **difference,
        })  # fmt: skip
        numbers = f"{statistics.median(values):12,.0f} {min(values):12,.0f} {max(values):12,.0f}"
        difference_text = ", ".join(f"{name} {value:.1e}" for name, value in difference.items())
        print(f"{size:9} {dtype:9} {way:11} {variant:11} {numbers}  {difference_text}")
    torch.cuda.empty_cache()
    return results


def without_kernels(run: Callable[[], float]) -> float:
    """Runs with ELMO_KERNELS=off, because the character network looks for its kernel at every call."""
    before, os.environ["ELMO_KERNELS"] = os.environ["ELMO_KERNELS"], "off"
    try:
        return run()
    finally:
        os.environ["ELMO_KERNELS"] = before


def measure_speed(embed: Callable[[Sentences], object], sentences: Sentences) -> float:
    """Words per second. The result is on the host, so no GPU work is pending at the end."""
    start = time.perf_counter()
    embed(sentences)
    return count_words(sentences) / (time.perf_counter() - start)


def compare(
    bulk: Embedder, plain: Embedder, plain_float32: Embedder, sentences: Sentences
) -> dict[str, dict[str, float]]:
    os.environ["ELMO_KERNELS"] = ""
    bulk_layers = bulk.layers(sentences)
    os.environ["ELMO_KERNELS"] = "off"
    plain_layers, float32_layers = plain.layers(sentences), plain_float32.layers(sentences)
    os.environ["ELMO_KERNELS"] = ""
    return {
        "bulk": {
            "to plain": max_difference(bulk_layers, plain_layers),
            "to plain float32": max_difference(bulk_layers, float32_layers),
        },
        "plain": {"to plain float32": max_difference(plain_layers, float32_layers)},
    }


def max_difference(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    return max(
        float(np.abs(x.astype(np.float32) - y.astype(np.float32)).max(initial=0)) for x, y in zip(a, b, strict=True)
    )


if __name__ == "__main__":
    main()
