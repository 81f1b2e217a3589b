"""pandas: a column of texts in, a table of vectors out, with the index of the column.

    df.join(encode_column(embedder, df["text"], missing="zeros"))

For the vectors of tokens no function is needed: `pandas.Series(embedder.embed(df["text"]), index=df.index)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from elmo.errors import ConfigError
from elmo.files import require_extra
from elmo.integrations.missing_texts import MissingTexts, present_texts

if TYPE_CHECKING:
    from elmo.embed.embedder import Embedder


def encode_column(
    embedder: Embedder,
    column: Any,  # a pandas Series of texts or token lists
    *,
    missing: MissingTexts = "error",  # None, NaN and pandas.NA: error, skip (no row), zeros
    prefix: str = "elmo_",  # names of the columns: elmo_0, elmo_1 ...
    **options: Any,  # of `Embedder.encode`: layers, pooling, split, normalize_embeddings, batch_size ...
) -> Any:
    """A DataFrame with one row of `Embedder.encode` per text and one column per number, indexed as the column is."""
    pandas = require_extra("pandas", "pandas")
    if not isinstance(column, pandas.Series):
        raise TypeError(f"column is a {type(column).__name__}; expected a pandas Series, such as df['text'].")
    if options.get("layers") == "all" or {"convert_to_tensor", "convert_to_numpy"} & options.keys():
        raise ConfigError(
            "encode_column gives one vector per text, as a DataFrame.",
            "Call embedder.encode for stacked layers or tensors.",
        )
    texts, rows = present_texts(list(column), missing)
    vectors = np.atleast_2d(embedder.encode(texts, **options))  # (N, D)
    names = [f"{prefix}{number}" for number in range(vectors.shape[1])]
    return pandas.DataFrame(vectors, columns=names, index=column.index[rows])
