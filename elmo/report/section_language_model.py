"""The section about the language model itself: perplexities and the course of training."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from elmo.charts.line import Line, line_chart
from elmo.report.collect import Evidence, Found
from elmo.report.page import Cell, Missing, Part, Picture, Section, Sources, Table

PAPER_PERPLEXITY = 39.7


def language_model_section(evidence: Evidence, sources: Sources) -> Section:
    """Perplexities on held-out text and how training went."""
    parts: list[Part] = [
        f"The paper's biLM reaches {PAPER_PERPLEXITY} (mean of both directions) on the 1B Word benchmark it was "
        "trained on, after ten epochs. Perplexities of different texts and vocabularies cannot be compared."
    ]
    if not evidence.trainings:
        parts.append(Missing(what="training", command="elmo pretrain text.txt --out runs/my-model"))
    for found in evidence.trainings:
        name = name_of_run(found.path)
        facts = {n: found.values[n] for n in ("step", "stopped", "best", "definition") if n in found.values}
        key = sources.add(
            f"Training {name}", paths=[found.path], command="elmo pretrain --config config.toml", facts=facts
        )
        course = evidence.courses.get(found.path, [])
        if len(course) > 1:
            parts.append(_course(name, course))
        parts.append(_perplexities(name, found.values["perplexity"], key))
    parts += [_other_text(found, sources) for found in evidence.perplexities]
    for found in evidence.finetunings:
        name = name_of_run(found.path)
        facts = {"coverage": found.values["coverage"]}
        key = sources.add(f"Fine-tuning {name}", paths=[found.path], command="elmo finetune MODEL TEXT", facts=facts)
        parts.append(_finetuned(name, found.values, key))
    return Section(key="language-model", title="The language model", parts=parts)


def name_of_run(path: str) -> str:
    """The folder of a training, and what its file begins with where several lie in one folder."""
    *folders, file = path.split("/")
    start = re.sub(r"\.?(report|finetune)?\.json$", "", file)
    return " ".join(part for part in (folders[-1] if folders else "", start) if part) or file


def _course(name: str, course: Sequence[Mapping[str, float]]) -> Picture:
    lines = [Line(label="state reset", points=[(p["step"], p["reset"], None) for p in course])]
    carried = [(p["step"], p["carried"], None) for p in course if p.get("carried") is not None]
    if carried:
        lines.append(Line(label="state carried", points=carried))
    key = "course-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    title = f"{name}: perplexity on held-out text by step"
    svg = line_chart(key, lines, title=title, x_label="updates", y_label="perplexity", log_y=True)
    return Picture(name=key, svg=svg, caption=f"{title}; reset: each sentence from a fresh state; logarithmic")


def _perplexities(name: str, values: Mapping[str, Any], key: str) -> Table:
    rows: list[list[Cell | str]] = [
        [f"all text, state {state}", *_directions(values[state], key, strong=True)]
        for state in ("reset", "carried")
        if values.get(state)
    ]
    for source, figures in (values.get("by_source") or {}).items():
        rows.append([source.split("/")[-1].split(".")[0], *_directions(figures, key)])
    head = ("Held-out text", "Forward", "Backward", "Mean", "Predictions")
    return Table(caption=f"{name}: perplexity of held-out text", head=head, rows=rows)


def _directions(figures: Mapping[str, Any], key: str, *, strong: bool = False) -> list[Cell]:
    cells = [Cell(text=f"{figures[side]:.1f}", source=key) for side in ("forward", "backward")]
    mean = Cell(text=f"{figures['mean']:.1f}", source=key, strong=strong)
    return [*cells, mean, Cell(text=f"{figures['predictions']:,}")]


def _other_text(found: Found, sources: Sources) -> Table:
    """What `elmo perplexity` found on files of any kind."""
    values = found.values
    names = [str(file).split("/")[-1] for file in values["files"]]
    files, several = ", ".join(names), values.get("by_source") or {}
    command = values.get("command") or shlex.join(["elmo", "perplexity", "MODEL", *names, "--json"])
    facts = {name: values[name] for name in ("files", "words", "unknown", "definition")}
    title = f"Perplexity of {files if len(names) < 4 else f'{len(names)} files'}"
    key = sources.add(title, paths=[found.path], command=command, facts=facts)
    rows: list[list[Cell | str]] = []
    for name, one in {**several, "all text" if several else files: values}.items():
        *means, predictions = _directions(one["reset"], key, strong=one is values)
        carried = Cell(text=f"{one['carried']['mean']:.1f}", source=key) if one.get("carried") else "-"
        shown = name.split("/")[-1].split(".txt")[0]
        rows.append([shown, *means, carried, f"{100 * one['unknown']:.1f}%", predictions])
    head = ("Text", "Forward", "Backward", "Mean", "Mean, state carried", "Unknown", "Predictions")
    note = f"{values['words']:,} words; unknown: outside the vocabulary; state reset at each sentence, or carried."
    caption = f"Perplexity of {'held-out text by source' if several else 'other text'}"
    return Table(caption=caption, head=head, rows=rows, notes=[note])


def _finetuned(name: str, values: Mapping[str, Any], key: str) -> Table:
    rows: list[list[Cell | str]] = []
    before, after = values["before"], values["after"]
    for source, figures in (before.get("by_source") or {"all": before}).items():
        then = (after.get("by_source") or {"all": after}).get(source)
        means = [((found or {}).get("reset") or {}).get("mean") for found in (figures, then)]
        cells = [Cell(text="-" if mean is None else f"{mean:.1f}", source=key) for mean in means]
        rows.append([source.split("/")[-1].split(".")[0], *cells])
    return Table(
        caption=f"{name}: perplexity before and after fine-tuning", head=("Held-out text", "Before", "After"), rows=rows
    )
