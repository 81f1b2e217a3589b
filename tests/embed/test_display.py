"""How embedders and results show themselves: short texts, and HTML for notebooks that is well-formed and escaped."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from golden import golden_embedder
from models_with_head import tiny_with_head

import elmo
from elmo.embed.embedder import Embedder
from elmo.errors import ConfigError
from elmo.weights.store import save_store

HOSTILE = ["<script>alert(1)</script>", "&amp;", '"', "'", "]]>", "漢字"]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return golden_embedder("allennlp", name="golden")


def elements(shown: Any) -> ElementTree.Element:
    """The parsed HTML of a result; it has no element that could run code or load something."""
    root = ElementTree.fromstring(shown._repr_html_())
    assert not {element.tag for element in root.iter()} & {"script", "img", "link", "iframe", "style"}
    return root


def test_an_embedder_says_what_it_is(embedder: Embedder) -> None:
    shown = "Embedder('golden', 3 layers of 32, device='cpu', dtype='float32', state='reset', tokenizer='default')"
    assert repr(embedder) == shown
    assert "random weights" in repr(elmo.load("tiny-random", device="cpu"))


def test_a_sentence_shows_tokens_by_layers(embedder: Embedder) -> None:
    shown = embedder.show("The cat sat .")
    layers = embedder.layers("The cat sat .")
    np.testing.assert_array_equal(shown.layers, layers)
    assert shown.tokens == ["The", "cat", "sat", "."]
    lines = repr(shown).splitlines()
    assert lines[0] == "4 tokens, 3 layers of 32; lengths of vectors:"
    assert [line.split()[0] for line in lines[2:]] == shown.tokens
    assert float(lines[3].split()[2]) == pytest.approx(float(np.linalg.norm(layers[1, 1])), abs=0.006)
    rows = elements(shown).findall(".//tbody/tr")
    assert [len(row.findall("td")) for row in rows] == [4] * 4
    assert len(elements(shown).findall(".//svg")) == 12


def test_tokens_are_escaped(embedder: Embedder) -> None:
    rows = elements(embedder.show(HOSTILE)).findall(".//tbody/tr")
    assert [row.findall("td")[0].text for row in rows] == HOSTILE
    result = embedder.similar([*HOSTILE, "bank"], "bank", [[*HOSTILE[:2], "bank"], ["<b>", "bank"]], same_word=True)
    assert [bold.text for bold in elements(result).findall(".//b")] == ["bank"] * 3


def test_the_bars_of_a_chart_are_the_numbers_of_the_vector(embedder: Embedder) -> None:
    shown = embedder.show(["one", "two"])
    path = elements(shown).findall(".//path")[0].get("d")
    heights = [-float(height) for height in re.findall(r"v(-?[\d.]+)h", path)]
    first = shown.layers[0, 0]  # 32 numbers: one bar each
    expected = 12 * first / np.abs(shown.layers[0]).max()
    np.testing.assert_allclose(heights, expected, atol=0.051)


def test_empty_and_long_sentences_are_shown(embedder: Embedder) -> None:
    assert elements(embedder.show("")).findall(".//tbody/tr") == []
    assert repr(embedder.show("")).startswith("0 tokens")
    long = embedder.show(["word"] * 150)
    assert len(elements(long).findall(".//tbody/tr")) == 100
    assert "150 tokens, of which 100 are shown" in repr(long)
    with pytest.raises(ConfigError, match="show got 2 sentences"):
        embedder.show(iter(["One .", "Two ."]))


def test_scores_and_search_results_are_readable(tmp_path) -> None:
    save_store(tmp_path / "tiny", tiny_with_head())
    scorer = elmo.load(tmp_path / "tiny", device="cpu")
    scores = scorer.score("the bank")
    numbers = f"log_prob={scores.log_prob:.2f}, perplexity={scores.perplexity:.2f}"
    assert repr(scores) == f"Scores('the bank', {numbers}, unknown=1)"  # bank
    cells = [cell.text for cell in elements(scores).findall(".//td")]
    assert cells[1:4] == [f"{value:.2f}" for value in scores.forward]
    result = scorer.similar("the bank", "bank", ["a river", "of the bank"], k=2)
    assert repr(result).splitlines()[0] == "'bank' in 'the bank', among 5 words; nearest uses:"
    assert len(repr(result).splitlines()) == 3
    assert len(elements(result).findall(".//tbody/tr")) == 2
