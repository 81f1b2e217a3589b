"""The paper's Table 1 from a folder of runs: the paper's figures beside ours, with and without ELMo.

Which runs count: those on the whole training file. Runs that differ in nothing but the seed are one entry. Where a task
has several entries with ELMo (or without), the one with the most seeds and then the best mean on dev is shown: dev
chooses, the figure is test. A task without a test file shows dev, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elmo.report.run_groups import grouped, score


@dataclass(frozen=True, kw_only=True)
class Published:
    """A line of Table 1 of Peters et al. 2018: test figures of single models."""

    title: str
    metric: str
    source: str  # of the best result before
    previous: float
    baseline: float
    elmo: float
    elmo_deviation: float | None
    absolute: float
    relative: float


PUBLISHED = {
    "squad": Published(
        title="SQuAD", metric="F1", source="Liu et al. 2017", previous=84.4,
        baseline=81.1, elmo=85.8, elmo_deviation=None, absolute=4.7, relative=24.9,
    ),
    "snli": Published(
        title="SNLI", metric="accuracy", source="Chen et al. 2017", previous=88.6,
        baseline=88.0, elmo=88.7, elmo_deviation=0.17, absolute=0.7, relative=5.8,
    ),
    "srl": Published(
        title="SRL", metric="F1", source="He et al. 2017", previous=81.7,
        baseline=81.4, elmo=84.6, elmo_deviation=None, absolute=3.2, relative=17.2,
    ),
    "coref": Published(
        title="Coref", metric="average F1", source="Lee et al. 2017", previous=67.2,
        baseline=67.2, elmo=70.4, elmo_deviation=None, absolute=3.2, relative=9.8,
    ),
    "ner": Published(
        title="NER", metric="F1", source="Peters et al. 2017", previous=91.93,
        baseline=90.15, elmo=92.22, elmo_deviation=0.10, absolute=2.06, relative=21.0,
    ),
    "sst": Published(
        title="SST-5", metric="accuracy", source="McCann et al. 2017", previous=53.7,
        baseline=51.4, elmo=54.7, elmo_deviation=0.5, absolute=3.3, relative=6.8,
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Runs that differ in nothing but the seed."""

    mean: float
    deviation: float | None  # of the sample; None: one seed
    dev_mean: float
    split: str  # test, or dev where there is no test
    seeds: tuple[int, ...]
    paths: tuple[str, ...]

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{spread}" + (" (dev)" if self.split == "dev" else "")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One task: the paper's line and ours."""

    task: str
    paper: Published
    baseline: Entry | None
    elmo: Entry | None
    same_data: bool  # both of ours were trained and scored on the same files

    @property
    def absolute(self) -> float | None:
        """Points gained."""
        return self.elmo.mean - self.baseline.mean if self.baseline and self.elmo else None

    @property
    def relative(self) -> float | None:
        """Share of the baseline's error that is gone, in percent."""
        if self.absolute is None or self.baseline is None or self.baseline.mean >= 100:
            return None
        return 100 * self.absolute / (100 - self.baseline.mean)


def make_table(records: Sequence[dict[str, Any]]) -> list[Row]:
    """A row for every task of the paper that has a record, in the paper's order."""
    rows = []
    for task, paper in PUBLISHED.items():
        mine = [r for r in records if r["task"] == task and r["config"]["data"]["fraction"] == 1.0]
        if mine:
            baseline = choose([r for r in mine if r["elmo"] is None])
            elmo = choose([r for r in mine if r["elmo"] is not None])
            files = {_data_key(r) for r in mine for e in (baseline, elmo) if e and r["path"] in e.paths}
            rows.append(Row(task=task, paper=paper, baseline=baseline, elmo=elmo, same_data=len(files) <= 1))
    return rows


def choose(records: Sequence[dict[str, Any]]) -> Entry | None:
    """The entry with the most seeds, then the best mean on dev."""
    entries = summarize(records)
    return max(entries, key=lambda entry: (len(entry.seeds), entry.dev_mean), default=None)


def summarize(records: Sequence[dict[str, Any]]) -> list[Entry]:
    """Records gathered by settings; a seed that was run twice counts once."""
    return [_entry(group) for group in grouped(records).values()]


def _entry(records: Sequence[dict[str, Any]]) -> Entry:
    found = score(records)
    return Entry(
        mean=found.mean,
        deviation=found.deviation,
        dev_mean=score(records, split="dev").mean,
        split=found.split,
        seeds=found.seeds,
        paths=found.paths,
    )


def _data_key(record: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((split, about["sha256"]) for split, about in sorted(record["data"].items()))
