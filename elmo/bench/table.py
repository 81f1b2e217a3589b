"""Measurements as aligned text tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from elmo.bench.compare import Peaks, Result
from elmo.bench.growth import Growth
from elmo.bench.variants import BASELINES


def comparison_table(results: Sequence[Result], peaks: Peaks) -> str:
    """One line per result, after a line with the peaks that the roofline is based on."""
    peak_texts = [f"{device} {dtype} {peak:,.0f}" for (device, dtype), peak in peaks.items()]
    threads = torch.get_num_threads()
    header = f"{threads} threads; GFLOP/s of a large product (CPU: one thread): {', '.join(peak_texts)}"
    baselines = [name for name in BASELINES if any(name in result.times for result in results)]
    ratio_titles = [f"x {name}" for name in baselines]
    titles = ["size", "feed", "path", "words/s", "spread", *ratio_titles, "of roofline", "difference"]
    has_memory = any(result.peak_mb is not None for result in results)
    rows = [[*titles, *(["peak MB"] if has_memory else [])]]
    for result in results:
        low, high = result.spread
        row = [result.size, result.feed, result.variant, f"{result.words_per_second:,.0f}", f"{low:,.0f}-{high:,.0f}"]
        row += [_format(result.times.get(name), "{:.2f}") for name in baselines]
        row += [_format(result.share_of_limit, "{:.0%}"), _format(result.difference_to_plain, "{:.1e}")]
        rows.append([*row, *([_format(result.peak_mb, "{}")] if has_memory else [])])
    return "\n".join([header, *aligned(rows, num_left=3)])


def growth_tables(growths: Mapping[str, Growth]) -> str:
    """One table per quantity that cost may grow with."""
    tables = []
    for growth in growths.values():
        rows = [[growth.says, "words", "distinct", "seconds", "words/s"]]
        for point in growth.points:
            speed = f"{point.words_per_second:,.0f}"
            rows.append([f"{point.at:,}", f"{point.words:,}", f"{point.distinct:,}", f"{point.seconds:.3f}", speed])
        tables.append("\n".join(aligned(rows, num_left=0)))
        if growth.left_out:
            values = ", ".join(f"{value:,}" for value in growth.left_out)
            tables[-1] += f"\nleft out because of the time limit: {values}"
    return "\n\n".join(tables)


def aligned(rows: Sequence[Sequence[str]], *, num_left: int) -> list[str]:
    """Lines of cells in columns; the first `num_left` columns are left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(w) if i < num_left else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _format(value: float | None, template: str) -> str:
    return "" if value is None else template.format(value)
