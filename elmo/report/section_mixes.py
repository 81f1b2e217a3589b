"""The section on mix weights (Figure 2): which layers the tasks use, as a heat map and as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from elmo.report.mix_weights import MixRow, as_svg, layer_name
from elmo.report.page import Cell, Missing, Part, Picture, Section, Table
from elmo.report.sources import Sources


def mixes_section(rows: Sequence[MixRow], sources: Sources) -> Section:
    """Figure 2 and the numbers behind it."""
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
        lines = [_cells(row, num_layers, sources) for row in rows]
        parts.append(Table(caption="The same in numbers", head=head, rows=lines, collapsed=True))
    else:
        command = "elmo task train ner --train train.iob2 --dev dev.iob2 --test test.iob2 --elmo default "
        parts.append(Missing(what="runs with a learned mix", command=f"{command}--out runs/ner-elmo"))
    return Section(key="mixes", title="Mix weights (Figure 2)", parts=parts)


def _cells(row: MixRow, num_layers: int, sources: Sources) -> list[Cell | str]:
    key = sources.add_runs(row.paths)
    cells: list[Cell | str] = [row.title]
    for weight, deviation in zip(row.weights, row.deviations, strict=True):
        text = f"{weight:.3f}" + ("" if deviation is None else f" ± {deviation:.3f}")
        cells.append(Cell(text=text, source=key, strong=weight == max(row.weights)))
    cells += ["-"] * (num_layers - len(row.weights))
    return [*cells, f"{row.gamma:.2f}", f"{row.penalty:g}", str(len(row.seeds))]
