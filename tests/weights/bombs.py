"""Writes small files that unpack to gigabytes although each layer of them expands little, for tests of the readers.

The layers multiply: a zip that unpacks to 100 times its size, with an HDF5 file that decompresses to 40 times its size.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import torch

P, H = 4, 4
CHUNK_ROWS = 1 << 20  # of the word table: 16 MB


def write_word_model(folder: Path, num_words: int, *, file_bytes: int) -> None:
    """A word model in the published layout: its table is compressed zeros, and zeros follow to fill the file."""
    options = {"bidirectional": False, "lstm": {"dim": H, "projection_dim": P, "n_layers": 1}}
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(options))
    chunk = zlib.compress(bytes(CHUNK_ROWS * P * 4), 9)
    path = folder / "weights.hdf5"
    with h5py.File(path, "w") as file:
        table = file.create_dataset("embedding", (num_words, P), "f4", chunks=(CHUNK_ROWS, P), compression="gzip")
        for row in range(0, num_words, CHUNK_ROWS):
            table.id.write_direct_chunk((row, 0), chunk)
        cell = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/"
        file[cell + "W_0"] = np.zeros((2 * P, 4 * H), np.float32)
        file[cell + "B"] = np.zeros(4 * H, np.float32)
    with path.open("r+b") as file_end:
        file_end.truncate(max(file_bytes, path.stat().st_size))


def zip_folder(folder: Path, path: Path, *, num_random: int) -> Path:
    """The folder as a zip, and random bytes beside the model, so that the zip is not too small for what it holds."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in sorted(folder.iterdir()):
            archive.write(member, member.name)
        archive.writestr("README.md", random.Random(0).randbytes(num_random))
    return path


def nested_hdf5(folder: Path) -> Path:
    """A zip of 0.5 MB with an HDF5 file of 40 MB with a word table of 1.6 GB."""
    write_word_model(folder / "model", 100 * CHUNK_ROWS, file_bytes=40 << 20)
    return zip_folder(folder / "model", folder / "model.zip", num_random=400_000)


def nested_tar(folder: Path) -> Path:
    """A zip of 0.1 MB with a model.tar.gz of 8 MB whose weights.th has 400 MB of zeros."""
    weights = io.BytesIO()
    torch.save({"model._elmo_lstm.weight": torch.zeros(100 << 20)}, weights)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        info = tarfile.TarInfo("weights.th")
        info.size = weights.seek(0, 2)
        weights.seek(0)
        archive.addfile(info, weights)
    (folder / "model").mkdir()
    padding = 8 << 20  # after the end of the archive, which a reader does not reach
    data = gzip.compress(packed.getvalue(), 1) + bytes(padding)
    (folder / "model" / "model.tar.gz").write_bytes(data)
    return zip_folder(folder / "model", folder / "model.zip", num_random=80_000)


BOMBS = {"nested HDF5": nested_hdf5, "nested tar": nested_tar}
