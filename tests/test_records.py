"""Records: one envelope, every kind recognised with and without it, JSON that every reader takes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from elmo import __version__
from elmo.errors import DataError
from elmo.records import KINDS, format_record, kind_of, make_record, write_record

RUNS = Path(__file__).parents[1] / "runs"


@pytest.mark.parametrize("kind", KINDS)
def test_kind_is_read_from_the_envelope(kind: str) -> None:
    record = make_record(kind, {"any": "thing"}, command="elmo any thing")
    assert kind_of(json.loads(format_record(record))) == kind
    assert record["command"] == "elmo any thing"
    assert record["versions"]["elmo"] == __version__
    assert {"python", "torch", "numpy"} <= record["versions"].keys()


@pytest.mark.parametrize("kind", KINDS)
def test_kind_of_a_record_without_envelope_is_told_by_its_keys(kind: str) -> None:
    assert kind_of(dict.fromkeys(KINDS[kind], 1)) == kind
    assert kind_of(dict.fromkeys(list(KINDS[kind])[1:], 1)) is None


def test_records_of_earlier_versions_are_recognised() -> None:
    assert kind_of(json.loads((RUNS / "ner_cpu" / "elmo" / "record.json").read_text())) == "task"
    assert kind_of(json.loads((RUNS / "biomedical_h200" / "finetune.json").read_text())) == "finetuning"
    assert kind_of({"format": "elmo-task-record", "version": 1, "task": "ner"}) == "task"


@pytest.mark.parametrize("values", [None, 3, [], "text", {}, {"step": 1}])
def test_other_json_is_no_record(values: object) -> None:
    assert kind_of(values) is None


@pytest.mark.parametrize("change", [{"version": 2}, {"kind": "unheard of"}, {"version": None}])
def test_record_of_a_later_version_is_refused_with_what_can_be_read(change: dict[str, object]) -> None:
    with pytest.raises(DataError, match=r"expected version 1 of one of task, probe"):
        kind_of({**make_record("probe", {}), **change})


def test_values_cannot_hide_the_envelope() -> None:
    with pytest.raises(AssertionError):
        make_record("probe", {"versions": {"elmo": "0"}})


def test_written_record_reads_back_and_numbers_json_does_not_have_are_null(tmp_path: Path) -> None:
    values = {"perplexity": math.inf, "curve": [(1, math.nan), {"loss": -math.inf}], "text": "ü", "n": 3}
    record = make_record("training", values)
    write_record(tmp_path / "report.json", record)
    stored = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert stored == json.loads(format_record(record), parse_constant=pytest.fail)
    assert stored | {"text": "ü"} == stored
    assert (stored["perplexity"], stored["curve"], stored["n"]) == (None, [[1, None], {"loss": None}], 3)
    assert format_record(record).isascii()
