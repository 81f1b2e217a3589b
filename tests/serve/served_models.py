"""Embedders for server tests: a tiny model with a softmax, and one that fails on purpose at certain words.

POISON raises an error, CRASH kills the process, WEDGE stops it without ending it, NAN gives numbers that are not
finite, and `LATCH:path` waits until the file exists.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from models_with_head import tiny_with_head

from elmo.embed.embedder import Embedder
from elmo.embed.load import make_embedder


def load_tiny() -> Embedder:
    """tiny-random with a softmax of eleven words."""
    return make_embedder(tiny_with_head(), name="tiny", device="cpu")


class FaultyEmbedder(Embedder):
    """An embedder with a fault at certain words."""

    def stream(self, sentences: Iterable[Sequence[str]], **options: Any) -> Iterator[Any]:
        sentences = [list(sentence) for sentence in sentences]
        for sentence in sentences:
            for token in sentence:
                _fail(token)
        for sentence, vectors in zip(sentences, super().stream(sentences, **options), strict=True):
            yield vectors * float("nan") if "NAN" in sentence else vectors


def load_faulty() -> Embedder:
    """The tiny model with faults."""
    tiny = load_tiny()
    return FaultyEmbedder(tiny.model, tiny.indexer, vocab=tiny.vocab, name="faulty")


def _fail(token: str) -> None:
    if token == "POISON":
        raise ValueError("a secret sentence")
    if token == "CRASH":
        os.kill(os.getpid(), signal.SIGKILL)
    if token == "WEDGE":
        os.kill(os.getpid(), signal.SIGSTOP)
    if token.startswith("LATCH:"):
        while not os.path.exists(token.removeprefix("LATCH:")):
            time.sleep(0.01)
