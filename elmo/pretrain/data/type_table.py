"""The table of a corpus' distinct words: their spelling and their character ids, each stored once.

Written by `shards`, read through `prepared`. A token of the corpus is then one number, and the network looks its
characters up by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elmo.files import create_mapped
from elmo.text.chars import BEGIN_SENTENCE, BEGIN_WORD, END_SENTENCE, END_WORD, PAD, boundary_row

_ROWS = 1 << 16


def write_types(folder: Path, words: Sequence[str], bos: int, eos: int, max_chars: int) -> np.ndarray:
    """Writes types.bin, types.npy and type_chars.npy; gives the bytes of each word, (num_types,)."""
    sizes: list[int] = []
    chars = create_mapped(folder / "type_chars.npy", np.uint16, (len(words), max_chars))  # (num_types, C)
    with open(folder / "types.bin", "wb") as file:
        for start in range(0, len(words), _ROWS):
            encoded = [word.encode() for word in words[start : start + _ROWS]]
            sizes += map(len, encoded)
            file.write(b"".join(encoded))
            chars[start : start + len(encoded)] = char_rows(encoded, max_chars)
    for number, mark in ((bos, BEGIN_SENTENCE), (eos, END_SENTENCE)):
        chars[number] = boundary_row(mark, max_chars)
    del chars  # `atomic_folder` syncs the file
    lengths = np.array(sizes, dtype=np.int64)
    np.save(folder / "types.npy", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    return lengths


def char_rows(words: Sequence[bytes], max_chars: int) -> np.ndarray:
    """`elmo.text.chars.encode_token` of many words at once, (len(words), max_chars) uint16."""
    cut = [word[: max_chars - 2] for word in words]
    lengths = np.fromiter(map(len, cut), dtype=np.int64, count=len(cut))
    data = np.frombuffer(b"".join(cut), dtype=np.uint8)
    row_numbers = np.repeat(np.arange(len(cut)), lengths)  # (bytes,)
    columns = np.arange(len(data)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1  # (bytes,)
    rows = np.full((len(cut), max_chars), PAD + 1, dtype=np.uint16)  # (words, C)
    rows[:, 0] = BEGIN_WORD + 1
    rows[row_numbers, columns] = data.astype(np.uint16) + 1
    rows[np.arange(len(cut)), lengths + 1] = END_WORD + 1
    return rows
