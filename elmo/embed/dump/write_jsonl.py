"""Vectors as JSON lines, one object per sentence: {"line": 0, "tokens": [...], "vectors": [...]}.

The text is ASCII, so that no reader fails on U+2028 or an encoding. Numbers have as many digits as are needed to read
the same float32 or float16 back; NaN and infinity, which JSON does not have, are null.
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

from elmo.embed.dump.part_file import PartFiles
from elmo.files import require_extra

DIGITS = {"float32": 9, "float16": 5}  # enough to distinguish any two values


def write_jsonl(path: Path, part_files: PartFiles, suffix: str = "") -> None:
    """Writes every sentence; `suffix` .gz .bz2 .xz or .zst compresses, and the bytes do not depend on the time."""
    with open(path, "wb") as file, _compressed(file, suffix) as stream:
        for part_file in part_files:
            rows = zip(part_file.sentences(), part_file.vectors(part_files.layout), strict=True)
            for number, (tokens, vectors) in enumerate(rows, part_file.first_line):
                stream.write(json_line(number, tokens, vectors))


def json_line(number: int, tokens: list[str], vectors: np.ndarray) -> bytes:
    """One sentence as a line of JSON with a newline; `number` counts lines from 0."""
    start = f'{{"line": {number}, "tokens": {json.dumps(tokens)}, "vectors": '
    return (start + _numbers(vectors, f"%.{DIGITS[vectors.dtype.name]}g") + "}\n").encode("ascii")


def _numbers(values: np.ndarray, pattern: str) -> str:
    if values.ndim > 1:
        return f"[{','.join(_numbers(row, pattern) for row in values)}]"
    if np.isfinite(values).all():
        # one format operation per row is three times as fast as one per number
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
