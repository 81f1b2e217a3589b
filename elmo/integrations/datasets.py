"""Hugging Face `datasets`: a function for `Dataset.map(batched=True)` that adds the vectors of a column of texts.

    dataset = dataset.map(EncodeColumn("english", "text", missing="skip"), batched=True, batch_size=512)

It needs no library besides numpy: a batch is a dict of lists. It can be pickled, so that `num_proc` works, and its
state names the model by checksum, so that the cache of `datasets` does not return the vectors of another model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from elmo.errors import ConfigError, WeightsError
from elmo.integrations.missing_texts import MissingTexts, present_texts

if TYPE_CHECKING:
    from elmo.embed.embedder import Embedder


class EncodeColumn:
    """Batches with a column of texts or token lists to the same batches with a column of vectors, float32 (D,) each."""

    def __init__(
        self,
        model: str = "default",
        column: str = "text",
        *,
        output: str = "elmo",  # name of the new column
        missing: MissingTexts = "error",  # None and NaN: error, skip (the row is left out), zeros
        device: str = "auto",
        dtype: str = "float32",
        state: str = "reset",
        **options: Any,  # of `Embedder.encode`: layers, pooling, split, normalize_embeddings
    ) -> None:
        from elmo.embed.model_checksum import model_checksum

        present_texts([], missing)  # checks the setting before a long run
        if options.get("layers") == "all" or {"convert_to_tensor", "convert_to_numpy"} & options.keys():
            raise ConfigError("A column has one vector per text.", "Choose layers 'average', 'top' or 'concat'.")
        if state == "carry":
            raise ConfigError("state is 'carry'; rows do not depend on each other.", "Use 'reset' or 'warm'.")
        self.column, self.output, self.missing, self.options = column, output, missing, options
        self._model, self._load_options = model, {"device": device, "dtype": dtype, "state": state}
        self._embedder: Embedder | None = None
        self._sha256 = model_checksum(self.embedder)

    @property
    def embedder(self) -> Embedder:
        """The frozen biLM; each process loads it once."""
        from elmo.embed.load import load
        from elmo.embed.model_checksum import model_checksum

        if self._embedder is None:
            self._embedder = load(self._model, **self._load_options)  # type: ignore[arg-type]  # str options only
            known = getattr(self, "_sha256", None)
            if known is not None and known != model_checksum(self._embedder):
                raise WeightsError(f"The model {self._model!r} has changed.", "Make a new EncodeColumn.")
        return self._embedder

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        if self.column not in batch:
            raise ConfigError(f"There is no column {self.column!r}.", f"The dataset has {', '.join(batch)}.")
        texts = batch[self.column]
        if isinstance(texts, str):
            raise ConfigError("The function was called with one row.", "Use dataset.map(..., batched=True).")
        texts, rows = present_texts(list(texts), self.missing)
        vectors = self.embedder.encode(texts, **self.options).astype(np.float32, copy=False)
        if self.missing != "skip":
            return {self.output: vectors}
        return {**{name: [values[row] for row in rows] for name, values in batch.items()}, self.output: vectors}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_embedder": None}
