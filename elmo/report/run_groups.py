"""Records of task runs gathered by their settings, read as plain data: which runs differ in nothing but the seed.

Stands between record.json and the tables and pictures made of many runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]
_NO_DIFFERENCE = {  # settings in which runs of one group may differ
    "train.seed", "train.device", "train.precision", "elmo.cache", "elmo.cache_dir",
    "data.train", "data.dev", "data.test",  # told apart by their sha256
}  # fmt: skip
# settings that older records do not have, and the value by which runs go on as those did
_ADDED = {"train.validate_after": 0}
TITLES = {"squad": "SQuAD", "snli": "SNLI", "srl": "SRL", "coref": "Coref", "ner": "NER", "sst": "SST-5"}


@dataclass(frozen=True, kw_only=True)
class Score:
    """A figure over seeds, in percent."""

    mean: float
    deviation: float | None  # of the sample; None: one seed
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    paths: tuple[str, ...]  # of the records
    split: str  # dev or test

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.deviation is None else f" ± {self.deviation:.2f}")


def settings_key(record: Record, *, leaving: Collection[str] = ()) -> str:
    """Equal for runs that differ in nothing but the seed, the machine, and what is named in `leaving`.

    `leaving` names settings ("elmo.place") or sections ("elmo"). Without ELMo that section means nothing.
    """
    out = {*_NO_DIFFERENCE, *leaving, *(() if record["elmo"] else ("elmo",))}
    asked = {
        f"{section}.{name}": value
        for section, values in record["config"].items()
        if isinstance(values, dict)
        for name, value in values.items()
    }
    kept = {name: value for name, value in {**_ADDED, **asked}.items() if not {name, name.partition(".")[0]} & out}
    if "elmo.model" in kept:
        kept["elmo.model"] = record["elmo"]["sha256"]
    kept["words.vectors"] = (record.get("vectors") or {}).get("sha256")
    files = {split: about["sha256"] for split, about in record["data"].items()}
    return json.dumps([record["task"], kept, files], sort_keys=True)


def grouped(records: Sequence[Record], *, leaving: Collection[str] = ()) -> dict[str, list[Record]]:
    """Records by `settings_key`, in order of seeds; a seed that was run twice counts once."""
    groups: dict[str, dict[tuple[int, str], Record]] = {}
    for record in records:
        exactly = settings_key(record)
        groups.setdefault(settings_key(record, leaving=leaving), {}).setdefault((record["seed"], exactly), record)
    return {key: sorted(group.values(), key=lambda r: int(r["seed"])) for key, group in groups.items()}


def score(records: Sequence[Record], *, split: str = "") -> Score:
    """The metric's mean and deviation over records; without `split` on test where all have it, else on dev."""
    split = split or ("test" if all(r["test"] is not None for r in records) else "dev")
    values = [float(r[split][r["metric"]]) for r in records]
    return Score(
        mean=sum(values) / len(values),
        deviation=deviation(values),
        values=tuple(values),
        seeds=tuple(int(r["seed"]) for r in records),
        paths=tuple(str(r.get("path", "")) for r in records),
        split=split,
    )


def deviation(values: Sequence[float]) -> float | None:
    """Of the sample; None for a single value."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def share_of(record: Record) -> float:
    """The share of the training file that was trained on."""
    return float(record["config"]["data"]["fraction"])


def title_of(task: str) -> str:
    return TITLES.get(task, task)
