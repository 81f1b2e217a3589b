"""How fast are exported models beside the package itself? Words per second of one sentence and of a batch.

    python benchmarks/export.py [--model english] [--threads 2] [--rounds 5] [--without aoti] [--cpu-time]

Sentences have 25 different words each, drawn at random from a list, and every pass returns all layers. The exports read
ids and encode every word again; the package is measured with its word cache and with an empty one. All runtimes take
turns within one process, so that other load on the machine affects them alike; the figure is the median pass.
On a busy machine, `--cpu-time --threads 1` counts the seconds of the processor instead of the clock. Ends with one JSON
line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import elmo
from elmo.text.batch import make_batch

import torch  # isort: skip

WORDS = 25
BATCHES = (1, 32)
RUNTIMES = ("kernels", "plain", "onnx", "onnx-int8", "torch.export", "aoti")


def main() -> None:
    parser = argparse.ArgumentParser(description="Exported models beside the package's own kernels.")
    parser.add_argument("--model", default="english")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without", nargs="*", default=[], choices=RUNTIMES)
    parser.add_argument("--cpu-time", action="store_true")
    args = parser.parse_args()
    clock = time.process_time if args.cpu_time else time.perf_counter
    torch.set_num_threads(args.threads)
    embedder = elmo.load(args.model, device="cpu")
    sentences = make_sentences(max(BATCHES))
    with tempfile.TemporaryDirectory() as folder:
        runs = make_runs(args.model, embedder, Path(folder), args.threads, set(RUNTIMES) - set(args.without))
        rows: dict[str, list[int]] = {name: [] for name in runs}
        for count in BATCHES:
            for name, seconds in measure_all(runs, sentences[:count], args.rounds, clock).items():
                rows[name].append(round(count * WORDS / statistics.median(seconds)))
    print(f"{'':28}" + "".join(f"{f'{count} x {WORDS} words':>16}" for count in BATCHES) + "   words per second")
    for name, speeds in rows.items():
        print(f"{name:28}" + "".join(f"{speed:16,}" for speed in speeds))
    print(
        json.dumps(
            {
                "benchmark": "export",
                "model": args.model,
                "threads": args.threads,
                "cpu_time": args.cpu_time,
                "rows": rows,
            }
        )
    )


def make_sentences(count: int) -> list[list[str]]:
    """Sentences of random lower-case words of 1 to 10 letters."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlu"))
    return [["".join(rng.choice(letters, rng.integers(1, 11))) for _ in range(WORDS)] for _ in range(count)]


def make_runs(
    model: str, embedder: elmo.Embedder, folder: Path, threads: int, names: set[str]
) -> dict[str, Callable[[list[list[str]]], object]]:
    """Name of a runtime -> a function that computes all layers of sentences with it."""
    runs: dict[str, Callable[[list[list[str]]], object]] = {}
    if "kernels" in names:
        runs["package, words cached"] = embedder.layers
        runs["package, no word cached"] = lambda sentences: (embedder.forget_words(), embedder.layers(sentences))
    if "plain" in names:
        from elmo.integrations.export_check import run_plain

        network = embedder.model
        runs["plain PyTorch"] = lambda sentences: run_plain(network, make_batch(sentences, embedder.indexer).ids)
    for storage in ("float32", "int8"):
        name = "onnx" if storage == "float32" else "onnx-int8"
        if name in names:
            runs[f"onnxruntime, {storage}"] = onnx_run(model, embedder, folder / f"{name}.onnx", storage, threads)
    for name in ("torch.export", "aoti"):
        if name in names:
            from elmo.integrations.torch_export import export_torch, load_program

            path = folder / f"{name.replace('.', '_')}.pt2"
            export_torch(model, path, aoti=name == "aoti")
            program = load_program(path, aoti=name == "aoti")
            runs[name] = lambda sentences, program=program: program(make_batch(sentences, embedder.indexer).ids)
    return runs


def onnx_run(
    model: str, embedder: elmo.Embedder, path: Path, storage: str, threads: int
) -> Callable[[list[list[str]]], object]:
    import onnxruntime

    from elmo.integrations.onnx.export import export_onnx

    export_onnx(model, path, storage=storage)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda sentences: session.run(["layers"], {"ids": make_batch(sentences, embedder.indexer).ids})


def measure_all(
    runs: dict[str, Callable[[list[list[str]]], object]],
    sentences: list[list[str]],
    rounds: int,
    clock: Callable[[], float],
) -> dict[str, list[float]]:
    """Seconds of each pass of each runtime, in turns, after one pass that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            start = clock()
            run(sentences)
            if number:
                seconds[name].append(clock() - start)
    return seconds


if __name__ == "__main__":
    main()
