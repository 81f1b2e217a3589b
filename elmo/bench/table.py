"""Measurements as text for people: what is in a column is said in its title."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from elmo.bench.compare import Peaks, Result
from elmo.bench.growth import Growth
from elmo.bench.variants import BASELINES


def comparison_table(results: Sequence[Result], peaks: Peaks) -> str:
    """Every result a line, after a line that says what the limit is made of."""
    parts = [f"{device} {dtype} {peak:,.0f}" for (device, dtype), peak in peaks.items()]
    lines = [f"{torch.get_num_threads()} threads; GFLOP/s of a large product (CPU: one thread): {', '.join(parts)}"]
    present = [name for name in BASELINES if any(name in result.times for result in results)]
    titles = ["size", "feed", "path", "words/s", "spread", *(f"x {name}" for name in present), "of limit", "difference"]
    has_memory = any(result.peak_mb is not None for result in results)
    rows = [[*titles, *(["peak MB"] if has_memory else [])]]
    for result in results:
        low, high = result.spread
        row = [result.size, result.feed, result.path, f"{result.words_per_second:,.0f}", f"{low:,.0f}-{high:,.0f}"]
        row += [_number(result.times.get(name), "{:.2f}") for name in present]
        row += [_number(result.share_of_limit, "{:.0%}"), _number(result.difference_to_plain, "{:.1e}")]
        rows.append([*row, *([_number(result.peak_mb, "{}")] if has_memory else [])])
    return "\n".join([*lines, *aligned(rows, num_left=3)])


def growth_tables(growths: Mapping[str, Growth]) -> str:
    """A table for each thing that cost may grow with."""
    parts = []
    for growth in growths.values():
        rows = [[growth.says, "words", "distinct", "seconds", "words/s"]]
        for point in growth.points:
            speed = f"{point.words_per_second:,.0f}"
            rows.append([f"{point.at:,}", f"{point.words:,}", f"{point.distinct:,}", f"{point.seconds:.3f}", speed])
        parts.append("\n".join(aligned(rows, num_left=0)))
        if growth.left_out:
            left = ", ".join(f"{at:,}" for at in growth.left_out)
            parts[-1] += f"\nleft out, for time: {left}"
    return "\n\n".join(parts)


def aligned(rows: Sequence[Sequence[str]], *, num_left: int) -> list[str]:
    """Lines of cells in columns, the first `num_left` to the left and the rest to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(w) if i < num_left else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
