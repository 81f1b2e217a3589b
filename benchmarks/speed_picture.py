"""Words a second of every path as bars, from what `elmo bench --json` or benchmarks/peers/allennlp_side.py printed.

    python benchmarks/speed_picture.py benchmarks/results/allennlp_zen4_202611.json --out docs/pictures/speed.svg

A panel for each size and way of feeding, each with a scale of its own; others' paths and ours in two colours. The last
line of the file that is a JSON object is taken.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from elmo.charts.svg import label, picture

WIDTH, SIDE, NAMES, WORDS, STEP, BAR = 420, 10, 112, 118, 20, 13  # NAMES and WORDS: room at a bar's two ends
FEEDS = {"bulk": "many sentences", "single": "one sentence at a time"}
NAMED = {"allennlp": "AllenNLP", "allennlp sorted": "AllenNLP, sorted", "torch float32": "PyTorch float32"}
LEFT_OUT = ("loop", "loop sorted", "torch bfloat16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.write_text(as_svg(read(options.record)["results"]), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    return json.loads(lines[-1])


def as_svg(results: list[dict[str, Any]]) -> str:
    """The whole picture."""
    parts, says, y = [], [], 8.0
    for size, feed in dict.fromkeys((r["size"], r["feed"]) for r in results):
        rows = [r for r in results if (r["size"], r["feed"]) == (size, feed) and r["path"] not in LEFT_OUT]
        base = next((r["words_per_second"] for r in rows if r["path"] == "allennlp"), rows[0]["words_per_second"])
        most = max(r["words_per_second"] for r in rows)
        y += 20
        parts.append(label(SIDE, y, f"{size}, {FEEDS[feed]}: words a second"))
        for row in rows:
            y += STEP
            name, speed = NAMED.get(row["path"], row["path"].replace("native ", "")), row["words_per_second"]
            kind = "second" if row["path"].startswith("allennlp") else "first"
            wide = max(1.0, (WIDTH - 2 * SIDE - NAMES - WORDS) * speed / most)
            parts.append(label(SIDE + NAMES - 8, y + 2, name, kind="small", anchor="end"))
            bar = f'x="{SIDE + NAMES}" y="{y - 8:g}" width="{wide:.1f}" height="{BAR}" rx="2"'
            parts.append(f'<rect class="{kind} mark bar" {bar}/>')
            words = f"{speed:,.0f} ({row.get('times_allennlp') or speed / base:.1f}x)"  # the median of ratios, if known
            parts.append(label(SIDE + NAMES + wide + 6, y + 2, words, kind="small"))
            says.append(f"{size} {feed} {name} {words}")
        y += 12
    return picture(
        "speed", WIDTH, y, title="Words a second on two CPU cores, AllenNLP and this package",
        description="; ".join(says), parts=parts,
    )  # fmt: skip


if __name__ == "__main__":
    main()
