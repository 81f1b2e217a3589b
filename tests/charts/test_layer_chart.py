"""Charts of layers as dots: their places, their description, and names that do not overlap."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from elmo.charts.layers import SIDE, WIDTH, Dots, layer_chart


def parse_chart(*rows: Dots) -> ET.Element:
    return ET.fromstring(layer_chart("chart", rows, title="A title", x_label="F1"))


def circle_places(picture: ET.Element) -> list[float]:
    return [float(element.attrib["cx"]) for element in picture.findall("{*}circle")]


def test_dots_are_placed_by_the_scale():
    picture = parse_chart(Dots(label="ours", figures={"0": 50.0, "1": 60.0, "2": 70.0}))
    assert circle_places(picture) == pytest.approx([SIDE, WIDTH / 2, WIDTH - SIDE])  # ticks 50, 55, ..., 70


def test_published_figures_are_square_and_all_are_described():
    picture = parse_chart(
        Dots(label="biLM, paper", figures={"1": 67.4, "2": 69.0}, ours=False), Dots(label="x<y", figures={})
    )
    assert circle_places(picture) == []
    description = picture.find("{*}desc").text
    assert "biLM, paper: 1 67.4, 2 69.0." in description
    assert "x<y" in description


def test_names_of_near_dots_are_on_both_sides_of_the_line():
    picture = parse_chart(Dots(label="near", figures={"0": 50.0, "1": 60.0, "2": 60.1}))
    heights = {one.text: float(one.attrib["y"]) for one in picture.iter() if one.text in ("0", "1", "2")}
    assert heights["0"] == heights["1"] < heights["2"]


def test_a_chart_without_rows_is_valid():
    assert re.match(r"\{.*\}svg", parse_chart().tag)
