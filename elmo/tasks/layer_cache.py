"""A cache of a frozen biLM's layers for the sentences of a task, in memory, on disk, or on the device.

Layers are stored as float16 (N, L+1, D), N tokens one after the other. A file on disk is named by a checksum of model
and text, so that all seeds, settings and tasks share one pass over the same text with the same model. On CUDA the
layers are copied to the device once, if they fit, and a batch is one lookup there.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from elmo.embed.disk_cache import cache_path, cached_array
from elmo.embed.embedder import Embedder
from elmo.errors import ConfigError, DataError
from elmo.files import cache_home
from elmo.progress import Progress

log = logging.getLogger(__name__)

Sentence = tuple[str, ...]
MAX_MEMORY_SHARE = 0.25  # of the device's free memory that layers may take; other runs may need the rest
BATCH_LIMITS = {"cpu": (256, 8192), "cuda": (2048, 32_768)}  # rows and tokens; on CUDA more rows take no longer


class LayerSource:
    """All layers of any sentence; prepared sentences are looked up. `sha256` is the embedder's `vectors_checksum`."""

    def __init__(
        self, embedder: Embedder, sha256: str, *, cache: str = "memory", cache_dir: str | Path | None = None
    ) -> None:
        self.embedder, self.cache = embedder, cache
        self.num_layers, self.dim = embedder.num_layers, embedder.dim
        self._layers: dict[Sentence, np.ndarray] = {}  # views (n, L+1, D) into the blocks
        self._blocks: list[np.ndarray] = []
        self._rows: dict[Sentence, int] = {}  # sentence -> its first row in the table
        self._table: Tensor | None = None  # (1 + N, L+1, D) on the device; row 0 is zero
        self._num_rows = 1
        self._folder = _cache_folder(cache_dir) if cache == "disk" else None
        self._sha256 = sha256

    def prepare(self, sentences: Iterable[Sequence[str]], *, show: bool | None = None) -> None:
        """Embeds each distinct sentence once, or opens the file of an earlier pass. Does nothing if cache is "off"."""
        if self.cache == "off":
            return
        distinct = list(dict.fromkeys(tuple(sentence) for sentence in sentences if len(sentence)))
        if not distinct:
            return
        if self._folder is not None:
            block = self._block_on_disk(self._folder, distinct, show)
        else:
            block = np.empty(self._shape(distinct), dtype=np.float16)  # (N, L+1, D)
            self._fill(block, distinct, show)
        end = 0
        for sentence in distinct:
            begin, end = end, end + len(sentence)
            self._layers.setdefault(sentence, block[begin:end])
            self._rows.setdefault(sentence, self._num_rows + begin)
        self._blocks.append(block)
        self._num_rows += len(block)

    def copy_to_device(self, device: torch.device) -> None:
        """Copies the prepared layers to the device, if they fit; a batch is then a lookup there."""
        num_bytes = 2 * self._num_rows * self.num_layers * self.dim
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else math.inf
        if num_bytes > MAX_MEMORY_SHARE * free:
            log.warning(
                "layers (%.1f GB) stay in main memory, the device has %.1f GB free", num_bytes / 1e9, free / 1e9
            )
            return
        table = torch.zeros(self._num_rows, self.num_layers, self.dim, dtype=torch.float16, device=device)
        begin = 1
        for block in self._blocks:
            for start in range(0, len(block), 1 << 16):
                piece = torch.from_numpy(np.array(block[start : start + (1 << 16)]))
                table[begin + start : begin + start + len(piece)] = piece.to(device)
            begin += len(block)
        self._table = table

    def layers(self, sentences: Sequence[Sequence[str]], T: int) -> Tensor:
        """(L+1, B, T, D) float16, zero beyond each sentence's end."""
        return self.joined([[sentence] for sentence in sentences], T)

    def joined(self, rows: Sequence[Sequence[Sequence[str]]], T: int) -> Tensor:
        """(L+1, B, T, D) float16 of rows of several sentences, zero beyond their end.

        Each sentence is embedded on its own; a row holds its sentences' layers one after the other.
        """
        keys = [[tuple(sentence) for sentence in row if len(sentence)] for row in rows]
        if self._table is not None and all(key in self._rows for row in keys for key in row):
            return self._look_up(self._table, keys, T)
        missing = list(dict.fromkeys(key for row in keys for key in row if key not in self._layers))
        fresh = dict(zip(missing, self.embedder.layers([list(key) for key in missing]), strict=True)) if missing else {}
        padded = np.zeros((len(rows), T, self.num_layers, self.dim), dtype=np.float16)  # (B, T, L+1, D)
        for number, row in enumerate(keys):
            end = 0
            for key in row:
                begin, end = end, end + len(key)
                padded[number, begin:end] = self._layers[key] if key in self._layers else fresh[key].transpose(1, 0, 2)
        return torch.from_numpy(padded).permute(2, 0, 1, 3)  # (L+1, B, T, D)

    def _look_up(self, table: Tensor, keys: Sequence[Sequence[Sentence]], T: int) -> Tensor:
        rows = np.zeros((len(keys), T), dtype=np.int64)  # (B, T)
        for number, row in enumerate(keys):
            end = 0
            for key in row:
                begin, end = end, end + len(key)
                rows[number, begin:end] = np.arange(self._rows[key], self._rows[key] + len(key))
        index = torch.from_numpy(rows.ravel())
        index = index.pin_memory().to(table.device, non_blocking=True) if table.is_cuda else index
        layers = table.index_select(0, index).view(*rows.shape, *table.shape[1:])  # (B, T, L+1, D)
        return layers.permute(2, 0, 1, 3)  # (L+1, B, T, D)

    def _shape(self, sentences: list[Sentence]) -> tuple[int, int, int]:
        return sum(map(len, sentences)), self.num_layers, self.dim

    def _fill(self, block: np.ndarray, sentences: list[Sentence], show: bool | None) -> None:
        end = 0
        rows, tokens = BATCH_LIMITS.get(self.embedder.device.type, BATCH_LIMITS["cpu"])
        with Progress("embedding", len(block), show=show) as progress:
            for layers in self.embedder.stream(sentences, layers="all", batch_size=rows, max_tokens=tokens):
                begin, end = end, end + layers.shape[1]  # layers (L+1, n, D)
                block[begin:end] = layers.transpose(1, 0, 2)
                progress.advance(end - begin)
        if not np.isfinite(block).all():
            raise DataError("The biLM's vectors are too large for float16.", "Set elmo.cache = 'off'.")

    def _block_on_disk(self, folder: Path, sentences: list[Sentence], show: bool | None) -> np.ndarray:
        path = cache_path(folder, {"vectors": self._sha256}, sentences)
        shape = self._shape(sentences)
        if not path.exists():
            log.info("writing layers of %d tokens to %s", shape[0], path)
        return cached_array(path, shape, lambda block: self._fill(block, sentences, show))


def _cache_folder(cache_dir: str | Path | None) -> Path:
    if cache_dir is not None:
        return Path(cache_dir)
    home = cache_home()
    if home is None:
        raise ConfigError(
            "There is no home folder to cache layers in.", "Set elmo.cache_dir, or elmo.cache = 'memory'."
        )
    return home / "layers"
