"""One token to its row of character ids: UTF-8 bytes between word marks, padded to a fixed width.

Stands between the tokenizer and the network. Ids are already shifted by one (0 means no character), so they index the
network's character table after its padding row. The layout is the one the published models were trained with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NUM_CHARS = 261  # 256 bytes, begin/end of sentence, begin/end of word, padding
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 256, 257, 258, 259, 260
SPECIAL_TOKENS = {"<S>": BEGIN_SENTENCE, "</S>": END_SENTENCE}


def encode_token(token: str, max_chars: int = 50) -> np.ndarray:
    """Character ids of one token, (C,): begin-word, its UTF-8 bytes, end-word, padding.

    Longer tokens are cut to max_chars - 2 bytes, even inside a character. Lone surrogates have no bytes and vanish.
    """
    return _row(token.encode("utf-8", "ignore")[: max_chars - 2], max_chars)


def encode_tokens(tokens: Sequence[str], max_chars: int = 50) -> np.ndarray:
    """What `encode_token` gives for each of many tokens, (N, C), all at once."""
    data = [token.encode("utf-8", "ignore")[: max_chars - 2] for token in tokens]
    lengths = np.fromiter(map(len, data), dtype=np.int64, count=len(data))
    rows = np.full((len(data), max_chars), PAD + 1, dtype=np.int32)  # (N, C)
    rows[:, 0] = BEGIN_WORD + 1
    inside = np.arange(max_chars - 2) < lengths[:, None]  # (N, C - 2)
    rows[:, 1:-1][inside] = np.frombuffer(b"".join(data), dtype=np.uint8).astype(np.int32) + 1
    rows[np.arange(len(data)), lengths + 1] = END_WORD + 1
    return rows


def boundary_row(mark: int, max_chars: int = 50) -> np.ndarray:
    """Character ids of a sentence boundary, (C,): the one character `mark` between word marks."""
    row = np.full(max_chars, PAD + 1, dtype=np.int32)
    row[:3] = BEGIN_WORD + 1, mark + 1, END_WORD + 1
    return row


def decode_row(row: np.ndarray) -> str:
    """The token a row of ids was made from, as far as its bytes are valid text; a boundary row gives <S> or </S>."""
    ids = [int(i) - 1 for i in row if i]
    if len(ids) > 1 and ids[1] in (BEGIN_SENTENCE, END_SENTENCE):
        return next(token for token, mark in SPECIAL_TOKENS.items() if mark == ids[1])
    return bytes(i for i in ids if i < 256).decode("utf-8", "replace")


def _row(data: bytes, max_chars: int) -> np.ndarray:
    row = np.full(max_chars, PAD + 1, dtype=np.int32)
    row[0] = BEGIN_WORD + 1
    row[1 : len(data) + 1] = np.frombuffer(data, dtype=np.uint8)
    row[1 : len(data) + 1] += 1
    row[len(data) + 1] = END_WORD + 1
    return row
