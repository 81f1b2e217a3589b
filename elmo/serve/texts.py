"""The texts of a request as tokens with offsets; an item that cannot be read is a Failure in its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elmo.errors import ElmoError
from elmo.serve.api_error import ApiError
from elmo.serve.jobs import Failure
from elmo.text.inputs import normalize_input
from elmo.text.tokenize import Tokenizer

Offsets = list[tuple[int, int]]
_ITEM = re.compile(r"^texts\[0\]")


@dataclass(frozen=True)
class TextItem:
    """One text of a request: its tokens, and where each is in the raw text (None: the client sent tokens)."""

    tokens: list[str]
    offsets: Offsets | None


def read_texts(
    texts: Sequence[Any], tokenize: Tokenizer, *, field: str, max_texts: int, max_tokens: int
) -> list[TextItem | Failure]:
    """The items in order. Too many texts or tokens are an ApiError, because they concern the whole request."""
    if len(texts) > max_texts:
        raise ApiError(422, "too_many_texts", f"{len(texts):,} texts; at most {max_texts:,} are allowed.", field=field)
    items: list[TextItem | Failure] = []
    num_tokens = 0
    for index, text in enumerate(texts):
        item = _read(text, tokenize, f"{field}[{index}]")
        items.append(item)
        num_tokens += len(item.tokens) if isinstance(item, TextItem) else 0
        if num_tokens > max_tokens:
            message = f"The request has more than {max_tokens:,} tokens. Send the texts in several requests."
            raise ApiError(422, "too_many_tokens", message, field=f"{field}[{index}]")
    return items


def _read(text: Any, tokenize: Tokenizer, where: str) -> TextItem | Failure:
    try:
        inputs = normalize_input([text], tokenize)
    except TypeError as error:
        return Failure(422, "invalid_text", _ITEM.sub(where, str(error)))
    except ElmoError as error:
        return Failure(422, "refused", error.message)
    return TextItem(inputs.sentences[0], inputs.offsets[0])
