"""Which view of the layers agrees best with human judgements of similarity? Spearman's correlation of cosines.

    python benchmarks/similarity.py words ratings.txt [--model default] [--every 1]
    python benchmarks/similarity.py sentences sts-test.csv [--model default] [--every 1]

`words` reads what `elmo probe similarity` reads, for example SCWS's ratings.txt. `sentences` reads the files of the STS
benchmark: tab-separated lines with the score in column 5 and the sentences in columns 6 and 7. `--every 4` takes every
fourth pair. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import elmo
from elmo.embed.embedder import Embedder
from elmo.embed.pool import join_layers, normalize
from elmo.probes.judgements import read_judgements
from elmo.probes.similarity import spearman
from elmo.text.lines import read_lines


def main() -> None:
    parser = argparse.ArgumentParser(description="Views of the layers and human judgements of similarity.")
    parser.add_argument("kind", choices=["words", "sentences"])
    parser.add_argument("path")
    parser.add_argument("--model", default="default")
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    embedder = elmo.load(args.model, device="cpu")
    read = word_layers if args.kind == "words" else sentence_layers
    scores, vectors = read(embedder, args.path, args.every)  # (N,), (2N, L, D)
    rows = {}
    for name, view in views(vectors):
        unit = normalize(view).reshape(len(scores), 2, -1)
        rows[name] = round(100 * spearman((unit[:, 0] * unit[:, 1]).sum(-1), scores), 2)
        print(f"{name:10} {rows[name]:6.2f}", flush=True)
    print(json.dumps({"benchmark": "similarity", "kind": args.kind, "pairs": len(scores), "spearman": rows}))


def views(layers: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The views of vectors (N, L, D): each layer, their mean, and all of them at unit length, side by side."""
    yield from ((f"layer {number}", layers[:, number]) for number in range(layers.shape[1]))
    yield "average", layers.mean(1)
    yield "concat", join_layers(layers)


def word_layers(embedder: Embedder, path: str, every: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and all layers of the judged words, the mean of their tokens."""
    pairs = read_judgements(path)[::every]
    words = [word for pair in pairs for word in pair.words]
    stream = embedder.stream([word.tokens for word in words], layers="all")
    vectors = [layers[:, word.begin : word.end].mean(1) for word, layers in zip(words, stream, strict=True)]
    return np.array([pair.score for pair in pairs]), np.stack(vectors)


def sentence_layers(embedder: Embedder, path: str, every: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and all layers of the sentences, the mean of their tokens."""
    rows = [line.split("\t") for line in read_lines(path) if line.count("\t") >= 6][::every]
    vectors = embedder.encode([sentence for row in rows for sentence in row[5:7]], layers="all")
    return np.array([float(row[4]) for row in rows]), vectors


if __name__ == "__main__":
    main()
