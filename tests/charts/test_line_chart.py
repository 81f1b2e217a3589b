"""Line charts: ticks, bands of deviations, legends, and charts with few points."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from elmo.charts.line import WIDTH, Line, even_ticks, line_chart, log_ticks


@given(st.floats(0.001, 1e6), st.floats(1.0, 1e4))
def test_ticks_are_few_and_cover_the_values(low, factor):
    high = low * factor
    even = even_ticks(low, high)
    assert even[0] <= low * (1 + 1e-6) + 1e-6
    assert even[-1] >= high * (1 - 1e-6) - 1e-6
    assert 2 <= len(even) <= 8
    assert len(log_ticks(low, high)) >= 2


def test_a_point_without_deviation_interrupts_the_band():
    points = [(1.0, 1.0, 0.1), (2.0, 2.0, 0.1), (3.0, 3.0, None), (4.0, 4.0, 0.1)]
    drawn = ET.fromstring(line_chart("x", [Line(label="a", points=points)], title="t", x_label="x", y_label="y"))
    (band,) = drawn.findall("{*}polygon")
    assert len(band.get("points").split()) == 4, "over the first two points alone"


def test_a_chart_of_one_point_or_none_is_valid():
    for points in ([], [(5.0, 1.0, None)], [(0.0, 0.0, 0.0)]):
        lines = [Line(label="a <b>", points=points)]
        for log in (False, True):
            ET.fromstring(line_chart("x", lines, title="t & u", x_label="x", y_label="<y>", log_x=log, log_y=log))


def test_a_legend_that_is_too_wide_continues_in_a_second_row():
    lines = [Line(label=text, points=[(1.0, 2.0, None), (2.0, 3.0, None)]) for text in ("a" * 18, "b" * 15, "c" * 17)]
    chart = ET.fromstring(line_chart("x", lines, title="t", x_label="x", y_label="y"))
    texts = {element.text: element for element in chart.findall("{*}text") if element.text}
    places = [(float(texts[line.label].get("x")), float(texts[line.label].get("y"))) for line in lines]
    assert [y for _, y in places] == sorted(y for _, y in places)
    assert len(set(places)) == 3
    assert all(x + 8 * len(line.label) <= WIDTH for (x, _), line in zip(places, lines, strict=True))
    assert [len(chart.findall(f"{{*}}{tag}")) for tag in ("circle", "rect", "polygon")] == [3, 3, 3], "a mark for each"
