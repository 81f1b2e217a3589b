"""Heat maps: a table of shares between 0 and 1, each written in a box that is darker the larger the share is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elmo.charts.svg import contrast, label, picture

TOP, BOX_WIDTH, BOX_HEIGHT, GAP = 34, 78, 38, 3
DARKEST, LIGHTEST = (8, 48, 107), (239, 243, 255)  # RGB of the shares 1 and 0
_STYLE = ".dark { fill: #000000 } .light { fill: #ffffff } .largest { font-weight: 700 }"


def heat_map(name: str, rows: Mapping[str, Sequence[float]], columns: Sequence[str], *, title: str, note: str) -> str:
    """A heat map of rows by their labels; the largest share of each row is bold, `note` is written below."""
    left = 24 + 8 * max(map(len, rows), default=0)
    width, height = max(left + len(columns) * BOX_WIDTH + 8, 330), TOP + len(rows) * BOX_HEIGHT + 34
    parts = [
        label(left + (number + 0.5) * BOX_WIDTH, TOP - 14, column, kind="small", anchor="middle")
        for number, column in enumerate(columns)
    ]
    for number, (row_label, shares) in enumerate(rows.items()):
        y = TOP + number * BOX_HEIGHT
        parts.append(label(left - 10, y + 24, row_label, anchor="end"))
        for column, share in enumerate(shares):
            parts += _box(left + column * BOX_WIDTH, y, share, is_largest=share == max(shares))
    parts.append(label(10, height - 10, note, kind="small"))
    texts = [
        f"{row_label}: " + ", ".join(f"{column} {share:.2f}" for column, share in zip(columns, shares, strict=False))
        for row_label, shares in rows.items()
    ]
    description = ". ".join(texts) + "."
    return picture(name, width, height, title=title, description=description, parts=parts, style=_STYLE)


def shade(share: float) -> str:
    """The colour of a share, #rrggbb, between the lightest (0) and the darkest (1)."""
    share = min(max(share, 0.0), 1.0)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(LIGHTEST, DARKEST, strict=True))


def _box(x: float, y: float, share: float, *, is_largest: bool) -> list[str]:
    color = shade(share)
    text_class = "light" if contrast(color, "#ffffff") >= contrast(color, "#000000") else "dark"
    size = f'width="{BOX_WIDTH - GAP}" height="{BOX_HEIGHT - GAP}"'
    box = f'<rect x="{x}" y="{y}" {size} rx="3" fill="{color}"/>'
    classes = f"{text_class} largest" if is_largest else text_class
    return [box, label(x + (BOX_WIDTH - GAP) / 2, y + 23, f"{share:.2f}", kind=classes, anchor="middle")]
