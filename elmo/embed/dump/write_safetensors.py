"""Vectors as .safetensors: the arrays of flat.py as tensors, what they were made of as metadata.

Written by hand because the library wants all tensors in memory at once. The format: length of the header (8 bytes),
header (JSON, padded with spaces to a multiple of 8), then the tensors' bytes without gaps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from elmo.embed.dump.flat import flat_arrays
from elmo.embed.dump.part_files import Parts

_DTYPES = {"int64": "I64", "float32": "F32", "float16": "F16", "uint8": "U8"}


def write_safetensors(path: Path, parts: Parts) -> None:
    """Streams the arrays after a header that is known beforehand."""
    arrays = flat_arrays(parts)
    header: dict[str, Any] = {"__metadata__": {"elmo": json.dumps(parts.plan["vectors"])}}
    offset = 0
    for array in arrays:
        header[array.name] = {
            "dtype": _DTYPES[array.dtype.name],
            "shape": array.shape,
            "data_offsets": [offset, offset + array.num_bytes],
        }
        offset += array.num_bytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for array in arrays:
            for piece in array.pieces:
                file.write(np.ascontiguousarray(piece, dtype=array.dtype).tobytes())
