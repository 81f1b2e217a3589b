"""Vectors as Parquet, one row a sentence: line, text, tokens, vectors; a row group a block.

`vectors` is one flat list a row, in the order of (K, n, D), (n, D) or the pooled vector; K and D stand in the schema's
metadata under "elmo".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from elmo.embed.dump.part_file import Layout, Part
from elmo.embed.dump.part_files import Parts
from elmo.files import require_extra


def write_parquet(path: Path, parts: Parts) -> None:
    """Streams block after block."""
    pa, pq = require_extra("pyarrow", "parquet"), require_extra("pyarrow.parquet", "parquet")
    number = pa.float16() if parts.layout.dtype == "float16" else pa.float32()
    schema = pa.schema(
        [
            ("line", pa.int64()),
            ("text", pa.large_string()),
            ("tokens", pa.large_list(pa.large_string())),
            ("vectors", pa.large_list(number)),
        ],
        metadata={"elmo": json.dumps(parts.plan["vectors"])},
    )
    # dictionaries and statistics cost time and gain nothing on vectors
    with pq.ParquetWriter(path, schema, use_dictionary=False, write_statistics=False) as writer:
        for part in parts:
            writer.write_table(_table(pa, schema, part, parts.layout))


def _table(pa: Any, schema: Any, part: Part, layout: Layout) -> Any:
    vectors = [rows.reshape(-1) for rows in part.vectors(layout)]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in vectors])])
    flat = np.concatenate(vectors)
    columns = [
        pa.array(range(part.first_line, part.first_line + part.num_lines), pa.int64()),
        pa.array(part.lines(), pa.large_string()),
        pa.array(part.sentences(), pa.large_list(pa.large_string())),
        pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(flat)),
    ]
    return pa.Table.from_arrays(columns, schema=schema)
