"""Table 7: perplexities before and after fine-tuning beside the paper's, and scores with and without it."""

from __future__ import annotations

from sample_records import task_record, tuned_record

from elmo.record_shapes import find_record_problem
from elmo.report.collect import Records
from elmo.report.results import compute_results
from elmo.report.section_finetuning import finetuning_section
from elmo.report.sources import Sources
from elmo.report.table7 import make_rows


def test_parts_of_squad_have_rows_of_their_own_and_other_tasks_one():
    records = [tuned_record("squad"), tuned_record("ner"), tuned_record("srl")]
    rows = {row.title: (row.paper, row.before, row.after) for row in make_rows(records)}
    assert rows == {
        "SQuAD contexts": ((99.1, 43.5), 90.0, 40.0),
        "SQuAD questions": ((158.2, 52.0), 150.0, 50.0),
        "SRL": (None, 100.0, 60.0),
        "NER": ((103.2, 46.3), 100.0, 60.0),
    }


def test_scores_are_compared_between_runs_that_differ_only_in_the_bilm():
    tuned = [tuned_record("ner", seed=seed, dev=72.0 + seed) for seed in range(2)]
    untuned = [task_record("ner", seed=seed, dev=70.0 + seed) for seed in range(2)]
    others = [task_record("ner", dropout=0.1, dev=90.0), task_record("ner", elmo=False, dev=60.0)]
    (row,) = make_rows([*tuned, *untuned, *others])
    assert row.untuned is not None
    assert (row.untuned.values, row.tuned.values) == ((70.0, 71.0), (72.0, 73.0))
    (row,) = make_rows([*tuned, *others])
    assert row.untuned is None


def test_the_other_tables_show_a_finetuned_bilm_only_if_a_task_has_no_other_runs_with_elmo():
    untuned = [task_record("ner", elmo=elmo, dev=70.0, test=60.0) for elmo in (False, True)]
    tuned = [{**tuned_record(task, dev=90.0), "path": f"{task}.json"} for task in ("ner", "srl")]
    records = Records(tasks=[*({**r, "path": "untuned.json"} for r in untuned), *tuned])
    results = compute_results(records)
    shown = {row.task: row.elmo.dev_mean for row in results.tasks if row.elmo is not None}
    assert shown == {"ner": 70.0, "srl": 90.0}
    assert {row.task for row in results.finetuning} == {"ner", "srl"}


def test_a_run_on_a_share_of_the_data_does_not_hide_a_finetuned_bilm():
    results = compute_results(Records(tasks=[task_record("ner", dev=50.0, share=0.1), tuned_record("ner", dev=90.0)]))
    assert [row.elmo.dev_mean for row in results.tasks if row.elmo is not None] == [90.0]


def test_a_record_whose_perplexities_are_missing_is_a_problem_not_a_crash():
    record = tuned_record("ner")
    assert find_record_problem("task", record) is None
    del record["elmo"]["finetuning"]["perplexity"]["after"]
    assert find_record_problem("task", record) is not None


def test_the_section_shows_the_papers_rows_without_records_too():
    records = [tuned_record("snli", metric="accuracy")]
    section = finetuning_section(make_rows(records), Sources(records))
    table = section.parts[-1]
    texts = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in table.rows]
    assert texts[0][:5] == ["SNLI (accuracy)", "72.1", "16.8", "100.0", "60.0"]
    assert ["SST-5", "131.5", "78.6", "-", "-", "-", "-"] in texts
    assert len(texts) == 5
