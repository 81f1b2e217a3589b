"""Lines of a file cut into blocks: the unit that is embedded, stored, shared out and resumed.

Where a cut falls depends on the text and the limits alone, never on who asks or when, so every shard and every
resumed run sees the same blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from elmo.text.tokenize import Tokenizer

MAX_CHARS = 1 << 22  # of a block's lines together, so that lines of huge tokens cannot fill the memory


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
    """Blocks of at most so many lines and tokens, each line counted with its two boundaries; a longer line is alone.

    With `multiple`, every block but the last has a multiple of so many lines, whatever their lengths.
    """
    block = Block(number=0, first_line=0)
    tokens = 0
    for line in lines:
        sentence = [token.text for token in tokenize(line)]
        length = len(sentence) + 2
        have = len(block.lines)
        full = have >= max_lines or tokens + length > max_tokens or block.num_chars + len(line) > MAX_CHARS
        if have and full and have % multiple == 0:
            yield block
            block, tokens = Block(number=block.number + 1, first_line=block.first_line + have), 0
        block.lines.append(line)
        block.sentences.append(sentence)
        block.num_chars += len(line)
        tokens += length
    if block.lines:
        yield block
