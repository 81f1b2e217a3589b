"""Blocks of consecutive lines: the unit that is embedded, stored, assigned to shards and resumed.

The text and the limits alone decide where a block ends, so every shard and every resumed run gets the same blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from elmo.text.tokenize import Tokenizer

MAX_CHARS = 1 << 22  # of all lines of a block, so that lines of huge tokens cannot fill the memory


@dataclass(kw_only=True)
class Block:
    """Consecutive lines and their tokens."""

    number: int
    first_line: int  # from 0
    lines: list[str] = field(default_factory=list)
    sentences: list[list[str]] = field(default_factory=list)
    num_chars: int = 0

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.sentences))


def cut_blocks(
    lines: Iterable[str], tokenize: Tokenizer, *, max_lines: int, max_tokens: int, multiple: int = 1
) -> Iterator[Block]:
    """Blocks of at most `max_lines` lines and `max_tokens` tokens, two boundaries per line included.

    A longer line is a block of its own. The number of lines of every block but the last is a multiple of `multiple`,
    even where that exceeds the limits.
    """
    sentences = ((line, [token.text for token in tokenize(line)]) for line in lines)
    return group_sentences(sentences, max_lines=max_lines, max_tokens=max_tokens, multiple=multiple)


def group_sentences(
    sentences: Iterable[tuple[str, list[str]]],
    *,
    max_lines: int,
    max_tokens: int,
    multiple: int = 1,
    first_line: int = 0,
) -> Iterator[Block]:
    """The same for lines that come with their tokens."""
    block = Block(number=0, first_line=first_line)
    num_tokens = 0
    for line, sentence in sentences:
        length = len(sentence) + 2
        num_lines = len(block.lines)
        is_full = num_lines >= max_lines or num_tokens + length > max_tokens or block.num_chars + len(line) > MAX_CHARS
        if num_lines and is_full and num_lines % multiple == 0:
            yield block
            block, num_tokens = Block(number=block.number + 1, first_line=block.first_line + num_lines), 0
        block.lines.append(line)
        block.sentences.append(sentence)
        block.num_chars += len(line)
        num_tokens += length
    if block.lines:
        yield block
