"""What the front process asks of a worker and what it gets back; both ends of the pipe import these types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Operation = Literal["vectors", "pooled", "score", "substitutes"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is computed for a sentence. Sentences with equal jobs share batches, whoever sent them."""

    operation: Operation
    layers: str | int | tuple[float, ...] = "average"  # as `Embedder.embed` takes them
    rows: tuple[int, ...] | None = None  # of layers="all": only these layers, in this order
    pooling: str = "mean"  # of pooled vectors
    top: int = 8  # substitutes per list


@dataclass(frozen=True)
class Failure:
    """Why one item has no result. Its neighbours in the batch are not affected."""

    status: int  # of HTTP
    code: str
    message: str


Result = Any  # float32 vectors (K, n, D); a pooled vector (D,); a dict of scores; a list of substitutes per token


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What the front process knows of the model that its workers loaded."""

    name: str
    dim: int
    num_layers: int
    tokenizer: str
    device: str
    dtype: str
    executor: str  # CpuExecutor, CudaExecutor, PlainExecutor
    num_threads: int
    no_softmax: str | None  # why words cannot be scored; None: they can
    vocab_size: int | None


@dataclass(frozen=True)
class LoadFailure:
    """An error of a worker that could not load its model."""

    message: str
    hint: str
    exit_code: int
