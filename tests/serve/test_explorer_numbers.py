"""What the explorer computes in the browser equals what Python computes, and its files say the same."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from browser import chromium
from explorer_browser import opened_page
from served_models import load_tiny

from elmo.charts.word_map import project_to_plane

SENTENCES = ["The cat sat on the bank .", "A bank lends money .", "The bank of the river , the dog .", "One bank ."]


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser, tiny_server):
    from urllib.parse import urlencode

    fragment = urlencode({"s": "\n".join(SENTENCES), "mix": "20,30,50", "gamma": "1.5", "layer": "mix"})
    with opened_page(browser, f"http://127.0.0.1:{tiny_server.port}/#{fragment}") as page:
        page.settle()
        yield page


@pytest.fixture(scope="module")
def offline():
    embedder = load_tiny()
    return [(embedder.tokenize(text), embedder.layers(text)) for text in SENTENCES]


def saved(opened, button: str) -> str:
    with opened.page.expect_download() as download:
        opened.page.locator(button).click()
    return Path(download.value.path()).read_text(encoding="utf-8")


def mixed(layers: np.ndarray) -> np.ndarray:
    return 1.5 * np.tensordot([0.2, 0.3, 0.5], layers, 1)


def test_vectors_and_metadata_for_the_embedding_projector(opened, offline):
    opened.page.locator("#show-bank").uncheck()
    vectors = np.array([[float(x) for x in line.split("\t")] for line in saved(opened, "#save-vectors").splitlines()])
    expected = np.concatenate([mixed(layers) for _, layers in offline])
    assert vectors == pytest.approx(expected, abs=1e-5)
    rows = list(csv.reader(saved(opened, "#save-metadata").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    assert rows[0] == ["word", "sentence", "position", "group", "text"]
    assert [row[0] for row in rows[1:]] == [token.text for tokens, _ in offline for token in tokens]
    assert {row[0] for row in rows[1:] if row[3]} == {"bank"}, "only the uses of the chosen word are grouped"


def test_the_heat_map_holds_the_cosines_of_the_mix(opened, offline):
    opened.page.locator("#compare").select_option("1")
    shown = opened.page.locator("#heat tbody tr").all()
    values = np.array([[float(cell) for cell in row.locator("td").all_inner_texts()] for row in shown])
    one, other = (mixed(layers) for _, layers in offline[:2])
    norms = np.linalg.norm(one, axis=1)[:, None] * np.linalg.norm(other, axis=1)
    assert values == pytest.approx(one @ other.T / norms, abs=0.0051)  # two decimals


def test_maps_are_principal_components(opened, offline):
    uses = [[t.text for t in tokens].index("bank") for tokens, _ in offline]
    vectors = np.stack([mixed(layers)[place] for place, (_, layers) in zip(uses, offline, strict=True)])
    result = opened.page.evaluate(
        """async vectors =>
            (await import('/static/vectors.js')).principalPlane(vectors.map(v => Float32Array.from(v)))""",
        vectors.tolist(),
    )
    points, expected = np.array(result), project_to_plane(vectors)
    for axis in (0, 1):
        ours, theirs = points[:, axis] / np.abs(points).max(), expected[:, axis]
        assert min(np.abs(ours - theirs).max(), np.abs(ours + theirs).max()) < 1e-4


@pytest.mark.parametrize(
    ("vectors", "groups"),
    [
        ([[1, 0], [1, 0.1], [1, 0.2], [0, 1], [0.1, 1]], [0, 0, 0, 1, 1]),
        ([[1, 0], [1, 0], [1, 0], [1, 0]], [0, 0, 0, 0]),
        ([[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0, 1, 0.1], [0, 0, 1], [0, 0.1, 1]], [0, 0, 1, 1, 2, 2]),
        ([[0, 0], [0, 0], [0, 0]], [0, 0, 0]),
        ([[1, 2]], [0]),
    ],
)
def test_groups_are_found_where_there_are_some(opened, vectors, groups):
    found = opened.page.evaluate(
        """async vectors => (await import('/static/vectors.js')).findGroups(
            vectors.map(v => Float32Array.from(v)), vectors.length, 0.2)""",
        vectors,
    )
    assert found == groups


@pytest.mark.parametrize("button", ["#save-map", "#save-heat"])
def test_saved_pictures_are_whole_and_refer_to_nothing_outside(opened, button):
    text = saved(opened, button)
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "href" not in text
    assert "url(" not in text
    written = " ".join(root.itertext())
    assert "bank" in written
    width, height = (float(root.get(side)) for side in ("width", "height"))
    assert width > 200
    assert height > 100
