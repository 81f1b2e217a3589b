"""Small multiples: one panel per series on common axes."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from elmo.charts.line import Line
from elmo.charts.small_multiples import COLUMNS, small_multiples


def draw(lines: list[Line]) -> ET.Element:
    return ET.fromstring(small_multiples("x", lines, title="t & u", x_label="step", y_label="perplexity"))


def test_every_series_has_a_panel_with_its_label_and_last_value() -> None:
    lines = [Line(label=f"l{i}", points=[(0.0, 100.0, None), (10.0, 10.0 + i, None)]) for i in range(30)]
    chart = draw(lines)
    tracks = chart.findall("{*}polyline")
    assert len(tracks) == 30
    texts = [element.text for element in chart.findall("{*}text")]
    assert {f"l{i} {10 + i}" for i in range(30)} <= set(texts)
    _, _, width, height = map(float, str(chart.get("viewBox")).split())
    for track in tracks:
        for x, y in (map(float, point.split(",")) for point in str(track.get("points")).split()):
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_panels_share_their_axes() -> None:
    same = [(0.0, 50.0, None), (10.0, 20.0, None)]
    lines = [Line(label="a", points=same), Line(label="b", points=same), Line(label="c", points=[(5.0, 900.0, None)])]
    first, second, _ = (str(track.get("points")) for track in draw(lines).findall("{*}polyline"))
    assert [p.split(",")[1] for p in first.split()] == [p.split(",")[1] for p in second.split()]
    assert COLUMNS >= 2, "both are in one row"


def test_series_without_points_and_values_of_zero_are_left_out() -> None:
    assert not draw([Line(label="a", points=[])]).findall("{*}polyline")
    (track,) = draw([Line(label="a <b>", points=[(1.0, 0.0, None), (2.0, 3.0, None)])]).findall("{*}polyline")
    assert len(str(track.get("points")).split()) == 1
