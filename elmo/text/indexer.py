"""Converts tokens to rows of ids: bytes, characters of a lexicon, word ids, or characters and a word id together.

All rows of a model have the same width W, and 0 means padding in every column, so every network takes ids (B, T, W).
Sentence boundaries are added here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from elmo.text.chars import (
    BEGIN_SENTENCE,
    END_SENTENCE,
    SPECIAL_TOKENS,
    boundary_row,
    encode_token,
    encode_tokens,
    replace_surrogates,
)
from elmo.text.vocab import Vocabulary


class Indexer(Protocol):
    """The interface of all indexers."""

    width: int  # columns of a row
    begin: np.ndarray  # (W,), the boundary row before a sentence
    end: np.ndarray  # (W,), the boundary row after it

    def row(self, token: str) -> np.ndarray:
        """The ids of one token, (W,)."""
        ...


class ByteIndexer:
    """UTF-8 bytes, as most published models read them. With `specials`, the tokens <S> and </S> are boundaries."""

    def __init__(self, max_chars: int = 50, *, specials: bool = False) -> None:
        self.width = max_chars
        self.begin = boundary_row(BEGIN_SENTENCE, max_chars)
        self.end = boundary_row(END_SENTENCE, max_chars)
        self._specials = SPECIAL_TOKENS if specials else {}

    def row(self, token: str) -> np.ndarray:
        mark = self._specials.get(token)
        return encode_token(token, self.width) if mark is None else boundary_row(mark, self.width)

    def rows(self, tokens: Sequence[str]) -> np.ndarray:
        """The ids of many tokens, (N, W); faster than calling `row` for each."""
        ids = encode_tokens(tokens, self.width)
        if self._specials:
            for number, token in enumerate(tokens):
                if token in self._specials:
                    ids[number] = self.row(token)
        return ids


class WordIndexer:
    """Word ids of a vocabulary, for word-level models; unknown words get the id of <UNK>."""

    width = 1

    def __init__(self, vocab: Vocabulary) -> None:
        self._vocab = vocab
        self.begin = np.array([vocab.bos + 1], dtype=np.int32)
        self.end = np.array([vocab.eos + 1], dtype=np.int32)

    def row(self, token: str) -> np.ndarray:
        return np.array([self._vocab.id(replace_surrogates(token)) + 1], dtype=np.int32)


class LexiconIndexer:
    """Characters of a lexicon, followed by a word id if there is a word lexicon: the ELMoForManyLangs family.

    These models were trained with the end-of-word mark before a word and the begin-of-word mark after it, and with
    long words cut to max_chars - 2 characters before both lookups, also if they have no characters. This class does
    the same; without max_chars, which only a model without characters may lack, words are not cut.
    """

    def __init__(
        self, chars: Mapping[str, int] | None, words: Mapping[str, int] | None, max_chars: int | None = 50
    ) -> None:
        assert chars is None or max_chars is not None
        self._chars, self._words, self._max_chars = chars, words, max_chars
        self.width = (max_chars or 0 if chars else 0) + (1 if words else 0)
        self.begin = self._make_row("<bos>", ["<bos>"])
        self.end = self._make_row("<eos>", ["<eos>"])

    def row(self, token: str) -> np.ndarray:
        token = replace_surrogates(token)
        word = token if self._max_chars is None else token[: self._max_chars - 2]
        return self._make_row(word, list(word))

    def _make_row(self, word: str, symbols: Sequence[str]) -> np.ndarray:
        columns: list[int] = []
        if self._chars is not None:
            unknown, pad = self._chars["<oov>"], self._chars["<pad>"]
            columns = [self._chars["<eow>"], *(self._chars.get(s, unknown) for s in symbols), self._chars["<bow>"]]
            columns += [pad] * (self.width - (self._words is not None) - len(columns))
        if self._words is not None:
            columns.append(self._words.get(word, self._words["<oov>"]))
        return np.array(columns, dtype=np.int32) + 1


def token_rows(indexer: Indexer, tokens: Sequence[str]) -> np.ndarray:
    """The ids of many tokens, (N, W)."""
    if isinstance(indexer, ByteIndexer):
        return indexer.rows(tokens)
    return np.stack([indexer.row(token) for token in tokens]) if tokens else np.zeros((0, indexer.width), np.int32)


def sentence_rows(indexer: Indexer, tokens: Sequence[str]) -> np.ndarray:
    """The ids of one sentence with its boundary rows, (T, W), where T is the number of tokens + 2."""
    return np.stack([indexer.begin, *(indexer.row(token) for token in tokens), indexer.end])
