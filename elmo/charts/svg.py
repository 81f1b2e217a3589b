"""Pictures as plain SVG text that stands alone in a file or inside a page: named, described in words, fit for the dark.

Every rule of a picture's style is held to the picture's own id, so that several can share one page.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

# name: (on a light page, on a dark page); text and lines have at least 4.5 to 1 against the ground
COLORS = {
    "ground": ("#ffffff", "#16181c"),
    "ink": ("#1b1c20", "#e7e8eb"),
    "faint": ("#565a63", "#aeb2bb"),
    "rule": ("#d5d8de", "#3a3e46"),
    "first": ("#a8400c", "#ffb083"),
    "second": ("#0b57d0", "#8ab4f8"),
}
_RULES = """
text { font: 15px system-ui, sans-serif; fill: var(--ink) }
.small { font-size: 13px; fill: var(--faint) }
.rule { stroke: var(--rule) }
.first, .second { fill: none; stroke-width: 2.5 }
.first { stroke: var(--first) } .second { stroke: var(--second); stroke-dasharray: 7 3 }
.mark { stroke-dasharray: none } .first.mark { fill: var(--first) } .second.mark { fill: var(--second) }
.band { stroke: none; opacity: .22 } .first.band { fill: var(--first) } .second.band { fill: var(--second) }
"""


def picture(
    name: str, width: float, height: float, *, title: str, says: str, parts: Sequence[str], rules: str = ""
) -> str:
    """An <svg> with id `name`; `says` is what it shows, in words, for those who do not see it."""
    light, dark = (" ".join(f"--{color}: {pair[side]};" for color, pair in COLORS.items()) for side in (0, 1))
    style = [f"#{name} {{ {light} }}", *_held(name, _RULES + rules)]
    style.append(f"@media (prefers-color-scheme: dark) {{ #{name} {{ {dark} }} }}")
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{name}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-labelledby="{name}-title {name}-says">'
    )
    words = (
        f'<title id="{name}-title">{escape(title)}</title>\n<desc id="{name}-says">{escape(says)}</desc>\n'
        f"<style>\n{chr(10).join(style)}\n</style>"
    )
    return "\n".join([head, words, *parts, "</svg>"]) + "\n"


def label(x: float, y: float, text: str, *, kind: str = "", anchor: str = "") -> str:
    """A line of text with its base at (x, y)."""
    kinds = f' class="{kind}"' if kind else ""
    ends = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kinds}{ends}>{escape(text)}</text>'


def contrast(one: str, other: str) -> float:
    """The ratio of two colours' luminances as WCAG 2 defines it, 1 to 21; colours are written #rrggbb."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _held(name: str, rules: str) -> list[str]:
    """The rules, each selector below the picture's id."""
    found = []
    for rule in filter(str.strip, rules.split("}")):
        selectors, _, body = rule.partition("{")
        below = ", ".join(f"#{name} {selector.strip()}" for selector in selectors.split(","))
        found.append(f"{below} {{ {body.strip()} }}")
    return found
