"""Groups task runs that differ only in the seed, and computes the mean and standard deviation of their scores.

All tables and figures that combine several runs start here. Records are read as plain data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]
_IGNORED = {  # settings in which runs of one group may differ
    "train.seed", "train.device", "train.precision", "train.keep_checkpoint", "elmo.cache", "elmo.cache_dir",
    "data.train", "data.dev", "data.test",  # files are compared by their sha256 instead
}  # fmt: skip
# settings that older records lack, with the value that they ran with
_DEFAULTS = {"train.validate_after": 0, "data.tokenizer": None}
TITLES = {"squad": "SQuAD", "snli": "SNLI", "srl": "SRL", "coref": "Coref", "ner": "NER", "sst": "SST-5"}
_METRICS = {"f1": "F1", "conll_f1": "average F1"}  # names of metrics in records that are written differently on a page


@dataclass(frozen=True, kw_only=True)
class Score:
    """A metric over seeds, in percent."""

    mean: float
    deviation: float | None  # of the sample; None for one seed
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    paths: tuple[str, ...]  # of the records
    split: str  # dev or test

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.deviation is None else f" ± {self.deviation:.2f}")


def settings_key(record: Record, *, ignore: Collection[str] = ()) -> str:
    """A key that is equal for runs that differ only in the seed, the machine and the settings in `ignore`.

    `ignore` names settings ("elmo.place") or sections ("elmo"). The section elmo of a run without ELMo is ignored.
    """
    ignored = {*_IGNORED, *ignore, *(() if record["elmo"] else ("elmo",))}
    settings = _DEFAULTS | {
        f"{section}.{name}": value
        for section, values in record["config"].items()
        if isinstance(values, dict)
        for name, value in values.items()
    }
    compared = {name: value for name, value in settings.items() if not {name, name.partition(".")[0]} & ignored}
    if "elmo.model" in compared:
        compared["elmo.model"] = record["elmo"]["sha256"]
    compared["words.vectors"] = (record.get("vectors") or {}).get("sha256")
    files = {split: about["sha256"] for split, about in record["data"].items()}
    return json.dumps([record["task"], compared, files], sort_keys=True)


def group_runs(records: Sequence[Record], *, ignore: Collection[str] = ()) -> dict[str, list[Record]]:
    """Records by `settings_key`, in the order of their seeds; a seed that was run twice counts once."""
    groups: dict[str, dict[tuple[int, str], Record]] = {}
    for record in records:
        run = (record["seed"], settings_key(record))
        groups.setdefault(settings_key(record, ignore=ignore), {}).setdefault(run, record)
    return {key: sorted(group.values(), key=lambda r: int(r["seed"])) for key, group in groups.items()}


def without_finetuned(records: Sequence[Record]) -> list[Record]:
    """The records without runs whose biLM was fine-tuned on the task's text. Only Table 7 shows those.

    If a task has no other runs with ELMo on its complete training file, its fine-tuned ones are kept.
    """

    def is_finetuned(record: Record) -> bool:
        return record["elmo"] is not None and bool(record["elmo"].get("finetuning"))

    has_others = {r["task"] for r in records if r["elmo"] and not is_finetuned(r) and data_share(r) == 1.0}
    return [r for r in records if not is_finetuned(r) or r["task"] not in has_others]


def score(records: Sequence[Record], *, split: str = "") -> Score:
    """The metric over records; without `split`, on test if all records have a test score, otherwise on dev."""
    split = split or ("test" if all(r["test"] is not None for r in records) else "dev")
    values = [float(r[split][r["metric"]]) for r in records]
    return Score(
        mean=sum(values) / len(values),
        deviation=sample_deviation(values),
        values=tuple(values),
        seeds=tuple(int(r["seed"]) for r in records),
        paths=tuple(str(r.get("path", "")) for r in records),
        split=split,
    )


def sample_deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample; None for a single value."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def data_share(record: Record) -> float:
    """The share of the training file that the run was trained on."""
    return float(record["config"]["data"]["fraction"])


def metric_title(metric: str) -> str:
    """A record's metric as the paper writes it."""
    return _METRICS.get(metric, metric)


def task_title(task: str) -> str:
    """The task's name as the paper writes it."""
    return TITLES.get(task, task)


def tasks_in_order(records: Sequence[Record]) -> list[str]:
    """The tasks of the records: those of the paper in its order, then others."""
    return sorted({r["task"] for r in records}, key=lambda task: (task not in TITLES, [*TITLES, task].index(task)))
