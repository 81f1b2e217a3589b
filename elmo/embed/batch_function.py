"""A function from a batch of rows to the same rows with vectors, for pandas, Dask, Spark, Ray and Arrow.

    embed = elmo.batch_function("english", column="text", pooling="mean")
    embed(frame)                                          # a pandas DataFrame, an Arrow Table or RecordBatch

The function is a small value that pickles: a worker process loads the model at its first batch and shares it among all
batches and threads afterwards. The vectors of a row depend on that row alone, up to rounding.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from elmo.embed.dump.options import DTYPES
from elmo.embed.layer_choice import LayerSpec, choose_layers
from elmo.embed.load import load
from elmo.embed.pool import check_pooling
from elmo.errors import ConfigError, DataError
from elmo.settings import check_count
from elmo.text.inputs import is_missing, normalize_input

if TYPE_CHECKING:
    from elmo.embed.embedder import Embedder

Batch = TypeVar("Batch")  # a pandas DataFrame, an Arrow Table or RecordBatch
MissingRows: TypeAlias = Literal["error", "empty", "null"]
TOKENS = "tokens"


def batch_function(
    model: str | os.PathLike[str] = "default",
    weights: str | os.PathLike[str] | None = None,
    *,
    column: str = "text",  # strings, which are tokenised, or lists of tokens
    output: str = "vectors",  # name of the new column
    pooling: str | None = "mean",  # mean, max: one vector per row; None: one per token
    layers: LayerSpec = "average",
    missing: MissingRows = "error",  # None and NaN in the column: an error, an empty sentence, or null in the output
    dtype: str = "float32",  # of the vectors in the output: float32, float16
    device: str = "auto",
    compute_dtype: str = "float32",
    tokenizer: str | None = None,  # a name; for a tokenizer of your own, pass a column of token lists
    state: str = "reset",  # reset, warm
    batch_size: int = 256,
    max_tokens: int = 8192,
) -> BatchFunction:
    """A picklable function that adds a column of vectors to a pandas DataFrame, an Arrow Table or a RecordBatch.

    With `pooling`, a row has one vector: an Arrow fixed-size list, or a numpy array in a pandas column. Without it, a
    row has one vector per token, and the column "tokens" has the tokens, unless `column` has that name. With
    layers="all", a vector is a list of one vector per layer. An empty sentence has the zero vector, or no token.
    """
    return BatchFunction(
        model=os.fspath(model),
        weights=None if weights is None else os.fspath(weights),
        column=column,
        output=output,
        pooling=pooling,
        layers=layers,
        missing=missing,
        dtype=dtype,
        device=device,
        compute_dtype=compute_dtype,
        tokenizer=tokenizer,
        state=state,
        batch_size=batch_size,
        max_tokens=max_tokens,
    )


@dataclass(frozen=True, kw_only=True)
class BatchFunction:
    """The settings of a `batch_function`; a call embeds one batch."""

    model: str
    weights: str | None
    column: str
    output: str
    pooling: str | None
    layers: LayerSpec
    missing: MissingRows
    dtype: str
    device: str
    compute_dtype: str
    tokenizer: str | None
    state: str
    batch_size: int
    max_tokens: int

    def __post_init__(self) -> None:
        if self.pooling is not None:
            check_pooling(self.pooling)
        for name, value, known in (
            ("missing", self.missing, ("error", "empty", "null")),
            ("dtype", self.dtype, DTYPES),
            ("state", self.state, ("reset", "warm")),  # carried state would depend on the batches of this process
        ):
            if value not in known:
                raise ConfigError(f"{name} is {value!r}; expected {' or '.join(known)}.")
        if self.tokenizer is not None and not isinstance(self.tokenizer, str):
            raise ConfigError(
                f"tokenizer is a {type(self.tokenizer).__name__}; expected a name.",
                "Tokenise first and pass the column of token lists.",
            )
        for name in ("batch_size", "max_tokens"):
            check_count(name, getattr(self, name))

    @property
    def __name__(self) -> str:  # Dask, Ray and Spark label their tasks with it
        return "elmo_batch_function"

    def __call__(self, batch: Batch) -> Batch:
        """The batch with the new columns, in the type of the batch."""
        pandas, pyarrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
        result: Any
        if pandas is not None and isinstance(batch, pandas.DataFrame):
            self._check_columns(list(batch.columns))
            rows = self._embed(batch[self.column].tolist())
            columns = {
                name: pandas.Series(values, index=batch.index, dtype=object)
                for name, values in self._as_lists(rows).items()
            }
            result = batch.assign(**columns)
        elif pyarrow is not None and isinstance(batch, (pyarrow.Table, pyarrow.RecordBatch)):
            self._check_columns(batch.schema.names)
            rows = self._embed(batch.column(self.column).to_pylist())
            result = batch
            for name, array in self._as_arrow(pyarrow, rows).items():
                result = result.append_column(name, array)
        else:
            raise TypeError(
                f"The batch is a {type(batch).__name__}; expected a pandas DataFrame, an Arrow Table or RecordBatch. "
                'With Ray, pass batch_format="pyarrow" or "pandas" to map_batches.'
            )
        return result  # type: ignore[no-any-return]

    def _check_columns(self, columns: Sequence[Any]) -> None:
        if self.column not in columns:
            raise DataError(f"The batch has no column {self.column!r}; it has {', '.join(map(str, columns))}.")
        for name in self._new_columns():
            if name in columns:
                raise DataError(f"The batch has a column {name!r} already.", "Rename it, or choose another output.")

    def _new_columns(self) -> list[str]:
        with_tokens = self.pooling is None and self.column != TOKENS
        return [TOKENS, self.output] if with_tokens else [self.output]

    def _embed(self, texts: list[Any]) -> _Rows:
        loaded = _loaded_model(self)
        embedder = loaded.embedder
        is_null = np.array([self.missing == "null" and is_missing(text) for text in texts], dtype=bool)
        try:
            inputs = normalize_input(texts, embedder.tokenize, missing="error" if self.missing == "error" else "empty")
        except TypeError as error:
            raise DataError(
                f"Column {self.column!r}: {str(error).split(' Missing values')[0]}",
                'missing="empty" or missing="null" accepts rows without a text.' if any(map(is_missing, texts)) else "",
            ) from error
        with loaded.lock:  # threads of one process share the model
            if self.pooling is not None:
                vectors = [
                    embedder.encode(
                        inputs.sentences, layers=self.layers, pooling=self.pooling, batch_size=self.batch_size,
                        max_tokens=self.max_tokens,
                    )
                ]  # fmt: skip
            else:
                stream = embedder.stream(
                    inputs.sentences, layers=self.layers, batch_size=self.batch_size, max_tokens=self.max_tokens
                )
                vectors = [np.moveaxis(array, -2, 0) for array in stream]  # (n, D) or (n, K, D)
        shape = choose_layers(self.layers, embedder.num_layers).shape(embedder.dim)  # (D,) or (K, D)
        flat = np.concatenate([np.zeros((0, *shape), np.float32), *vectors])  # (rows or tokens, [K,] D)
        try:
            with np.errstate(over="raise"):
                flat = flat.astype(self.dtype)
        except FloatingPointError as error:
            raise DataError(f"A value is too large for {self.dtype}.", 'Use dtype="float32".') from error
        return _Rows(sentences=inputs.sentences, is_null=is_null, vectors=flat)

    def _as_lists(self, rows: _Rows) -> dict[str, list[Any]]:
        """The new columns as Python lists of numpy arrays (D,), nested if a row or a token has several vectors."""
        vectors: list[Any] = list(rows.vectors) if rows.vectors.ndim == 2 else [list(each) for each in rows.vectors]
        if self.pooling is None:
            ends = rows.ends()
            vectors = [vectors[begin:end] for begin, end in itertools.pairwise(ends)]
        vectors = [None if is_null else each for each, is_null in zip(vectors, rows.is_null, strict=True)]
        return dict(zip(self._new_columns(), [rows.tokens(), vectors][-len(self._new_columns()) :], strict=True))

    def _as_arrow(self, pa: Any, rows: _Rows) -> dict[str, Any]:
        """The new columns as Arrow arrays."""
        mask = pa.array(rows.is_null) if rows.is_null.any() else None
        *outer_sizes, width = rows.vectors.shape[1:]
        vectors = pa.array(rows.vectors.reshape(-1))
        if outer_sizes:  # one vector per layer
            vectors = pa.FixedSizeListArray.from_arrays(vectors, width)
            width = outer_sizes[0]
        if self.pooling is not None:
            vectors = pa.FixedSizeListArray.from_arrays(vectors, width, mask=mask)
        else:
            vectors = pa.FixedSizeListArray.from_arrays(vectors, width)
            vectors = pa.ListArray.from_arrays(pa.array(rows.ends(), pa.int32()), vectors, mask=mask)
        tokens = pa.array(rows.tokens(), pa.list_(pa.string()))
        return dict(zip(self._new_columns(), [tokens, vectors][-len(self._new_columns()) :], strict=True))


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """The embedded rows of one batch."""

    sentences: list[list[str]]
    is_null: np.ndarray  # (rows,) bool: the row has no vectors
    vectors: np.ndarray  # (rows, [K,] D), or (tokens of all rows, [K,] D)

    def ends(self) -> np.ndarray:
        """0 and the end of each row among the tokens of all rows, (rows + 1,)."""
        return np.cumsum([0, *map(len, self.sentences)])

    def tokens(self) -> list[list[str] | None]:
        return [None if is_null else tokens for tokens, is_null in zip(self.sentences, self.is_null, strict=True)]


@dataclass(frozen=True)
class _LoadedModel:
    """A model of this process."""

    embedder: Embedder
    lock: threading.Lock = field(default_factory=threading.Lock)


_loaded: dict[tuple[Any, ...], _LoadedModel] = {}  # by the arguments of `load`
_loading = threading.Lock()


def _loaded_model(function: BatchFunction) -> _LoadedModel:
    """The model of a function, loaded at the first call in this process."""
    key = (
        function.model,
        function.weights,
        function.device,
        function.compute_dtype,
        function.tokenizer,
        function.state,
    )
    with _loading:
        if key not in _loaded:
            _loaded[key] = _LoadedModel(
                load(
                    function.model, function.weights, device=function.device, dtype=function.compute_dtype,
                    tokenizer=function.tokenizer, state=function.state,
                )
            )  # fmt: skip
        return _loaded[key]


def _renew_locks() -> None:
    """A forked process has no thread that could release a lock that was held at the fork."""
    global _loading
    _loading = threading.Lock()
    _loaded.update({key: _LoadedModel(loaded.embedder) for key, loaded in _loaded.items()})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
