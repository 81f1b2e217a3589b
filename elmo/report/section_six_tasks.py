"""Sections made of task runs: Tables 1, 2 and 3, Figures 1 and 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elmo.report import sample_efficiency as efficiency
from elmo.report.layer_tables import LAYERS, PLACES, Kind, Row, notes
from elmo.report.mix_weights import MixRow, as_svg, layer_name
from elmo.report.page import Cell, Missing, Part, Picture, Section, Sources, Table
from elmo.report.run_groups import Record, Score, title_of
from elmo.report.significance import Noise, compare, noise_of

_FILES = "--train train.iob2 --dev dev.iob2 --test test.iob2"
_SHOWN = ("task", "config", "data", "elmo", "vectors", "parameters", "seconds", "device", "versions")


class TaskSources:
    """Gives each group of runs its place among the page's sources."""

    def __init__(self, sources: Sources, records: Sequence[Record]) -> None:
        self.sources, self.records = sources, {record["path"]: record for record in records}

    def key(self, paths: Sequence[str]) -> str:
        runs = [self.records[path] for path in paths]
        first, elmo = runs[0], runs[0]["config"]["elmo"]
        how = (
            f"with ELMo ({elmo['layers']} layers, λ {elmo['penalty']:g}, {elmo['place']})"
            if first["elmo"]
            else "no ELMo"
        )
        share = float(first["config"]["data"]["fraction"])
        some = "" if share == 1 else f", {100 * share:g}% of the data"
        seeds = ", ".join(str(run["seed"]) for run in runs)
        facts: dict[str, Any] = {
            "scores": {f"seed {run['seed']}": {"dev": run["dev"], "test": run["test"]} for run in runs},
            **{name: first[name] for name in _SHOWN if name in first},
        }
        title = f"{title_of(first['task'])} {how}{some}, seed{'s' if len(runs) > 1 else ''} {seeds}"
        return self.sources.add(title, paths=paths, command=str(first.get("command", "")), facts=facts)

    def cell(self, score: Score | None, *, strong: bool = False) -> Cell:
        return Cell(text="-") if score is None else Cell(text=str(score), source=self.key(score.paths), strong=strong)


def six_tasks(rows: Sequence[Mapping[str, Any]], picture: str, sources: TaskSources) -> Section:
    """Table 1. `rows` are plain values of the tasks' own table, `picture` its drawing."""
    title, key = "Six tasks (Table 1)", "six-tasks"
    if not rows:
        command = f"elmo task train ner {_FILES} --seeds 3 --out runs/ner\n"
        command += f"elmo task train ner {_FILES} --seeds 3 --elmo default --out runs/ner-elmo"
        return Section(
            key=key, title=title, parts=[Missing(what="task runs on a whole training file", command=command)]
        )
    head = (
        "Task",
        "Paper: before",
        "Paper: baseline",
        "Paper: +ELMo",
        "Paper: gain",
        "Baseline",
        "+ELMo",
        "Gain",
        "Seeds",
    )
    lines: list[list[Cell | str]] = []
    for row in rows:
        paper, ours = row["paper"], (row["baseline"], row["elmo"])
        spread = "" if paper["elmo_deviation"] is None else f" ± {paper['elmo_deviation']}"
        lines.append(
            [
                f"{paper['title']} ({paper['metric']})",
                f"{paper['previous']}",
                f"{paper['baseline']}",
                f"{paper['elmo']}{spread}",
                _gain(paper["absolute"], paper["relative"]),
                *(_entry(entry, sources) for entry in ours),
                Cell(text=_gain(row["absolute"], row["relative"]), strong=True),
                " / ".join(str(len(entry["seeds"]) if entry else 0) for entry in ours),
            ]
        )
    remarks = ["Gain: points, and the share of the baseline's error that is gone. ± is the deviation over seeds."]
    remarks += [
        f"{row['paper']['title']}: with and without ELMo are from different files; do not compare them."
        for row in rows
        if not row["same_data"]
    ]
    table = Table(
        caption="Test figures with and without ELMo, the paper's and ours", head=head, rows=lines, notes=remarks
    )
    caption = "What ELMo adds, in points: the paper's above ours; the line at a bar's end is the deviation over seeds"
    drawn = Picture(name="six-tasks-picture", svg=picture, caption=caption)
    text = (
        "Data differ from the paper's for several tasks, so the gains can be compared, the figures themselves cannot."
    )
    return Section(key=key, title=title, parts=[text, drawn, table])


def _entry(entry: Mapping[str, Any] | None, sources: TaskSources) -> Cell:
    if entry is None:
        return Cell(text="-")
    spread = "" if entry["deviation"] is None else f" ± {entry['deviation']:.2f}"
    dev = " (dev)" if entry["split"] == "dev" else ""
    return Cell(text=f"{entry['mean']:.2f}{spread}{dev}", source=sources.key(entry["paths"]))


def _gain(absolute: float | None, relative: float | None) -> str:
    if absolute is None:
        return "-"
    return f"{absolute:+.2f}" + ("" if relative is None else f" / {relative:.1f}%")


def layers_section(rows: Sequence[Row], sources: TaskSources) -> Section:
    text = "λ pulls the mix towards the plain average of the layers: 1 nearly forces it, 0.001 lets the task choose."
    return _compared("layers", "Which layers (Table 2)", LAYERS, rows, sources, text, "layers")


def places_section(rows: Sequence[Row], sources: TaskSources) -> Section:
    text = "ELMo beside the word vectors, beside the states of the task's own encoder, or both."
    return _compared("places", "Which place (Table 3)", PLACES, rows, sources, text, "places")


def _compared(
    key: str, title: str, kind: Kind, rows: Sequence[Row], sources: TaskSources, text: str, only: str
) -> Section:
    parts: list[Part] = [text]
    if not rows:
        command = f"elmo task sweep ner --train train.iob2 --dev dev.iob2 --only {only} --out runs/ner-sweep"
        parts.append(Missing(what="runs that differ in this alone", command=command))
    shown = {row.task for row in rows}
    lines: list[list[Cell | str]] = []
    for row in rows:
        if row.paper is not None:
            lines.append([f"{row.title}, paper", *map(str, row.paper)])
        best = max((score for score in row.ours if score is not None), key=lambda score: score.mean)
        noise = noise_of(row.ours)
        cells = [sources.cell(score, strong=_is_level(score, best, noise)) for score in row.ours]
        lines.append([f"{row.title}, here ({row.metric})", *cells])
    for task in (task for task in kind.paper if task not in shown):
        lines.append([f"{title_of(task)}, paper", *map(str, kind.paper[task])])
    caption = f"{kind.title}: the paper's figures and ours"
    bold = ["Bold: the best of ours, and what is not told apart from it."] if rows else []
    parts.append(Table(caption=caption, head=("Task", *kind.columns), rows=lines, notes=[*bold, *notes(rows)]))
    return Section(key=key, title=title, parts=parts)


def _is_level(score: Score | None, best: Score, noise: Noise | None) -> bool:
    return score is best or (noise is not None and compare(best, score, noise) == 0)


def efficiency_section(
    found: Sequence[efficiency.Efficiency], updates: Sequence[efficiency.Efficiency], sources: TaskSources
) -> Section:
    """Figure 1 of the tasks with two shares or more, and the updates saved in each task."""
    text = "With 1 percent of the data and ELMo, SRL is about as good as with 10 percent without."
    parts: list[Part] = [f"The paper: {efficiency.PAPER} {text}"]
    if not found:
        command = "elmo task curve ner --train train.iob2 --dev dev.iob2 --test test.iob2 --out runs/ner-curve"
        parts.append(
            Missing(what="runs on two or more shares of a training file, with and without ELMo", command=command)
        )
    for one in found:
        caption = (
            f"{one.title}: {one.metric} on {one.split} by share of the training data; bars are deviations over seeds"
        )
        parts.append(Picture(name=f"efficiency-{one.task}", svg=efficiency.as_svg(one), caption=caption))
        rows: list[list[Cell | str]] = []
        for share in one.shares:
            cells: list[Cell | str] = list(efficiency.cells(share))
            cells[2:4] = [sources.cell(share.baseline), sources.cell(share.elmo)]
            rows.append(cells)
        caption = f"{one.title}: {one.metric} on {one.split}; updates until dev is as good as the baseline's best"
        parts.append(Table(caption=caption, head=efficiency.HEAD, rows=rows))
    saved = [_saved(one, one.largest, sources) for one in updates if one.largest is not None]
    if saved:
        caption = "Updates until dev is as good as the baseline's best, on the largest share of each task"
        head = ("Task", "share", *efficiency.HEAD[5:], "Seeds")
        parts.append(Table(caption=caption, head=head, rows=saved))
    return Section(key="efficiency", title="Sample efficiency (Figure 1)", parts=parts)


def _saved(one: efficiency.Efficiency, share: efficiency.Share, sources: TaskSources) -> list[Cell | str]:
    assert share.reach is not None
    assert share.baseline is not None
    assert share.elmo is not None
    best, reached, fewer = efficiency.reach_cells(share.reach)
    keys = [sources.key(side.paths) for side in (share.baseline, share.elmo)]
    cells = [Cell(text=best, source=keys[0]), Cell(text=reached, source=keys[1]), Cell(text=fewer, strong=True)]
    return [one.title, f"{100 * share.share:g}%", *cells, str(share.reach.seeds)]


def mixes_section(rows: Sequence[MixRow], sources: TaskSources) -> Section:
    """Figure 2."""
    text = (
        "The paper: at the input all tasks favour the first biLSTM layer, coreference and SQuAD strongly; at the "
        "output the weights are near uniform, with a slight preference for lower layers. It gives no single values."
    )
    parts: list[Part] = [text]
    if rows:
        caption = "Softmax-normalised weights of the layers in each mix, means over seeds"
        parts.append(Picture(name="mix-weights", svg=as_svg(rows), caption=caption))
        num_layers = max(len(row.weights) for row in rows)
        head = ("Mix", *map(layer_name, range(num_layers)), "γ", "λ", "Seeds")
        parts.append(
            Table(caption="The same in numbers", head=head, rows=[_mix_line(r, num_layers, sources) for r in rows])
        )
    else:
        command = f"elmo task train ner {_FILES} --elmo default --out runs/ner-elmo"
        parts.append(Missing(what="runs with a learned mix", command=command))
    return Section(key="mixes", title="Mix weights (Figure 2)", parts=parts)


def _mix_line(row: MixRow, num_layers: int, sources: TaskSources) -> list[Cell | str]:
    key = sources.key(row.paths)
    cells: list[Cell | str] = [row.title]
    for weight, spread in zip(row.weights, row.deviations, strict=True):
        text = f"{weight:.3f}" + ("" if spread is None else f" ± {spread:.3f}")
        cells.append(Cell(text=text, source=key, strong=weight == max(row.weights)))
    cells += ["-"] * (num_layers - len(row.weights))
    return [*cells, f"{row.gamma:.2f}", f"{row.penalty:g}", str(len(row.seeds))]
