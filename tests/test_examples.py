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


def test_code_for_tfhub_gives_five_outputs_and_trains_four_scalars(capsys, monkeypatch):
    printed = run_example("from_tfhub.py", capsys, monkeypatch)
    shapes = dict(re.findall(r"^(\w+) +(\(.*\))$", printed, re.M))
    assert set(shapes) == {"word_emb", "lstm_outputs1", "lstm_outputs2", "elmo", "default"}
    assert shapes["elmo"].startswith("(2, 6, ")
    weights = [float(weight) for weight in printed.splitlines()[-1].split(":")[1].split()]
    assert weights[1] == max(weights) > 0.5, "layer 1 solves the task"


def test_code_for_bilm_tf_finds_the_word_of_the_question(capsys, monkeypatch):
    printed = run_example("from_bilm_tf.py", capsys, monkeypatch)
    assert "lengths: [9, 10]" in printed
    assert "nearest to 'head': director" in printed, printed
    assert "trainable numbers: 4" in printed


def test_code_for_simple_elmo_finds_the_text_of_the_same_topic(capsys, monkeypatch):
    printed = run_example("from_simple_elmo.py", capsys, monkeypatch)
    assert "vectors of the words: (3, 6, " in printed
    assert "nearer to the first text: A judge dismissed the case ." in printed


def test_code_for_elmoformanylangs_tells_the_senses_of_a_word_apart(capsys, monkeypatch):
    printed = run_example("from_elmoformanylangs.py", capsys, monkeypatch)
    cosines = re.findall(r"^layer +(-?\d): cosines (\S+) \(money, money\) (\S+) \(money, river\)$", printed, re.M)
    assert [layer for layer, _, _ in cosines] == ["0", "1", "2", "-1"]
    assert cosines[0][1:] == ("1.00", "1.00"), "the word encoder sees no context"
    assert all(float(same) > float(other) for layer, same, other in cosines if layer != "0"), printed


def test_every_example_is_run_by_a_test():
    """Those of other libraries are run in tests/integrations, with the library installed."""
    tests = "".join(path.read_text("utf-8") for path in sorted(Path(__file__).parent.rglob("test_*.py")))
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in tests] == []
