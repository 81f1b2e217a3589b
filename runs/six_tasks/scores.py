"""The dev scores of all finished runs of run_all.py as one table: main runs, fine-tuned biLMs and variants."""

from __future__ import annotations

from pathlib import Path

from elmo.report.run_groups import score, task_title
from elmo.report.text_table import markdown_table
from elmo.tasks.record import read_record

FOLDERS = ("runs", "variants", "tries")


def format_scores(out: Path) -> str:
    """A Markdown table with one line per cell: mean and deviation over seeds, best and last epoch, updates."""
    cells: dict[tuple[str, str], list[dict[str, object]]] = {}
    for folder in FOLDERS:
        for file in sorted((out / folder).rglob("record.json")):
            task, *cell, _seed, _name = file.relative_to(out / folder).parts
            name = "/".join(cell if folder == "runs" else (folder, *cell))
            cells.setdefault((task, name), []).append(read_record(file))
    lines = [["Task", "Cell", "Dev", "Seeds", "Best epochs", "Epochs", "Minutes"]]
    for (task, name), records in sorted(cells.items()):
        dev = score(records, split="dev")
        epochs = sorted({str(r["epochs"]) for r in records})
        best = ", ".join(str(r["best"]["epoch"]) for r in records)  # type: ignore[index]
        minutes = sum(sum(r["seconds"].values()) for r in records) / len(records) / 60  # type: ignore[attr-defined]
        lines.append([task_title(task), name, str(dev), str(len(records)), best, ", ".join(epochs), f"{minutes:.1f}"])
    return markdown_table(lines, num_left=2) + "\n"
