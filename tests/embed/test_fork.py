"""Embedding in a forked child, and in threads that discard the cached words meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from elmo.embed.load import load
from elmo.embed.word_cache import WordCache
from elmo.text.indexer import ByteIndexer

HERE = Path(__file__).resolve().parent


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_that_is_forked_after_embedding_can_embed() -> None:
    variables = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-W", "ignore", str(HERE / "fork_after_use.py")]
    variables["PYTHONPATH"] = str(HERE.parents[1])
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, done.stderr
    runs = [f"{kernels} {state} equal" for kernels in ("off", "torch", "compiled") for state in ("reset", "warm")]
    assert done.stdout.splitlines() == [*runs, "locked equal"]


class ClearingEncoder:
    """A word encoder during which another thread discards the cache's words."""

    cache: WordCache[np.ndarray]

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def encode_boundaries(self) -> list[np.ndarray]:
        return [np.zeros(2)] * 2

    def encode_words(self, words: list[str]) -> list[np.ndarray]:
        self.threads.append(threading.Thread(target=self.cache.clear))
        self.threads[-1].start()
        self.threads[-1].join(timeout=0.2)  # it may wait until the lookup has ended
        return [np.ones(2)] * len(words)

    def stack(self, vectors: list[np.ndarray]) -> torch.Tensor:
        return torch.from_numpy(np.stack(vectors))


def test_words_discarded_during_a_lookup_are_not_missing_in_it() -> None:
    encoder = ClearingEncoder()
    encoder.cache = cache = WordCache(encoder, ByteIndexer(50), capacity=10)
    for sentence in (["first"], ["first", "second"], ["second", "third"]):
        table, rows = cache.table([sentence])
        assert table.shape == (2 + len(sentence), 2)
        assert list(rows) == sentence
    for thread in encoder.threads:
        thread.join()
    assert len(cache) == 0


def test_threads_may_embed_while_others_forget_words() -> None:
    embedder = load("tiny-random", device="cpu")
    sentences = [[f"w{i}", f"w{i + 1}", "."] for i in range(20)]
    expected = embedder.embed(sentences)
    failures: list[str] = []

    def embed() -> None:
        for _ in range(100):
            vectors = embedder.embed(sentences)
            if not all(map(np.array_equal, vectors, expected)):
                failures.append("different vectors")

    def forget() -> None:
        for _ in range(2000):
            embedder.forget_words()

    def guarded(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (embed, embed, forget, forget)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
