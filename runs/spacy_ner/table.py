"""Writes the table of runs/spacy_ner/README.md from the scores that `spacy evaluate` has written.

python runs/spacy_ner/table.py FOLDER
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

KINDS = {"baseline": "spaCy's NER", "elmo": "spaCy's NER with ELMo"}


def main(folder: str) -> None:
    print("| | seeds | precision | recall | F1 | F1 of each seed |")
    print("|---|---|---|---|---|---|")
    for kind, name in KINDS.items():
        scores = [json.loads(path.read_text("utf-8")) for path in sorted(Path(folder).glob(f"{kind}-*.json"))]
        if not scores:
            continue
        columns = [_mean([100 * score[key] for score in scores]) for key in ("ents_p", "ents_r", "ents_f")]
        each = ", ".join(f"{100 * score['ents_f']:.1f}" for score in scores)
        print(f"| {name} | {len(scores)} | {' | '.join(columns)} | {each} |")


def _mean(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


if __name__ == "__main__":
    main(*sys.argv[1:])
