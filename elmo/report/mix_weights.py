"""Which layers the tasks listen to (the paper's section 5.5 and Figure 2): mix weights from records, as a heat map.

A task's row comes from its runs on the largest share of its data with a learned mix (all layers); of several settings
those that leave the mix most freedom (the smallest lambda) count, then those with the most seeds, then the best on dev.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from elmo.charts.svg import contrast, label, picture
from elmo.report.run_groups import TITLES, Record, deviation, grouped, score, share_of, title_of

TOP, BOX, HIGH, GAP = 34, 78, 38, 3
OTHER = {"input": "output", "output": "input"}
DARKEST, LIGHTEST = (8, 48, 107), (239, 243, 255)  # of weight 1 and weight 0


@dataclass(frozen=True, kw_only=True)
class MixRow:
    """One mix: the softmax weights of the layers, token layer first, as means over seeds."""

    task: str
    place: str  # input or output: where this mix stands
    also: bool  # the model has a mix at the other place too
    weights: tuple[float, ...]
    deviations: tuple[float | None, ...]
    gamma: float
    penalty: float
    seeds: tuple[int, ...]
    paths: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{title_of(self.task)}, {self.place}" + (f" (and {OTHER[self.place]})" if self.also else "")


def mix_rows(records: Sequence[Record]) -> list[MixRow]:
    """A row for every task and place that a learned mix was trained in: inputs first, tasks in the paper's order."""
    learned = [r for r in records if r["elmo"] is not None and r["mixes"] and r["config"]["elmo"]["layers"] == "all"]
    sets: dict[tuple[str, str], list[list[Record]]] = defaultdict(list)
    for runs in grouped(learned).values():
        sets[runs[0]["task"], runs[0]["config"]["elmo"]["place"]].append(runs)
    rows = []
    for (task, _), groups in sets.items():
        runs = max(groups, key=_worth)
        for place in runs[0]["mixes"]:
            rows.append(_row(task, place, runs))
    known = list(TITLES)
    return sorted(
        rows, key=lambda r: (r.place != "input", known.index(r.task) if r.task in known else 99, r.task, r.also)
    )


def _worth(runs: Sequence[Record]) -> tuple[float, ...]:
    return share_of(runs[0]), -runs[0]["config"]["elmo"]["penalty"], len(runs), score(runs, split="dev").mean


def _row(task: str, place: str, runs: Sequence[Record]) -> MixRow:
    by_layer = list(zip(*(r["mixes"][place]["weights"] for r in runs), strict=True))
    return MixRow(
        task=task,
        place=place,
        also=len(runs[0]["mixes"]) > 1,
        weights=tuple(sum(values) / len(values) for values in by_layer),
        deviations=tuple(deviation(values) for values in by_layer),
        gamma=sum(float(r["mixes"][place]["gamma"]) for r in runs) / len(runs),
        penalty=float(runs[0]["config"]["elmo"]["penalty"]),
        seeds=tuple(int(r["seed"]) for r in runs),
        paths=tuple(str(r.get("path", "")) for r in runs),
    )


def as_svg(rows: Sequence[MixRow], name: str = "mix-weights") -> str:
    """The heat map: mixes down, layers across, each weight written in its box."""
    num_layers = max((len(row.weights) for row in rows), default=0)
    left = 24 + 8 * max((len(row.title) for row in rows), default=0)
    width, height = max(left + num_layers * BOX + 8, 330), TOP + len(rows) * HIGH + 34
    parts = [label(left + (n + 0.5) * BOX, TOP - 14, layer_name(n), kind="small", anchor="middle")
             for n in range(num_layers)]  # fmt: skip
    for number, row in enumerate(rows):
        y = TOP + number * HIGH
        parts.append(label(left - 10, y + 24, row.title, anchor="end"))
        for layer, weight in enumerate(row.weights):
            parts += _box(left + layer * BOX, y, weight, is_largest=weight == max(row.weights))
    parts.append(label(10, height - 10, "Darker: more weight. Bold: the largest of its row.", kind="small"))
    said = [f"{row.title}: " + ", ".join(f"{layer_name(n)} {w:.2f}" for n, w in enumerate(row.weights)) for row in rows]
    title = "Softmax-normalised mix weights by task, place and layer"
    rules = ".dark { fill: #000000 } .light { fill: #ffffff } .largest { font-weight: 700 }"
    return picture(name, width, height, title=title, says=". ".join(said) + ".", parts=parts, rules=rules)


def layer_name(layer: int) -> str:
    return "tokens" if layer == 0 else f"layer {layer}"


def _box(x: float, y: float, weight: float, *, is_largest: bool) -> list[str]:
    color = shade(weight)
    kind = "light" if contrast(color, "#ffffff") >= contrast(color, "#000000") else "dark"
    box = f'<rect x="{x}" y="{y}" width="{BOX - GAP}" height="{HIGH - GAP}" rx="3" fill="{color}"/>'
    kinds = f"{kind} largest" if is_largest else kind
    return [box, label(x + (BOX - GAP) / 2, y + 23, f"{weight:.2f}", kind=kinds, anchor="middle")]


def shade(weight: float) -> str:
    """A colour between the lightest (0) and the darkest (1)."""
    share = min(max(weight, 0.0), 1.0)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(LIGHTEST, DARKEST, strict=True))
