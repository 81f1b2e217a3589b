"""Options of a bulk embedding, checked before any work is done; needs no torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from elmo.errors import ConfigError
from elmo.text.encodings import UTF8, check_encoding

FORMATS = ("hdf5", "npz", "safetensors", "parquet", "jsonl")
DTYPES = ("float32", "float16")
COMPUTE_DTYPES = ("bfloat16", "int8", "float64")  # of the computation only
POOLINGS = ("mean", "max")


@dataclass(frozen=True, kw_only=True)
class DumpOptions:
    """Settings of one bulk embedding. The embedder decides on tokenizer, state policy, device and compute dtype."""

    # all, top, average, concat, a number, one weight per layer; None: see `chosen_layers`
    layers: str | int | Sequence[float] | None = None
    dtype: str = "float32"  # of the vectors in the file: float32, float16
    pool: str | None = None  # mean, max: one vector per sentence; None: one per token
    format: str | None = None  # hdf5, npz, safetensors, parquet, jsonl; None: by the output's suffix
    encoding: str = UTF8  # of the text, any that Python knows
    errors: Literal["strict", "replace"] = "strict"  # bytes that are invalid in the encoding: an error, or U+FFFD
    paragraphs: bool = False  # a line is a paragraph, which is split into sentences; False: one sentence
    use_sentence_keys: bool = False  # hdf5: datasets are named by sentence instead of by number
    forget_sentences: bool = False  # hdf5: no sentence_to_index
    resume: bool = False  # continue an unfinished run of the same plan
    shard: tuple[int, int] | None = None  # (i, n), i from 1: only every n-th block, to be merged later
    overwrite: bool = False  # replace an existing output, discard an unfinished run
    force: bool = False  # start even if the disk seems too small
    batch_size: int = 256  # sentences per batch, at most; with state "carry" it decides which sentence follows which
    max_tokens: int = 8192  # padded tokens per batch, at most
    block_lines: int = 4096  # lines per block, at most; a killed run loses one block
    block_tokens: int = 16384  # tokens per block, at most, boundaries included: 200 MB of the original model's layers
    show_progress: bool | None = False  # None: only on a terminal

    def __post_init__(self) -> None:
        if self.dtype in COMPUTE_DTYPES:
            raise ConfigError(
                f"dtype is {self.dtype!r}, a number type of the computation; vectors are written as "
                f"{' or '.join(DTYPES)}.",
                f"--compute-dtype {self.dtype} computes in it (in Python elmo.load(dtype={self.dtype!r})).",
            )
        _check_choice("dtype", self.dtype, DTYPES)
        object.__setattr__(self, "encoding", check_encoding(self.encoding))
        _check_choice("errors", self.errors, ("strict", "replace"))
        if self.pool is not None:
            _check_choice("pool", self.pool, POOLINGS)
        if self.format is not None:
            _check_choice("format", self.format, FORMATS)
        for name in ("batch_size", "max_tokens", "block_lines", "block_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least 1.")
        if self.shard is not None and not 1 <= self.shard[0] <= self.shard[1]:
            i, n = self.shard
            raise ConfigError(f"shard is {i}/{n}; expected i/n with i from 1 to n.", "The first of eight is 1/8.")

    @property
    def chosen_layers(self) -> str | int | Sequence[float]:
        """The layers; where none are given, all of every token, and the average of a sentence's vector."""
        if self.layers is not None:
            return self.layers
        return "all" if self.pool is None else "average"


def parse_shard(text: str) -> tuple[int, int]:
    """(i, n) from "i/n"."""
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*/\s*([0-9]{1,9})\s*", text)
    if not match:
        raise ConfigError(f"shard is {text!r}; expected i/n.", "The first of eight is 1/8.")
    return int(match[1]), int(match[2])


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}; expected {', '.join(choices)}.")
