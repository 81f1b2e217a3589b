"""metrics.jsonl after a crash, and the chart of the training curves."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from elmo.errors import MissingExtra
from elmo.pretrain.train.export import draw_curves
from elmo.pretrain.train.metrics_log import MetricsLog, read_metrics


def test_records_after_the_checkpoint_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path, 0) as log:
        for step in range(1, 6):
            log.write(step, forward=step / 2)
        log.write(3, validation={"reset": {"mean": 2.0}})
    with open(path, "a") as file:
        file.write('{"step": 6, "forw')  # an incomplete line
    with MetricsLog(path, 3) as log:
        log.write(4, forward=9.0)
    assert [(r["step"], r.get("forward")) for r in read_metrics(path)] == [
        (1, 0.5),
        (2, 1.0),
        (3, 1.5),
        (3, None),
        (4, 9.0),
    ]
    assert len(path.read_text().splitlines()) == 5


def test_lines_that_are_not_records_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n\xff\xfe\n[]\n7\n{"step": "x"}\n{"step": 2}\n')
    assert [record["step"] for record in read_metrics(path)] == [1, 2]
    assert read_metrics(tmp_path / "none.jsonl") == []


def test_non_finite_numbers_are_null(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path, 0) as log:
        log.write(1, forward=float("nan"), backward=float("inf"), lr=0.5)
    assert json.loads(path.read_text()) == {"step": 1, "forward": None, "backward": None, "lr": 0.5}


def test_tensorboard_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboard", None)  # as if it were not installed
    with pytest.raises(MissingExtra, match="tensorboard"):
        MetricsLog(tmp_path / "metrics.jsonl", 0, tensorboard=True)


@pytest.mark.parametrize("points", [[(1, 3.0)], [(1, 1000.0), (50, 20.0), (100, 19.0)], [(1, 1.0), (2, 1.0)]])
def test_chart_contains_every_point(points: list[tuple[float, float]], tmp_path: Path) -> None:
    draw_curves(tmp_path / "c.svg", {"loss": points, "none": []}, x_label="step", y_label="ppl")
    root = ElementTree.parse(tmp_path / "c.svg").getroot()
    (line,) = root.iterfind("{*}polyline")
    coordinates = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    assert len(coordinates) == len(points)
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    assert all(0 <= x <= width and 0 <= y <= height for x, y in coordinates)


def test_single_points_of_a_short_run_are_visible_marks(tmp_path: Path) -> None:
    loss = [(step, 1000.0 / step) for step in range(1, 101)]
    curves = {"exp(training loss)": loss, "held out, reset": [(100, 20.0)], "held out, carried": [(100, 25.0)]}
    draw_curves(tmp_path / "c.svg", curves, x_label="step", y_label="perplexity")
    root = ElementTree.parse(tmp_path / "c.svg").getroot()
    marks = [element.attrib["class"] for element in root.iter() if "mark" in element.get("class", "")]
    assert marks.count("second mark") == marks.count("third mark") == 2, "the point itself and its mark in the legend"
    assert marks.count("first mark") == 1, "a long curve has a mark in the legend only"
    texts = [element.text for element in root.iter()]
    assert all(label in texts for label in curves)


def test_no_file_is_written_without_points(tmp_path: Path) -> None:
    draw_curves(tmp_path / "c.svg", {"loss": []}, x_label="step", y_label="ppl")
    assert not (tmp_path / "c.svg").exists()
