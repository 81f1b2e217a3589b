"""Draws words per second as a bar chart, from the output of `elmo bench --json` or peers/allennlp_side.py.

    python benchmarks/speed_picture.py benchmarks/results/allennlp_zen4_202611.json --out docs/pictures/speed.svg

There is one panel per size and feed, each with its own scale; AllenNLP's variants and ours have two colours. The last
line of the file that is a JSON object is read.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from elmo.charts.svg import label, picture

WIDTH, MARGIN, NAME_WIDTH, VALUE_WIDTH, STEP, BAR = 420, 10, 112, 118, 20, 13  # names are left of a bar, values right
FEEDS = {"bulk": "many sentences", "single": "one sentence at a time"}
LABELS = {"allennlp": "AllenNLP", "allennlp sorted": "AllenNLP, sorted", "torch float32": "PyTorch float32"}
OMITTED = ("loop", "loop sorted", "torch bfloat16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.write_text(make_svg(read_record(options.record)["results"]), encoding="utf-8")


def read_record(path: Path) -> dict[str, Any]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    return json.loads(lines[-1])


def make_svg(results: list[dict[str, Any]]) -> str:
    parts, descriptions, y = [], [], 8.0
    for size, feed in dict.fromkeys((r["size"], r["feed"]) for r in results):
        rows = [r for r in results if (r["size"], r["feed"]) == (size, feed) and r["path"] not in OMITTED]
        reference = next((r["words_per_second"] for r in rows if r["path"] == "allennlp"), rows[0]["words_per_second"])
        highest = max(r["words_per_second"] for r in rows)
        y += 20
        parts.append(label(MARGIN, y, f"{size}, {FEEDS[feed]}: words per second"))
        for row in rows:
            y += STEP
            name, speed = LABELS.get(row["path"], row["path"].replace("native ", "")), row["words_per_second"]
            css_class = "second" if row["path"].startswith("allennlp") else "first"
            width = max(1.0, (WIDTH - 2 * MARGIN - NAME_WIDTH - VALUE_WIDTH) * speed / highest)
            parts.append(label(MARGIN + NAME_WIDTH - 8, y + 2, name, kind="small", anchor="end"))
            bar = f'x="{MARGIN + NAME_WIDTH}" y="{y - 8:g}" width="{width:.1f}" height="{BAR}" rx="2"'
            parts.append(f'<rect class="{css_class} mark bar" {bar}/>')
            ratio = row.get("times_allennlp") or speed / reference  # the median of the ratios, if the record has it
            value = f"{speed:,.0f} ({ratio:.1f}x)"
            parts.append(label(MARGIN + NAME_WIDTH + width + 6, y + 2, value, kind="small"))
            descriptions.append(f"{size} {feed} {name} {value}")
        y += 12
    return picture(
        "speed", WIDTH, y, title="Words per second on two CPU cores, AllenNLP and this package",
        description="; ".join(descriptions), parts=parts,
    )  # fmt: skip


if __name__ == "__main__":
    main()
