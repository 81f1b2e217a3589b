"""The section on the language model itself: training curves, and perplexities on held-out text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from elmo.charts.line import Line, line_chart
from elmo.report.collect import RecordFile, Records
from elmo.report.page import Cell, Missing, Part, Picture, Section, Table
from elmo.report.sources import Sources

PAPER_PERPLEXITY = 39.7


def language_model_section(records: Records, sources: Sources) -> Section:
    """The training runs, the perplexities of other texts, and fine-tuned models before and after."""
    parts: list[Part] = [
        f"The paper's biLM reaches {PAPER_PERPLEXITY} (mean of both directions) on the 1B Word benchmark, on which it "
        "was trained for ten epochs. Perplexities of different texts and vocabularies cannot be compared."
    ]
    if not records.trainings:
        parts.append(Missing(what="training", command="elmo pretrain text.txt --out runs/my-model"))
    for record in records.trainings:
        name = run_name(record.path)
        facts = {n: record.values[n] for n in ("step", "stopped", "best", "definition") if n in record.values}
        command = str(record.values.get("command") or "elmo pretrain --config config.toml")
        key = sources.add(f"Training {name}", paths=[record.path], command=command, facts=facts)
        course = records.courses.get(record.path, [])
        if len(course) > 1:
            parts.append(_training_curve(name, course))
        parts.append(_training_table(name, record.values["perplexity"], key))
    parts += [_perplexity_table(record, sources) for record in records.perplexities]
    for record in records.finetunings:
        name = run_name(record.path)
        facts = {"coverage": record.values["coverage"]}
        command = str(record.values.get("command") or "elmo finetune MODEL TEXT")
        key = sources.add(f"Fine-tuning {name}", paths=[record.path], command=command, facts=facts)
        parts.append(_finetuning_table(name, record.values, key))
    return Section(key="language-model", title="The language model", parts=parts)


def run_name(path: str) -> str:
    """The folder of a run, with the prefix of its file name if there is one."""
    *folders, file = path.split("/")
    prefix = re.sub(r"\.?(report|finetune)?\.json$", "", file)
    return " ".join(part for part in (folders[-1] if folders else "", prefix) if part) or file


def _training_curve(name: str, course: Sequence[Mapping[str, float]]) -> Picture:
    lines = [Line(label="state reset", points=[(p["step"], p["reset"], None) for p in course])]
    carried = [(p["step"], p["carried"], None) for p in course if p.get("carried") is not None]
    if carried:
        lines.append(Line(label="state carried", points=carried))
    key = "course-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    title = f"{name}: perplexity on held-out text by step"
    svg = line_chart(key, lines, title=title, x_label="updates", y_label="perplexity", log_y=True)
    return Picture(name=key, svg=svg, caption=f"{title}; reset: each sentence starts from a fresh state; logarithmic")


def _training_table(name: str, perplexity: Mapping[str, Any], key: str) -> Table:
    rows: list[list[Cell | str]] = [
        [f"all text, state {state}", *_direction_cells(perplexity[state], key, strong=True)]
        for state in ("reset", "carried")
        if perplexity.get(state)
    ]
    for source, means in (perplexity.get("by_source") or {}).items():
        rows.append([_file_stem(source), *_direction_cells(means, key)])
    head = ("Held-out text", "Forward", "Backward", "Mean", "Predictions")
    return Table(caption=f"{name}: perplexity of held-out text", head=head, rows=rows)


def _direction_cells(perplexity: Mapping[str, Any], key: str, *, strong: bool = False) -> list[Cell]:
    sides = [perplexity.get(side) for side in ("forward", "backward")]  # backward is null for one direction
    cells = [Cell(text="-" if value is None else f"{value:.1f}", source=key) for value in sides]
    mean = Cell(text=f"{perplexity['mean']:.1f}", source=key, strong=strong)
    return [*cells, mean, Cell(text=f"{perplexity['predictions']:,}")]


def _perplexity_table(record: RecordFile, sources: Sources) -> Table:
    """The perplexities of one record of `elmo perplexity`."""
    values = record.values
    names = [str(file).split("/")[-1] for file in values["files"]]
    files, by_source = ", ".join(names), values.get("by_source") or {}
    command = values.get("command") or shlex.join(["elmo", "perplexity", "MODEL", *names, "--json"])
    facts = {name: values[name] for name in ("files", "words", "unknown", "definition")}
    title = f"Perplexity of {files if len(names) < 4 else f'{len(names)} files'}"
    key = sources.add(title, paths=[record.path], command=command, facts=facts)
    rows: list[list[Cell | str]] = []
    for name, one in {**by_source, "all text" if by_source else files: values}.items():
        *means, predictions = _direction_cells(one["reset"], key, strong=one is values)
        carried = Cell(text=f"{one['carried']['mean']:.1f}", source=key) if one.get("carried") else "-"
        text = name.split("/")[-1].split(".txt")[0]
        rows.append([text, *means, carried, f"{100 * one['unknown']:.1f}%", predictions])
    return Table(
        caption=f"Perplexity of {'held-out text by source' if by_source else 'other text'}",
        head=("Text", "Forward", "Backward", "Mean", "Mean, state carried", "Unknown", "Predictions"),
        rows=rows,
        notes=[
            f"{values['words']:,} words; unknown: outside the vocabulary; state reset at each sentence, or carried."
        ],
    )


def _finetuning_table(name: str, values: Mapping[str, Any], key: str) -> Table:
    before, after = (_by_source(values[side] or {}) for side in ("before", "after"))
    rows: list[list[Cell | str]] = []
    for source in before:
        means = [((side.get(source) or {}).get("reset") or {}).get("mean") for side in (before, after)]
        cells = [Cell(text="-" if mean is None else f"{mean:.1f}", source=key) for mean in means]
        rows.append([_file_stem(source), *cells])
    caption = f"{name}: perplexity before and after fine-tuning"
    return Table(caption=caption, head=("Held-out text", "Before", "After"), rows=rows)


def _by_source(perplexity: Mapping[str, Any]) -> Mapping[str, Any]:
    return perplexity.get("by_source") or {"all": perplexity}


def _file_stem(path: str) -> str:
    return path.split("/")[-1].split(".")[0]
