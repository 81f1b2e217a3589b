"""Vectors as Parquet, one row per sentence: line, text, tokens, vectors; one row group per block.

`vectors` is one flat list per row, in the order of (K, n, D), (n, D) or the pooled vector; K (chosen layers) and D are
in the schema's metadata under "elmo".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from elmo.embed.dump.part_file import Layout, PartFiles
from elmo.files import require_extra


class EmbeddedBlock(Protocol):
    """A block with its vectors: a part file, or a block in memory."""

    first_line: int

    @property
    def num_lines(self) -> int: ...
    def lines(self) -> list[str]: ...
    def sentences(self) -> list[list[str]]: ...
    def vectors(self, layout: Layout) -> Iterator[np.ndarray]: ...


def write_parquet(path: Path, part_files: PartFiles) -> None:
    """Streams one block after the other."""
    write_blocks(path, part_files, part_files.layout, {"elmo": json.dumps(part_files.plan["vectors"])})


def write_blocks(path: Path, blocks: Iterable[EmbeddedBlock], layout: Layout, metadata: Mapping[str, str]) -> None:
    """The same for blocks from anywhere, with the metadata of the file's schema."""
    pa, pq = require_extra("pyarrow", "parquet"), require_extra("pyarrow.parquet", "parquet")
    number = pa.float16() if layout.dtype == "float16" else pa.float32()
    schema = pa.schema(
        [
            ("line", pa.int64()),
            ("text", pa.large_string()),
            ("tokens", pa.large_list(pa.large_string())),
            ("vectors", pa.large_list(number)),
        ],
        metadata=dict(metadata),
    )
    # dictionaries and statistics cost time and do not compress vectors
    with pq.ParquetWriter(path, schema, use_dictionary=False, write_statistics=False) as writer:
        for block in blocks:
            writer.write_table(_table(pa, schema, block, layout))


def _table(pa: Any, schema: Any, block: EmbeddedBlock, layout: Layout) -> Any:
    vectors = [rows.reshape(-1) for rows in block.vectors(layout)]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in vectors])])
    flat = np.concatenate(vectors)
    columns = [
        pa.array(range(block.first_line, block.first_line + block.num_lines), pa.int64()),
        pa.array(block.lines(), pa.large_string()),
        pa.array(block.sentences(), pa.large_list(pa.large_string())),
        pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(flat)),
    ]
    return pa.Table.from_arrays(columns, schema=schema)
