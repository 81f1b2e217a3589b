"""The section on sample efficiency (Figure 1): scores by share of the training data, and updates saved."""

from __future__ import annotations

from collections.abc import Sequence

from elmo.report.page import Cell, Missing, Part, Picture, Section, Table
from elmo.report.sample_efficiency import HEAD, PAPER, Efficiency, Share, as_svg, cells, reach_cells
from elmo.report.sources import Sources


def efficiency_section(efficiencies: Sequence[Efficiency], updates: Sequence[Efficiency], sources: Sources) -> Section:
    """Figure 1 for tasks with two or more shares, and the updates saved for every task in `updates`."""
    text = "With 1 percent of the data and ELMo, SRL is about as good as with 10 percent without ELMo."
    parts: list[Part] = [f"The paper: {PAPER} {text}"]
    if not efficiencies:
        command = "elmo task curve ner --train train.iob2 --dev dev.iob2 --test test.iob2 --out runs/ner-curve"
        what = "runs on two or more shares of a training file, with and without ELMo"
        parts.append(Missing(what=what, command=command))
    for one in efficiencies:
        title = f"{one.title}: {one.metric} on {one.split}"
        caption = f"{title} by share of the training data; bars are deviations over seeds"
        parts.append(Picture(name=f"efficiency-{one.task}", svg=as_svg(one), caption=caption))
        rows: list[list[Cell | str]] = []
        for share in one.shares:
            row: list[Cell | str] = list(cells(share))
            row[2:4] = [sources.score_cell(share.baseline), sources.score_cell(share.elmo)]
            rows.append(row)
        caption = f"{title}; updates until dev is as good as the baseline's best"
        parts.append(Table(caption=caption, head=HEAD, rows=rows))
    saved = [_saved_updates(one, one.largest, sources) for one in updates if one.largest is not None]
    if saved:
        caption = "Updates until dev is as good as the baseline's best, on the largest share of each task"
        parts.append(Table(caption=caption, head=("Task", "share", *HEAD[5:], "Seeds"), rows=saved))
    return Section(key="efficiency", title="Sample efficiency (Figure 1)", parts=parts)


def _saved_updates(efficiency: Efficiency, share: Share, sources: Sources) -> list[Cell | str]:
    assert share.reach is not None
    assert share.baseline is not None
    assert share.elmo is not None
    best, reached, fewer = reach_cells(share.reach)
    baseline_key, elmo_key = (sources.add_runs(score.paths) for score in (share.baseline, share.elmo))
    return [
        efficiency.title,
        f"{100 * share.share:g}%",
        Cell(text=best, source=baseline_key),
        Cell(text=reached, source=elmo_key),
        Cell(text=fewer, strong=True),
        str(share.reach.seeds),
    ]
