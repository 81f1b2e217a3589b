"""Which model a worker loads, and the start of a worker process; importing this needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmo.embed.embedder import Embedder

LoadEmbedder = Callable[[], "Embedder"]  # it is sent to the worker process, so it must be picklable


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A model as the options of `elmo serve` name it; calling it, in the worker, loads the model."""

    model: str = "default"
    device: str = "auto"
    dtype: str = "float32"
    tokenizer: str | None = None  # None: the model's own

    def __call__(self) -> Embedder:
        from elmo.embed.load import load

        embedder = load(self.model, device=self.device, dtype=self.dtype, tokenizer=self.tokenizer)
        embedder.name = Path(self.model).name or self.model  # clients see it: no path of this machine
        return embedder


def run_worker(requests: Connection, heartbeat: Connection, load_embedder: LoadEmbedder, num_threads: int) -> None:
    """The main function of a worker process."""
    from elmo.serve.worker import worker_main

    worker_main(requests, heartbeat, load_embedder, num_threads)
