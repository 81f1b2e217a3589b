"""One token to its row of character ids: UTF-8 bytes between word marks, padded to a fixed width.

Stands between the tokenizer and the network. Ids are already shifted by one (0 means no character), so they index the
network's character table after its padding row. The layout is the one the published models were trained with.
"""

from __future__ import annotations

import functools
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
    # spelled as text whose characters are the ids, less one: of a sentence's few words, half the time of numpy's steps
    data = tokens
    if not "".join(tokens).isascii():
        data = [token.encode("utf-8", "ignore").decode("latin-1") for token in tokens]
    if max(map(len, data), default=0) > max_chars - 2:
        data = [token[: max_chars - 2] for token in data]
    between = _between(max_chars)
    spelled = chr(BEGIN_WORD) + "".join([token + between[len(token)] for token in data])
    ids = np.frombuffer(spelled[: len(data) * max_chars].encode("utf-16-le"), dtype="<u2").reshape(-1, max_chars)
    return np.add(ids, 1, dtype=np.int32)  # (N, C)


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


@functools.cache
def _between(max_chars: int) -> tuple[str, ...]:
    """What stands between a token of 0, 1, 2 ... bytes and the next one."""
    inside = max_chars - 2
    return tuple(chr(END_WORD) + chr(PAD) * (inside - n) + chr(BEGIN_WORD) for n in range(inside + 1))


def _row(data: bytes, max_chars: int) -> np.ndarray:
    row = np.full(max_chars, PAD + 1, dtype=np.int32)
    row[0] = BEGIN_WORD + 1
    row[1 : len(data) + 1] = np.frombuffer(data, dtype=np.uint8)
    row[1 : len(data) + 1] += 1
    row[len(data) + 1] = END_WORD + 1
    return row
