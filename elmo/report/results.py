"""All tables and curves of the paper that the records allow, computed once for the findings and the sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elmo.report import layer_tables, table1, table7
from elmo.report.collect import RecordFile, Records
from elmo.report.layer_tables import LAYERS, PLACES, make_rows
from elmo.report.mix_weights import MixRow, mix_rows
from elmo.report.run_groups import without_finetuned
from elmo.report.sample_efficiency import Efficiency, sample_efficiency, with_largest_share


@dataclass(frozen=True, kw_only=True)
class Results:
    """The results by table and figure."""

    tasks: Sequence[table1.Row]
    layers: Sequence[layer_tables.Row]
    places: Sequence[layer_tables.Row]
    efficiency: Sequence[Efficiency]  # of tasks with two or more shares of the training data
    updates: Sequence[Efficiency]  # of tasks with one share too
    mixes: Sequence[MixRow]
    finetuning: Sequence[table7.Row]
    probes: Sequence[RecordFile]


def compute_results(records: Records) -> Results:
    runs = without_finetuned(records.tasks)
    return Results(
        tasks=table1.make_table(runs),
        layers=make_rows(LAYERS, runs),
        places=make_rows(PLACES, runs),
        efficiency=sample_efficiency(runs),
        updates=sample_efficiency(with_largest_share(runs), least_shares=1),
        mixes=mix_rows(runs),
        finetuning=table7.make_rows(records.tasks),
        probes=records.probes,
    )
