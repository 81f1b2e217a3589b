"""Gains as pairs of bars on one scale: for each task a published gain above ours; narrow enough for a phone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elmo.charts.svg import bar, label, picture, segment

WIDTH, SIDE, TEXT_WIDTH, TOP, STEP, BAR_HEIGHT = 420, 10, 150, 44, 74, 14  # TEXT_WIDTH: room at a bar's end
_STYLE = ".spread { fill: none; stroke: var(--ink); stroke-width: 1.5 }"


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Scores without and with a change; the gain is their difference."""

    before: float
    after: float
    gain: float  # in points; a published gain may be rounded differently from its two scores
    deviation: float = 0.0  # over seeds


@dataclass(frozen=True, kw_only=True)
class GainPair:
    """One task: the published gain, and ours where it was measured."""

    label: str
    published: Gain
    ours: Gain | None


def gain_chart(name: str, pairs: Sequence[GainPair], *, title: str, description: str, missing: str) -> str:
    """A chart with two bars per task; `missing` is written in place of our bar where there is none."""
    ends = [end for pair in pairs for end in (pair.published.gain, *_interval(pair.ours))]
    low, high = min([0.0, *ends]), max([1.0, *ends])

    def across(points: float) -> float:
        return SIDE + (WIDTH - 2 * SIDE - TEXT_WIDTH) * (points - low) / (high - low)

    height = TOP + STEP * len(pairs) + 6
    parts = _legend()
    for number, pair in enumerate(pairs):
        y = TOP + STEP * number
        parts.append(label(SIDE, y + 14, pair.label))
        parts += _bar("second", y + 22, pair.published, across)
        if pair.ours is None:
            parts.append(label(across(0.0) + 4, y + 53, missing, kind="small"))
        else:
            parts += _bar("first", y + 42, pair.ours, across)
    parts.append(segment("rule", across(0), TOP, to_y=height - 6))
    return picture(name, WIDTH, height, title=title, description=description, parts=parts, style=_STYLE)


def _interval(gain: Gain | None) -> tuple[float, float]:
    """The gain minus and plus its deviation."""
    return (0.0, 0.0) if gain is None else (gain.gain - gain.deviation, gain.gain + gain.deviation)


def _bar(series: str, y: float, gain: Gain, across: Callable[[float], float]) -> list[str]:
    start, end = sorted((across(0.0), across(gain.gain)))
    parts = [bar(series, start, y, max(end - start, 1.0), BAR_HEIGHT)]
    low, high = _interval(gain)
    if high > low:
        parts.append(segment("spread", across(low), y + BAR_HEIGHT / 2, to_x=across(high)))
    text = f"{gain.gain:+.1f}: {gain.before:.1f} to {gain.after:.1f}"
    return [*parts, label(across(max(high, 0.0)) + 8, y + 11, text, kind="small")]


def _legend() -> list[str]:
    parts = []
    for x, series, text in ((SIDE, "second", "paper"), (SIDE + 90, "first", "ours, with deviation")):
        parts += [bar(series, x, 10, 22, BAR_HEIGHT), label(x + 30, 22, text)]
    return parts
