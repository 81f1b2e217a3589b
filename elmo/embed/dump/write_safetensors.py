"""Vectors as .safetensors: the arrays of flat.py as tensors, and the settings of the vectors as metadata.

The file is written here because the library needs all tensors in memory at once. The format: length of the header
(8 bytes), header (JSON, padded with spaces to a multiple of 8), then the tensors' bytes without gaps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from elmo.embed.dump.flat import flat_arrays
from elmo.embed.dump.part_file import PartFiles

_DTYPES = {"int64": "I64", "float32": "F32", "float16": "F16", "uint8": "U8"}


def write_safetensors(path: Path, part_files: PartFiles) -> None:
    """Streams the arrays after the header, whose sizes are known in advance."""
    arrays = flat_arrays(part_files)
    header: dict[str, Any] = {"__metadata__": {"elmo": json.dumps(part_files.plan["vectors"])}}
    offset = 0
    for array in arrays:
        header[array.name] = {
            "dtype": _DTYPES[array.dtype.name],
            "shape": array.shape,
            "data_offsets": [offset, offset + array.num_bytes],
        }
        offset += array.num_bytes
    header_bytes = json.dumps(header).encode()
    header_bytes += b" " * (-len(header_bytes) % 8)
    with open(path, "wb") as file:
        file.write(len(header_bytes).to_bytes(8, "little") + header_bytes)
        for array in arrays:
            for piece in array.pieces:
                file.write(np.ascontiguousarray(piece, dtype=array.dtype).tobytes())
