"""Settings of a sharded embedding besides those of `DumpOptions`: how rows are read, and which model is loaded.

Needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elmo.errors import ConfigError
from elmo.text.encodings import UTF8, check_encoding


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How rows are read and how many of them are one shard."""

    column: str = "text"  # of CSV and Parquet files, or key of JSON lines: strings or, not in CSV, lists of tokens
    missing: str = "error"  # null in that column: error, or empty (a sentence without tokens)
    encoding: str = UTF8  # of text, CSV and JSON lines
    errors: Literal["strict", "replace"] = "strict"  # bytes that are invalid in the encoding: an error, or U+FFFD
    shard_rows: int = 10_000  # rows per shard, at most; a killed worker loses at most one shard

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", check_encoding(self.encoding))
        if self.missing not in ("error", "empty"):
            raise ConfigError(f"missing is {self.missing!r}; expected error or empty.")
        if self.shard_rows < 1:
            raise ConfigError(f"shard_lines is {self.shard_rows}; expected at least 1.")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The arguments of `elmo.load`, apart from the device."""

    model: str = "default"
    weights: str | None = None
    dtype: str = "float32"  # of the computation
    tokenizer: str | None = None
    state: str = "reset"  # reset, warm

    def __post_init__(self) -> None:
        if self.state == "carry":
            raise ConfigError(
                "With state 'carry' every sentence continues from the one before it, so shards are not possible.",
                "Use --state reset or warm.",
            )
