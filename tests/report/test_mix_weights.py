"""Figure 2 from hand-made records: which mixes the heat map shows, and that its text has enough contrast."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import task_record

from elmo.charts.heat_map import shade
from elmo.charts.svg import contrast
from elmo.report.mix_weights import as_svg, mix_rows


def test_rows_are_means_over_seeds_inputs_first():
    records = [
        task_record("ner", weights=[0.1, 0.6, 0.3]),
        task_record("ner", weights=[0.3, 0.4, 0.3], seed=1),
        task_record("snli", place="both", weights=[0.3, 0.4, 0.3]),
    ]
    rows = mix_rows(records)
    assert [row.title for row in rows] == ["SNLI, input (and output)", "NER, input", "SNLI, output (and input)"]
    assert rows[1].weights == pytest.approx((0.2, 0.5, 0.3))
    assert rows[1].deviations[0] == pytest.approx(0.02**0.5)
    assert rows[0].deviations[0] is None
    assert rows[1].gamma == 1.5


def test_the_mix_with_the_smallest_penalty_is_shown():
    even = [1 / 3] * 3
    records = [task_record(penalty=1.0, weights=even, dev=99), task_record(penalty=0.001)]
    assert mix_rows(records)[0].weights == (0.2, 0.5, 0.3)
    assert mix_rows(records[:1])[0].weights == tuple(even)
    assert mix_rows([task_record(layers="top", weights=[0.0, 0.0, 1.0]), task_record(elmo=False)]) == []


def test_the_heat_map_shows_its_numbers_and_describes_them():
    picture = ET.fromstring(as_svg(mix_rows([task_record(), task_record("squad", place="both")])))
    words = [element.text or "" for element in picture.iter()]
    assert words.count("0.50") == 3
    assert any("NER, input: tokens 0.20, layer 1 0.50, layer 2 0.30" in word for word in words)
    assert sum("largest" in (element.get("class") or "") for element in picture.iter()) == 3
    ET.fromstring(as_svg([]))


def test_the_css_of_a_picture_is_limited_to_its_id():
    style = ET.fromstring(as_svg(mix_rows([task_record()]), "mine")).find("{*}style").text
    rules = style.replace("@media (prefers-color-scheme: dark) {", "").split("}")
    selectors = [one for rule in rules for one in rule.partition("{")[0].split(",") if one.strip()]
    assert len(selectors) > 10
    assert all(one.strip() == "#mine" or one.strip().startswith("#mine ") for one in selectors), selectors


@given(st.floats(-0.1, 1.1))
def test_numbers_can_be_read_on_every_shade(weight):
    assert max(contrast(shade(weight), "#ffffff"), contrast(shade(weight), "#000000")) >= 4.5


def test_contrast_agrees_with_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # the well-known grey just too light
