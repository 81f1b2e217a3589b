"""The layers of a frozen biLM for a task's sentences: computed once, kept in memory or on disk, given out by batch.

Kept as float16 (N, L+1, D), N tokens one after the other. On disk a file's name is made of the model's and the text's
sha256, so that any number of seeds, settings and tasks share one pass over the same text with the same model.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from elmo.embed.embedder import Embedder
from elmo.embed.identity import model_identity
from elmo.embed.kept import kept_array
from elmo.errors import ConfigError, DataError
from elmo.files import cache_home
from elmo.progress import Progress

log = logging.getLogger(__name__)

Sentence = tuple[str, ...]


class LayerSource:
    """All layers of any sentence; those prepared beforehand without computing. `sha256`: as `model_sha256` gives it."""

    def __init__(
        self, embedder: Embedder, sha256: str, *, cache: str = "memory", cache_dir: str | Path | None = None
    ) -> None:
        self.embedder, self.cache = embedder, cache
        self.num_layers, self.dim = embedder.num_layers, embedder.dim
        self._where: dict[Sentence, np.ndarray] = {}  # views (n, L+1, D) into the blocks
        self._folder = _cache_folder(cache_dir) if cache == "disk" else None
        self._sha = sha256

    def prepare(self, sentences: Iterable[Sequence[str]], *, show: bool | None = None) -> None:
        """Embeds each distinct sentence once, or finds an earlier pass on disk. Does nothing where cache is "off"."""
        if self.cache == "off":
            return
        distinct = list(dict.fromkeys(tuple(sentence) for sentence in sentences if len(sentence)))
        if not distinct:
            return
        if self._folder is not None:
            block = self._on_disk(self._folder, distinct, show)
        else:
            block = np.empty(self._shape(distinct), dtype=np.float16)  # (N, L+1, D)
            self._fill(block, distinct, show)
        end = 0
        for sentence in distinct:
            begin, end = end, end + len(sentence)
            self._where.setdefault(sentence, block[begin:end])

    def layers(self, sentences: Sequence[Sequence[str]], T: int) -> Tensor:
        """(L+1, B, T, D) float16, zero beyond each sentence's end."""
        padded = np.zeros((len(sentences), T, self.num_layers, self.dim), dtype=np.float16)  # (B, T, L+1, D)
        keys = [tuple(sentence) for sentence in sentences]
        missing = list(dict.fromkeys(key for key in keys if key not in self._where and key))
        fresh = dict(zip(missing, self.embedder.layers([list(key) for key in missing]), strict=True)) if missing else {}
        for row, key in enumerate(keys):
            if key in self._where:
                padded[row, : len(key)] = self._where[key]
            elif key:
                padded[row, : len(key)] = fresh[key].transpose(1, 0, 2)
        return torch.from_numpy(padded).permute(2, 0, 1, 3)  # (L+1, B, T, D)

    def _shape(self, sentences: list[Sentence]) -> tuple[int, int, int]:
        return sum(map(len, sentences)), self.num_layers, self.dim

    def _fill(self, block: np.ndarray, sentences: list[Sentence], show: bool | None) -> None:
        end = 0
        with Progress("embedding", len(block), show=show) as progress:
            for layers in self.embedder.stream(sentences, layers="all"):  # (L+1, n, D)
                begin, end = end, end + layers.shape[1]
                block[begin:end] = layers.transpose(1, 0, 2)
                progress.advance(end - begin)
        if not np.isfinite(block).all():
            raise DataError("The biLM's vectors are too large for float16.", "Set elmo.cache = 'off'.")

    def _on_disk(self, folder: Path, sentences: list[Sentence], show: bool | None) -> np.ndarray:
        path = folder / f"{self._sha[:16]}-{text_sha256(sentences)[:16]}.npy"
        shape = self._shape(sentences)
        if not path.exists():
            log.info("layers of %d tokens go to %s", shape[0], path)
        return kept_array(path, shape, lambda block: self._fill(block, sentences, show))


def model_sha256(embedder: Embedder) -> str:
    """Of the model, the state policy and the precision: what a sentence's vectors depend on."""
    return hashlib.sha256(f"{model_identity(embedder)} {embedder.state} {embedder.dtype}".encode()).hexdigest()


def text_sha256(sentences: Iterable[Sequence[str]]) -> str:
    digest = hashlib.sha256()
    for sentence in sentences:
        digest.update(json.dumps(list(sentence)).encode() + b"\n")
    return digest.hexdigest()


def _cache_folder(cache_dir: str | Path | None) -> Path:
    if cache_dir is not None:
        return Path(cache_dir)
    home = cache_home()
    if home is None:
        raise ConfigError("There is no home folder to keep layers in.", "Set elmo.cache_dir, or elmo.cache = 'memory'.")
    return home / "layers"
