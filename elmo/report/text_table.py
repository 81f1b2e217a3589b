"""Tables of strings as aligned text for a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def align_columns(lines: Sequence[Sequence[str]], *, num_left: int, rule: bool = False) -> list[str]:
    """The lines with padded cells: the first `num_left` columns to the left, others to the right.

    `rule` adds a line of dashes below the head, which is the first line.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    cells = [[c.ljust(w) if n < num_left else c.rjust(w) for n, (c, w) in enumerate(zip(line, widths, strict=True))]
             for line in lines]  # fmt: skip
    if rule:
        cells.insert(1, ["-" * width for width in widths])
    return ["  ".join(line).rstrip() for line in cells]


def markdown_table(lines: Sequence[Sequence[str]], *, num_left: int) -> str:
    """A Markdown table; the first line is its head, columns are aligned as by `align_columns`."""
    rule = ["---" if column < num_left else "---:" for column in range(len(lines[0]))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (lines[0], rule, *lines[1:]))
