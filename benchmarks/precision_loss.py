"""What do bfloat16 and int8 cost and save on a trained model? Cosines to float32, perplexity, words per second.

    python benchmarks/precision_loss.py text.txt [--model default] [--sentences 600]

The text has one tokenised sentence per line. Cosines are between every token's vector and its float32 vector, by layer;
perplexity uses the full softmax, each sentence on its own; words per second is the median of three passes with all
words cached. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import elmo
from elmo.embed.lm import LanguageModel


def main() -> None:
    parser = argparse.ArgumentParser(description="The loss of lower precisions on a trained model.")
    parser.add_argument("text")
    parser.add_argument("--model", default="default")
    parser.add_argument("--sentences", type=int, default=600)
    args = parser.parse_args()
    lines = Path(args.text).read_text(encoding="utf-8").splitlines()
    sentences = [line.split() for line in lines if line.strip()]
    sentences = sentences[:: max(1, len(sentences) // args.sentences)][: args.sentences]
    num_words = sum(map(len, sentences))
    float32_layers: list[np.ndarray] = []
    rows = []
    for dtype in ("float32", "bfloat16", "int8"):
        embedder = elmo.load(args.model, device="cpu", dtype=dtype)
        layers = embedder.layers(sentences)  # (L, n, D) each
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            embedder.layers(sentences)
            seconds.append(time.perf_counter() - start)
        float32_layers = float32_layers or layers
        cosines = [cosine(a, b) for a, b in zip(layers, float32_layers, strict=True)]  # (L, n) each
        all_cosines = np.concatenate(cosines, axis=1)  # (L, N)
        perplexity = LanguageModel(embedder).perplexity(sentences)
        row = {
            "dtype": dtype,
            "words_per_second": round(num_words / statistics.median(seconds)),
            "mean_cosine": [round(float(v), 5) for v in all_cosines.mean(axis=1)],
            "lowest_cosine": [round(float(v), 4) for v in all_cosines.min(axis=1)],
            "perplexity": round(perplexity.mean, 3),
        }
        rows.append(row)
        print(row, flush=True)
    print(json.dumps({"benchmark": "precision_loss", "model": args.model, "words": num_words, "rows": rows}))


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


if __name__ == "__main__":
    main()
