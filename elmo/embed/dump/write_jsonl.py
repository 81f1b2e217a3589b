"""Vectors as JSON lines, one object a sentence: {"line": 0, "tokens": [...], "vectors": [...]}.

Pure ASCII, so that no reader can trip over U+2028 or an encoding. Numbers have as many digits as it takes to get the
same float32 or float16 back; what JSON cannot say (NaN, infinity) is null.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import numpy as np

from elmo.embed.dump.part_files import Parts
from elmo.files import require_extra

DIGITS = {"float32": 9, "float16": 5}  # that tell any two values apart


def write_jsonl(path: Path, parts: Parts, suffix: str = "") -> None:
    """Writes every sentence; `suffix` .gz .bz2 .xz or .zst compresses, with bytes that do not depend on the time."""
    with open(path, "wb") as file, _compressed(file, suffix) as stream:
        for part in parts:
            rows = zip(part.sentences(), part.vectors(parts.layout), strict=True)
            for number, (tokens, vectors) in enumerate(rows, part.first_line):
                stream.write(json_line(number, tokens, vectors))


def json_line(number: int, tokens: list[str], vectors: np.ndarray) -> bytes:
    """One sentence as a line of JSON with its end; `number` counts lines from 0."""
    head = f'{{"line": {number}, "tokens": {json.dumps(tokens)}, "vectors": '
    return (head + _numbers(vectors, f"%.{DIGITS[vectors.dtype.name]}g") + "}\n").encode("ascii")


def _numbers(values: np.ndarray, pattern: str) -> str:
    if values.ndim > 1:
        return f"[{','.join(_numbers(row, pattern) for row in values)}]"
    if np.isfinite(values).all():
        # one format for the whole row: three times as quick as one a number
        return f"[{','.join([pattern] * len(values)) % tuple(values.tolist())}]"
    return f"[{','.join(pattern % v if np.isfinite(v) else 'null' for v in values.tolist())}]"


@contextmanager
def _compressed(file: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    if suffix == ".gz":
        with gzip.GzipFile("", "wb", 6, file, mtime=0) as stream:
            yield cast(IO[bytes], stream)
    elif suffix == ".bz2":
        with bz2.BZ2File(file, "wb") as bz2_stream:
            yield cast(IO[bytes], bz2_stream)
    elif suffix == ".xz":
        with lzma.LZMAFile(file, "wb") as xz_stream:
            yield cast(IO[bytes], xz_stream)
    elif suffix == ".zst":
        with require_extra("zstandard", "zstd").ZstdCompressor().stream_writer(file, closefd=False) as zst_stream:
            yield zst_stream
    else:
        yield file
