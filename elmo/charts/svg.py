"""The primitives of every chart: an SVG document with title, description and dark mode, and text, marks, bars, lines.

Each CSS rule of a chart is limited to the chart's own id, so that several charts can be inlined in one HTML page.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

# name -> (colour on a light page, on a dark page); text and lines have a contrast of at least 4.5 to the background
COLORS = {
    "ground": ("#ffffff", "#16181c"),
    "ink": ("#1b1c20", "#e7e8eb"),
    "faint": ("#565a63", "#aeb2bb"),
    "rule": ("#d5d8de", "#3a3e46"),
    "first": ("#a8400c", "#ffb083"),
    "second": ("#0b57d0", "#8ab4f8"),
    "third": ("#0b6630", "#83dba0"),
}
SERIES = ("first", "second", "third")  # CSS classes of a chart's series: solid and round, dashed and square, dotted
_STYLE = """
text { font: 15px system-ui, sans-serif; fill: var(--ink) }
.small { font-size: 13px; fill: var(--faint) }
.rule { stroke: var(--rule) }
.first, .second, .third { fill: none; stroke-width: 2.5 }
.first { stroke: var(--first) } .second { stroke: var(--second); stroke-dasharray: 7 3 }
.third { stroke: var(--third); stroke-dasharray: 2 2 }
.mark { stroke-dasharray: none } .first.mark { fill: var(--first) } .second.mark { fill: var(--second) }
.third.mark { fill: var(--third) }
.band { stroke: none; opacity: .22 } .first.band { fill: var(--first) } .second.band { fill: var(--second) }
.third.band { fill: var(--third) }
.bar { stroke: none }
"""


def picture(
    name: str, width: float, height: float, *, title: str, description: str, parts: Sequence[str], style: str = ""
) -> str:
    """An <svg> element with id `name`; `description` says in words what the chart shows, for screen readers.

    `style` adds CSS rules to those that all charts share.
    """
    light, dark = (" ".join(f"--{color}: {pair[side]};" for color, pair in COLORS.items()) for side in (0, 1))
    rules = [f"#{name} {{ {light} }}", *_scoped(name, _STYLE + style)]
    rules.append(f"@media (prefers-color-scheme: dark) {{ #{name} {{ {dark} }} }}")
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{name}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-labelledby="{name}-title {name}-desc">'
    )
    texts = (
        f'<title id="{name}-title">{escape(title)}</title>\n<desc id="{name}-desc">{escape(description)}</desc>\n'
        f"<style>\n{chr(10).join(rules)}\n</style>"
    )
    return "\n".join([head, texts, *parts, "</svg>"]) + "\n"


def label(x: float, y: float, text: str, *, kind: str = "", anchor: str = "") -> str:
    """One line of text with its baseline at (x, y); `kind` holds its CSS classes."""
    classes = f' class="{kind}"' if kind else ""
    alignment = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{classes}{alignment}>{escape(text)}</text>'


def mark(series: str, x: float, y: float, radius: float = 4) -> str:
    """The mark of a point at (x, y): a circle, square or triangle for the first, second or third series."""
    if series == "first":
        return f'<circle class="first mark" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'
    if series == "second":
        side = f'width="{2 * radius:g}" height="{2 * radius:g}"'
        return f'<rect class="second mark" x="{x - radius:.1f}" y="{y - radius:.1f}" {side}/>'
    top = f"{x:.1f},{y - radius:.1f}"
    return (
        f'<polygon class="{series} mark" '
        f'points="{top} {x + radius:.1f},{y + radius:.1f} {x - radius:.1f},{y + radius:.1f}"/>'
    )


def bar(series: str, x: float, y: float, width: float, height: float) -> str:
    """A filled horizontal bar with its upper left corner at (x, y)."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:g}"'
    return f'<rect class="{series} mark bar" {place} rx="2"/>'


def segment(kind: str, x: float, y: float, *, to_x: float | None = None, to_y: float | None = None) -> str:
    """A horizontal line from (x, y) to `to_x`, or a vertical one to `to_y`; `kind` holds its CSS classes."""
    end = f"H{to_x:.1f}" if to_x is not None else f"V{to_y:.1f}"
    return f'<path class="{kind}" d="M{x:.1f} {y:.1f}{end}"/>'


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours (#rrggbb) as WCAG 2 defines it, 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _scoped(name: str, style: str) -> list[str]:
    """The CSS rules with every selector limited to the descendants of the element with id `name`."""
    rules = []
    for rule in filter(str.strip, style.split("}")):
        selectors, _, body = rule.partition("{")
        scoped = ", ".join(f"#{name} {selector.strip()}" for selector in selectors.split(","))
        rules.append(f"{scoped} {{ {body.strip()} }}")
    return rules
