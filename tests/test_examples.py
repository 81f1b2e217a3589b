"""The examples run, and with the shipped model they show what they are about."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run_example(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr(sys, "argv", [name, *words])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_the_nearest_use_of_a_word_has_its_sense(capsys, monkeypatch):
    printed = run_example("words_in_context.py", capsys, monkeypatch)
    pairs = re.findall(r"^(\S.*)\n +nearest \(\S+\): (.*)$", printed, re.M)
    assert len(pairs) == 6
    water = re.compile("river|stream|lake")
    same = [bool(water.search(use)) == bool(water.search(nearest)) for use, nearest in pairs]
    assert sum(same) >= 5, printed


@pytest.mark.parametrize(("query", "topic"), [((), "court|judge"), (("Fry the fish in oil .",), "onions|potatoes")])
def test_the_nearest_sentences_have_the_topic_of_the_query(query, topic, capsys, monkeypatch):
    printed = run_example("sentence_similarity.py", capsys, monkeypatch, *query)
    nearest = printed.splitlines()[1:3]
    assert all(re.search(topic, line) for line in nearest), printed


def test_sentences_are_classified_by_topic(capsys, monkeypatch):
    printed = run_example("classify_sentences.py", capsys, monkeypatch)
    assert len(printed.splitlines()) == 6
    assert printed.count("right") >= 5, printed


def test_a_tagger_with_a_mix_finds_names_that_it_was_not_trained_on(capsys, monkeypatch):
    printed = run_example("mix_in_pytorch.py", capsys, monkeypatch)
    assert int(re.search(r"accuracy (\d+)%", printed)[1]) >= 80, printed
    weights = [float(weight) for weight in printed.splitlines()[-1].split(":")[1].split()]
    assert abs(sum(weights) - 1) < 0.02


def test_every_example_is_run_by_a_test():
    folder = Path(__file__).parent
    files = [Path(__file__), folder / "compat/test_allennlp.py", *folder.glob("integrations/test_*.py")]
    tests = "".join(path.read_text("utf-8") for path in files)
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in tests] == []
