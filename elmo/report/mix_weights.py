"""The weights that the tasks learn for the layers (the paper's section 5.5 and Figure 2), from task runs.

Only runs with a learned mix of all layers count. If a task has runs with several settings, those on the largest share
of the data are shown, then those with the smallest regularization λ, then the most seeds, then the best dev score.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from elmo.charts.heat_map import heat_map
from elmo.report.run_groups import TITLES, Record, data_share, group_runs, sample_deviation, score, task_title

_OTHER_PLACE = {"input": "output", "output": "input"}


@dataclass(frozen=True, kw_only=True)
class MixRow:
    """One mix: the softmax-normalised weights of the layers, token layer first, as means over seeds."""

    task: str
    place: str  # of this mix: input or output
    also: bool  # whether the model has a mix at the other place too
    weights: tuple[float, ...]
    deviations: tuple[float | None, ...]
    gamma: float
    penalty: float
    seeds: tuple[int, ...]
    paths: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{task_title(self.task)}, {self.place}" + (f" (and {_OTHER_PLACE[self.place]})" if self.also else "")


def mix_rows(records: Sequence[Record]) -> list[MixRow]:
    """One row for each task and place with a learned mix: inputs first, tasks in the paper's order."""
    learned = [r for r in records if r["elmo"] is not None and r["mixes"] and r["config"]["elmo"]["layers"] == "all"]
    candidates: dict[tuple[str, str], list[list[Record]]] = defaultdict(list)
    for group in group_runs(learned).values():
        # runs of one group have mixes of the same size, unless a record was changed
        for _, members in groupby(sorted(group, key=_num_weights), key=_num_weights):
            same_size = list(members)
            candidates[same_size[0]["task"], same_size[0]["config"]["elmo"]["place"]].append(same_size)
    rows = []
    for (task, _), groups in candidates.items():
        runs = max(groups, key=_rank)
        rows += [_row(task, place, runs) for place in runs[0]["mixes"]]
    order = {task: number for number, task in enumerate(TITLES)}
    return sorted(rows, key=lambda r: (r.place != "input", order.get(r.task, len(order)), r.task, r.also))


def _num_weights(record: Record) -> list[tuple[str, int]]:
    return sorted((place, len(mix["weights"])) for place, mix in record["mixes"].items())


def _rank(runs: Sequence[Record]) -> tuple[float, ...]:
    return data_share(runs[0]), -runs[0]["config"]["elmo"]["penalty"], len(runs), score(runs, split="dev").mean


def _row(task: str, place: str, runs: Sequence[Record]) -> MixRow:
    by_layer = list(zip(*(r["mixes"][place]["weights"] for r in runs), strict=True))
    return MixRow(
        task=task,
        place=place,
        also=len(runs[0]["mixes"]) > 1,
        weights=tuple(sum(values) / len(values) for values in by_layer),
        deviations=tuple(sample_deviation(values) for values in by_layer),
        gamma=sum(float(r["mixes"][place]["gamma"]) for r in runs) / len(runs),
        penalty=float(runs[0]["config"]["elmo"]["penalty"]),
        seeds=tuple(int(r["seed"]) for r in runs),
        paths=tuple(str(r.get("path", "")) for r in runs),
    )


def as_svg(rows: Sequence[MixRow], name: str = "mix-weights") -> str:
    """A heat map: mixes as rows, layers as columns."""
    num_layers = max((len(row.weights) for row in rows), default=0)
    return heat_map(
        name,
        {row.title: row.weights for row in rows},
        list(map(layer_name, range(num_layers))),
        title="Softmax-normalised mix weights by task, place and layer",
        note="Darker: more weight. Bold: the largest of its row.",
    )


def layer_name(layer: int) -> str:
    """The name of a layer in tables and charts; layer 0 is the token layer."""
    return "tokens" if layer == 0 else f"layer {layer}"
