"""A plain FastAPI server of all-MiniLM-L6's architecture with random weights, to compare `elmo serve` with.

    python benchmarks/serve_minilm.py --port 8001 --threads 1

It is what most people write first: a function that encodes the texts of one request, a lock, JSON out. The network has
6 layers of width 384 with 12 heads and a feed-forward width of 1536, a vocabulary of 30,522 and 512 positions (22.7M
parameters). Random weights cost the same time as trained ones. Words are hashed to ids instead of split into pieces, so
that it reads as many tokens as there are words; real word pieces are about 1.3 times as many.
"""

from __future__ import annotations

import argparse
import threading
import zlib
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from torch import Tensor, nn

WIDTH, HEADS, LAYERS, INNER, VOCAB, POSITIONS = 384, 12, 6, 1536, 30_522, 512


class MiniLM(nn.Module):
    """The encoder with mean pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(self.words(ids) + self.positions(torch.arange(ids.shape[1])))  # (B, T, D)
        x = self.layers(x, src_key_padding_mask=~mask) * mask[..., None]  # (B, T, D)
        return x.sum(1) / mask.sum(1, keepdim=True)  # (B, D)


def make_app() -> FastAPI:
    """The app, with one route."""
    app, model, lock = FastAPI(), MiniLM().eval(), threading.Lock()

    @app.post("/v1/embeddings")
    def embeddings(body: dict[str, Any]) -> dict[str, Any]:
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        rows = [[zlib.crc32(word.encode()) % VOCAB for word in text.split()[: POSITIONS - 2]] for text in texts]
        length = max(map(len, rows)) + 2
        ids, mask = torch.zeros(len(rows), length, dtype=torch.long), torch.zeros(len(rows), length, dtype=torch.bool)
        for i, row in enumerate(rows):
            ids[i, : len(row) + 2] = torch.tensor([101, *row, 102])
            mask[i, : len(row) + 2] = True
        with lock, torch.inference_mode():
            vectors = model(ids, mask)
        return {"data": [{"index": i, "embedding": vector} for i, vector in enumerate(vectors.tolist())]}

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description="MiniLM's architecture in a plain FastAPI server.")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    uvicorn.run(make_app(), host="127.0.0.1", port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
