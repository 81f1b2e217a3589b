"""Vectors as Parquet, one row per sentence: line, text, tokens, vectors; one row group per block.

`vectors` is one flat list per row, in the order of (K, n, D), (n, D) or the pooled vector; K (chosen layers) and D are
in the schema's metadata under "elmo".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from elmo.embed.dump.part_file import Layout, PartFile, PartFiles
from elmo.files import require_extra


def write_parquet(path: Path, part_files: PartFiles) -> None:
    """Streams one block after the other."""
    pa, pq = require_extra("pyarrow", "parquet"), require_extra("pyarrow.parquet", "parquet")
    number = pa.float16() if part_files.layout.dtype == "float16" else pa.float32()
    schema = pa.schema(
        [
            ("line", pa.int64()),
            ("text", pa.large_string()),
            ("tokens", pa.large_list(pa.large_string())),
            ("vectors", pa.large_list(number)),
        ],
        metadata={"elmo": json.dumps(part_files.plan["vectors"])},
    )
    # dictionaries and statistics cost time and do not compress vectors
    with pq.ParquetWriter(path, schema, use_dictionary=False, write_statistics=False) as writer:
        for part_file in part_files:
            writer.write_table(_table(pa, schema, part_file, part_files.layout))


def _table(pa: Any, schema: Any, part_file: PartFile, layout: Layout) -> Any:
    vectors = [rows.reshape(-1) for rows in part_file.vectors(layout)]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in vectors])])
    flat = np.concatenate(vectors)
    columns = [
        pa.array(range(part_file.first_line, part_file.first_line + part_file.num_lines), pa.int64()),
        pa.array(part_file.lines(), pa.large_string()),
        pa.array(part_file.sentences(), pa.large_list(pa.large_string())),
        pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(flat)),
    ]
    return pa.Table.from_arrays(columns, schema=schema)
