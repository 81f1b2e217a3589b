"""Worker processes that encode sentences in parallel, each with a copy of the model on a device of its own.

    with embedder.start_multi_process_pool(["cuda:0", "cuda:1"]) as pool:
        vectors = embedder.encode(texts, pool=pool)

The caller's process tokenises and normalises the texts, so that errors name their positions; workers get sentences of
tokens. The softmax and the tokenizer are not sent to them.
"""

from __future__ import annotations

import copy
import functools
import io
import math
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from elmo.devices import available_devices, choose_device
from elmo.embed.layer_choice import LayerSpec, choose_layers
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM
from elmo.model.mix import ScalarMix
from elmo.settings import check_count
from elmo.text.indexer import Indexer
from elmo.worker_pool import WorkerPool, spawn_context, usable_cores

if TYPE_CHECKING:
    from elmo.embed.embedder import Embedder

MOST_CPU_WORKERS = 4  # if no devices are named
LARGEST_CHUNK = 5000  # sentences
_SCRIPT_CLASS = b"c__main__\n"  # how a pickle of protocol 2, torch's default, names a class of the caller's script


class EncodePool:
    """One worker process per device; a device that is named twice gets two. `Embedder.encode` takes it as `pool`."""

    def __init__(self, embedder: Embedder, devices: Sequence[str] | None = None) -> None:
        """Devices None: all CUDA devices, or else at most four processes on the CPU."""
        if embedder.state == "carry":
            raise ConfigError(
                "state is 'carry', with which vectors depend on the order of the sentences; a pool has no such order.",
                "Use state reset or warm, or encode in one process.",
            )
        self.devices = _default_devices() if devices is None else [choose_device(device) for device in devices]
        if not self.devices:
            raise ConfigError("The list of devices of a pool is empty.", "Name one device per process.")
        self.embedder = embedder
        # not in the arguments of the workers: the start of one that ends at once would wait for a reader forever
        models = spawn_context().Queue()
        models.cancel_join_thread()
        model_bytes = _model_bytes(embedder.model, embedder.indexer)
        for device in self.devices:
            models.put((device, model_bytes))
        num_on_cpu = max(1, self.devices.count("cpu"))
        num_threads = max(1, torch.get_num_threads() // num_on_cpu)
        options = {"state": embedder.state, "dtype": embedder.dtype}
        arguments = (models, options, num_threads)
        needs_script = _SCRIPT_CLASS in model_bytes
        self._workers = WorkerPool(len(self.devices), _load_worker, arguments, needs_script=needs_script)

    def __enter__(self) -> EncodePool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._workers.is_closed else ""
        return f"EncodePool({self.embedder.name!r}, devices={self.devices}{state})"

    def close(self) -> None:
        """Ends the worker processes."""
        self._workers.close()

    def pooled(
        self, sentences: Sequence[Sequence[str]], *, layers: LayerSpec, chunk_size: int | None = None, **options: Any
    ) -> Iterator[tuple[np.ndarray, int]]:
        """As `Embedder.pooled`, with at most chunk_size sentences per job; None: a few jobs per worker."""
        if self._workers.is_closed:
            raise ConfigError("The pool is closed.", "Start another one with start_multi_process_pool.")
        if chunk_size is None:
            chunk_size = min(LARGEST_CHUNK, max(1, math.ceil(len(sentences) / (4 * len(self.devices)))))
        chunk_size = check_count("chunk_size", chunk_size)
        if isinstance(layers, ScalarMix):  # which may be on another device than the worker
            layers = choose_layers(layers, self.embedder.num_layers).matrix[0].tolist()
        encode = functools.partial(_encode_chunk, layers=layers, **options)
        starts = range(0, len(sentences), chunk_size)
        yield from self._workers.map_in_order(encode, (sentences[start : start + chunk_size] for start in starts))


_worker_embedder: Embedder | None = None  # of a worker process


def _load_worker(models: Any, options: dict[str, Any], num_threads: int) -> None:
    from elmo.embed.embedder import Embedder  # which imports this module

    global _worker_embedder
    device, model_bytes = models.get()
    torch.set_num_threads(num_threads)
    # the parent process wrote these bytes; classes of a caller's own model are allowed
    model, indexer = torch.load(io.BytesIO(model_bytes), map_location="cpu", weights_only=False)
    _worker_embedder = Embedder(model, indexer, device=device, **options)


def _encode_chunk(sentences: Sequence[Sequence[str]], **options: Any) -> tuple[np.ndarray, int]:
    assert _worker_embedder is not None
    parts = list(_worker_embedder.pooled(sentences, **options))
    return np.concatenate([vectors for vectors, _ in parts]), sum(num_tokens for _, num_tokens in parts)


def _default_devices() -> list[str]:
    cuda = [device for device in available_devices() if device.startswith("cuda")]
    return cuda or ["cpu"] * min(MOST_CPU_WORKERS, usable_cores())


def _model_bytes(model: BiLM, indexer: Indexer) -> bytes:
    """The indexer, and the model without its softmax, which vectors do not need and which may be on disk still."""
    without_head = copy.copy(model)
    without_head._modules = {**model._modules, "head": None}
    buffer = io.BytesIO()
    torch.save((without_head, indexer), buffer)
    return buffer.getvalue()
