"""The paper's Table 1 from task runs: published scores of six tasks next to ours, without and with ELMo.

Only runs on the whole training file count. Runs that differ only in the seed are one entry. If a task has several
entries with ELMo, the table shows the one with the most seeds, then one that has a baseline of the same settings, then
the best mean on dev: dev selects, the score shown is test. Its baseline is the one of the same settings, files and word
vectors, or else the one with the most seeds, then the best mean on dev. A task without a test file shows dev and is
marked so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elmo.report.run_groups import Record, data_share, group_runs, score, settings_key


@dataclass(frozen=True, kw_only=True)
class Published:
    """One line of Table 1 of Peters et al. 2018: test scores of single models."""

    title: str
    metric: str
    source: str  # of the previous best result
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
    """The score of runs that differ only in the seed."""

    mean: float
    deviation: float | None  # of the sample; None for one seed
    dev_mean: float
    split: str  # test, or dev if there is no test file
    seeds: tuple[int, ...]
    paths: tuple[str, ...]

    def __str__(self) -> str:
        deviation = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{deviation}" + (" (dev)" if self.split == "dev" else "")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One task: the paper's line and our entries."""

    task: str
    paper: Published
    baseline: Entry | None
    elmo: Entry | None
    same_data: bool  # whether both entries have the same files and word vectors
    is_finetuned: bool = False  # whether the biLM was first fine-tuned on the text of the task

    @property
    def absolute(self) -> float | None:
        """The gain in points."""
        return self.elmo.mean - self.baseline.mean if self.baseline and self.elmo else None

    @property
    def relative(self) -> float | None:
        """The relative error reduction, in percent."""
        if self.absolute is None or self.baseline is None or self.baseline.mean >= 100:
            return None
        return 100 * self.absolute / (100 - self.baseline.mean)


def make_table(records: Sequence[Record]) -> list[Row]:
    """One row for each task of the paper that has a record, in the paper's order."""
    rows = []
    for task, paper in PUBLISHED.items():
        runs = [r for r in records if r["task"] == task and data_share(r) == 1.0]
        if runs:
            baseline, elmo = _pair(runs)
            shown = [r for r in runs for entry in (baseline, elmo) if entry and r["path"] in entry.paths]
            rows.append(
                Row(
                    task=task,
                    paper=paper,
                    baseline=baseline,
                    elmo=elmo,
                    same_data=len(set(map(_data_key, shown))) <= 1,
                    is_finetuned=any(bool(r["elmo"] and r["elmo"].get("finetuning")) for r in shown),
                )
            )
    return rows


def _pair(records: Sequence[Record]) -> tuple[Entry | None, Entry | None]:
    """The baseline and the entry with ELMo of one task; None without such records."""
    baselines = {
        settings_key(group[0], ignore=("elmo",)): _entry(group)
        for group in group_runs([r for r in records if r["elmo"] is None]).values()
    }
    with_elmo = [
        (baselines.get(settings_key(group[0], ignore=("elmo",))), _entry(group))
        for group in group_runs([r for r in records if r["elmo"] is not None]).values()
    ]
    best_baseline = max(baselines.values(), key=lambda entry: (len(entry.seeds), entry.dev_mean), default=None)
    if not with_elmo:
        return best_baseline, None
    baseline, elmo = max(with_elmo, key=lambda pair: (len(pair[1].seeds), pair[0] is not None, pair[1].dev_mean))
    return baseline or best_baseline, elmo


def _entry(records: Sequence[Record]) -> Entry:
    shown = score(records)
    return Entry(
        mean=shown.mean,
        deviation=shown.deviation,
        dev_mean=score(records, split="dev").mean,
        split=shown.split,
        seeds=shown.seeds,
        paths=shown.paths,
    )


def _data_key(record: Record) -> tuple[tuple[str, str | None], ...]:
    files = record["data"] | ({"vectors": record["vectors"]} if record.get("vectors") else {})
    return tuple((name, about["sha256"]) for name, about in sorted(files.items()))
