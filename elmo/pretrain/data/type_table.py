"""Writes the table of word types (the distinct words of a corpus): the spelling and character ids of each.

`splits` writes the table and `prepared` reads it. A token of the corpus is then one integer, its type id, and the
network looks up its characters by that id.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elmo.text.chars import BEGIN_SENTENCE, BEGIN_WORD, END_SENTENCE, END_WORD, PAD, boundary_row

_WORDS_PER_BLOCK = 1 << 16


def write_types(folder: Path, words: Sequence[str], bos: int, eos: int, max_chars: int) -> np.ndarray:
    """Writes types.bin, types.npy and type_chars.npy; returns the number of bytes of each word, (num_types,)."""
    sizes: list[int] = []
    chars = np.lib.format.open_memmap(
        folder / "type_chars.npy", mode="w+", dtype=np.uint16, shape=(len(words), max_chars)
    )  # (num_types, C)
    with open(folder / "types.bin", "wb") as file:
        for start in range(0, len(words), _WORDS_PER_BLOCK):
            encoded = [word.encode() for word in words[start : start + _WORDS_PER_BLOCK]]
            sizes += map(len, encoded)
            file.write(b"".join(encoded))
            chars[start : start + len(encoded)] = char_rows(encoded, max_chars)
    for type_id, boundary in ((bos, BEGIN_SENTENCE), (eos, END_SENTENCE)):
        chars[type_id] = boundary_row(boundary, max_chars)
    chars.flush()
    del chars
    lengths = np.array(sizes, dtype=np.int64)
    np.save(folder / "types.npy", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    return lengths


def char_rows(words: Sequence[bytes], max_chars: int) -> np.ndarray:
    """`elmo.text.chars.encode_token` of many UTF-8 words at once, (len(words), max_chars) uint16."""
    truncated = [word[: max_chars - 2] for word in words]
    lengths = np.fromiter(map(len, truncated), dtype=np.int64, count=len(truncated))
    data = np.frombuffer(b"".join(truncated), dtype=np.uint8)
    row_indices = np.repeat(np.arange(len(truncated)), lengths)  # (bytes,)
    columns = np.arange(len(data)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1  # (bytes,)
    rows = np.full((len(truncated), max_chars), PAD + 1, dtype=np.uint16)  # (words, C)
    rows[:, 0] = BEGIN_WORD + 1
    rows[row_indices, columns] = data.astype(np.uint16) + 1
    rows[np.arange(len(truncated)), lengths + 1] = END_WORD + 1
    return rows
