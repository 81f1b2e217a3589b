"""Vectors as .npz: the arrays of flat.py, for numpy.load."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from elmo.embed.dump.flat import flat_arrays
from elmo.embed.dump.part_file import PartFiles


def write_npz(path: Path, part_files: PartFiles) -> None:
    """Streams the arrays into an uncompressed zip file, whose bytes do not depend on the time of writing."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for array in flat_arrays(part_files):
            entry = zipfile.ZipInfo(f"{array.name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            with archive.open(entry, "w", force_zip64=True) as member:
                header = {
                    "descr": np.lib.format.dtype_to_descr(array.dtype),
                    "fortran_order": False,
                    "shape": array.shape,
                }
                np.lib.format.write_array_header_1_0(member, header)
                for piece in array.pieces:
                    member.write(np.ascontiguousarray(piece, dtype=array.dtype).tobytes())
