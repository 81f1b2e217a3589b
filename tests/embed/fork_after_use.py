"""Embeds, forks, and embeds in the child, with every choice of ELMO_KERNELS; a child that hangs ends by SIGALRM."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

import numpy as np
import torch

from elmo.embed.load import load
from elmo.embed.word_cache import WordCache
from elmo.kernels.api import kernels_set_to
from elmo.text.indexer import ByteIndexer

SENTENCES = [f"word{i} of sentence {j} with ten words or so ." for i in range(60) for j in range(3)]


def main() -> None:
    torch.set_num_threads(2)
    for kernels in ("off", "torch", ""):
        for state in ("reset", "warm"):
            with kernels_set_to(kernels):
                embedder = load("tiny-random", device="cpu", state=state)
            vectors = embedder.embed(SENTENCES)

            def embed_again(embedder=embedder, vectors=vectors) -> bool:
                embedder.forget_words()
                # sums of one thread and of two may differ in their order
                return all(
                    np.allclose(a, b, atol=1e-5) for a, b in zip(embedder.embed(SENTENCES), vectors, strict=True)
                )

            print(kernels or "compiled", state, in_child(embed_again))
    print("locked", in_child_of_busy_process())


class BlockingEncoder:
    """A word encoder that waits, with the cache's lock held, until it is told to continue."""

    def __init__(self) -> None:
        self.started, self.may_end = threading.Event(), threading.Event()

    def encode_boundaries(self) -> list[np.ndarray]:
        return [np.zeros(2)] * 2

    def encode_words(self, words: list[str]) -> list[np.ndarray]:
        self.started.set()
        self.may_end.wait()
        return [np.ones(2)] * len(words)

    def stack(self, vectors: list[np.ndarray]) -> torch.Tensor:
        return torch.from_numpy(np.stack(vectors))


def in_child_of_busy_process() -> str:
    encoder = BlockingEncoder()
    cache = WordCache(encoder, ByteIndexer(50), capacity=10)
    thread = threading.Thread(target=cache.table, args=([["busy"]],))
    thread.start()
    encoder.started.wait()

    def look_up() -> bool:
        encoder.may_end = threading.Event()
        encoder.may_end.set()
        return len(cache.table([["word"]])[0]) == 3

    result = in_child(look_up)
    encoder.may_end.set()
    thread.join()
    return result


def in_child(work: Callable[[], bool]) -> str:
    pid = os.fork()
    if pid == 0:
        signal.alarm(1800)  # ends a child that waits for a lock forever
        code = 2
        try:
            code = 0 if work() else 1
        except Exception as error:
            print(type(error).__name__, error, file=sys.stderr)
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {0: "equal", 1: "different", 2: "error"}.get(status, f"ended by signal {-status}")


if __name__ == "__main__":
    main()
