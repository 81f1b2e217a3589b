"""Dots of layers on a scale: where they stand, what is said of them, and names that do not run into each other."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from elmo.charts.layers import SIDE, WIDTH, Dots, layer_chart


def drawn(*rows: Dots) -> ET.Element:
    return ET.fromstring(layer_chart("chart", rows, title="A title", x_label="F1"))


def places(picture: ET.Element) -> list[float]:
    return [float(one.attrib["cx"]) for one in picture.iter() if one.tag.endswith("circle")]


def test_dots_stand_where_the_scale_says():
    picture = drawn(Dots(label="ours", figures={"0": 50.0, "1": 60.0, "2": 70.0}))
    assert places(picture) == pytest.approx([SIDE, WIDTH / 2, WIDTH - SIDE])  # ticks 50, 55, ..., 70


def test_quoted_figures_are_square_and_all_is_said_in_words():
    picture = drawn(
        Dots(label="biLM, paper", figures={"1": 67.4, "2": 69.0}, ours=False), Dots(label="x<y", figures={})
    )
    assert places(picture) == []
    says = next(one.text for one in picture.iter() if one.tag.endswith("desc"))
    assert "biLM, paper: 1 67.4, 2 69.0." in says
    assert "x<y" in says


def test_names_of_near_dots_stand_on_both_sides_of_the_line():
    picture = drawn(Dots(label="near", figures={"0": 50.0, "1": 60.0, "2": 60.1}))
    heights = {one.text: float(one.attrib["y"]) for one in picture.iter() if one.text in ("0", "1", "2")}
    assert heights["0"] == heights["1"] < heights["2"]


def test_without_figures_there_is_a_picture_all_the_same():
    assert re.match(r"\{.*\}svg", drawn().tag)
