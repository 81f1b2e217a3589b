"""AllenNLP's ELMoTokenCharactersIndexer and ELMoCharacterMapper: tokens to rows of 50 character ids.

It uses elmo.text.indexer. A token is an object with the attribute `text`, as in AllenNLP, or a string.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from elmo.errors import ConfigError
from elmo.text.chars import BEGIN_SENTENCE, BEGIN_WORD, END_SENTENCE, END_WORD, NUM_CHARS, PAD, boundary_row
from elmo.text.indexer import ByteIndexer


class ELMoCharacterMapper:
    """Words to character ids; `tokens_to_add` gives a token the single character id that stands for it."""

    max_word_length = 50
    beginning_of_sentence_character, end_of_sentence_character = BEGIN_SENTENCE, END_SENTENCE
    beginning_of_word_character, end_of_word_character, padding_character = BEGIN_WORD, END_WORD, PAD
    bos_token, eos_token = "<S>", "</S>"

    def __init__(self, tokens_to_add: Mapping[str, int] | None = None) -> None:
        self.tokens_to_add = dict(tokens_to_add or {})
        for token, number in self.tokens_to_add.items():
            if type(number) is not int or not 0 <= number < NUM_CHARS:
                raise ConfigError(
                    f"tokens_to_add gives {token!r} the character {number!r}; expected a number from 0 to "
                    f"{NUM_CHARS - 1}.",
                    "The model has vectors for these only; 1 to 32 hardly occur in text.",
                )

    def convert_word_to_char_ids(self, word: str) -> list[int]:
        """The ids of a word, shifted by one: 0 means padding."""
        number = self.tokens_to_add.get(word)
        if number is not None:
            row = boundary_row(number, self.max_word_length)
        else:
            row = ByteIndexer(self.max_word_length, specials=True).row(word)
        ids: list[int] = row.tolist()
        return ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ELMoCharacterMapper) and self.tokens_to_add == other.tokens_to_add

    __hash__ = None  # type: ignore[assignment]  # mutable, as in AllenNLP


class ELMoTokenCharactersIndexer:
    """Tokens to lists of character ids, and these to padded tensors."""

    def __init__(
        self,
        namespace: str = "elmo_characters",
        tokens_to_add: Mapping[str, int] | None = None,
        token_min_padding_length: int = 0,
    ) -> None:
        self._namespace, self._min_length = namespace, token_min_padding_length
        self._mapper = ELMoCharacterMapper(tokens_to_add)

    def count_vocab_items(self, token: Any, counter: dict[str, dict[str, int]]) -> None:
        """Does nothing: characters need no vocabulary."""

    def get_empty_token_list(self) -> dict[str, list[list[int]]]:
        """What a text without tokens becomes."""
        return {"elmo_tokens": []}

    def tokens_to_indices(
        self, tokens: Sequence[Any], vocabulary: Any = None, index_name: str = "elmo_tokens"
    ) -> dict[str, list[list[int]]]:
        """The ids of each token, under the name that AllenNLP 2 uses, or under `index_name` (AllenNLP 0.9)."""
        return {index_name: [self._mapper.convert_word_to_char_ids(_text(token)) for token in tokens]}

    def get_padding_lengths(self, indexed_tokens: Mapping[str, Sequence[Any]]) -> dict[str, int]:
        """The number of tokens under each name, or the minimum given to the constructor."""
        return {name: max(len(rows), self._min_length) for name, rows in indexed_tokens.items()}

    def as_padded_tensor_dict(
        self, tokens: Mapping[str, Sequence[list[int]]], padding_lengths: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Ids (T, 50) int64 of each name, cut or padded with zeros to its length."""
        padded = {}
        for name, rows in tokens.items():
            ids = torch.zeros(padding_lengths[name], ELMoCharacterMapper.max_word_length, dtype=torch.long)  # (T, 50)
            for position, row in enumerate(rows[: len(ids)]):
                ids[position] = torch.tensor(row)
            padded[name] = ids
        return padded

    def as_padded_tensor(
        self,
        tokens: Mapping[str, Sequence[list[int]]],
        desired_num_tokens: Mapping[str, int],
        padding_lengths: Mapping[str, int] | None = None,
    ) -> dict[str, Tensor]:
        """The same with the arguments of AllenNLP 0.9; `padding_lengths` is unused there and here."""
        return self.as_padded_tensor_dict(tokens, desired_num_tokens)


def _text(token: Any) -> str:
    text = token if isinstance(token, str) else getattr(token, "text", None)
    if not isinstance(text, str):
        raise TypeError(f"{token!r} has no text; expected a string or a token with the attribute `text`.")
    return text
