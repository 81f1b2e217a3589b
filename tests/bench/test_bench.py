"""The benchmark's own arithmetic, and that what it times gives the same vectors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from elmo.bench.baseline import by_length
from elmo.bench.compare import compare
from elmo.bench.growth import CALLS, LENGTHS, TEXTS, growth
from elmo.bench.roofline import operations
from elmo.bench.run import BenchConfig, run_comparison
from elmo.bench.sample import sentences_for
from elmo.bench.table import comparison_table
from elmo.bench.variants import Subject, make_embedder, variants_of
from elmo.errors import ConfigError, DataError
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, CharConfig, LSTMConfig
from elmo.text.indexer import ByteIndexer

ROOT = Path(__file__).parents[2]
CONFIG = BiLMConfig(
    chars=CharConfig(char_dim=4, max_chars=10, filters=((1, 2), (3, 4)), num_highways=1),
    lstm=LSTMConfig(num_layers=2, cell_dim=16, proj_dim=8),
)
SENTENCES = [["The", "bank", "of", "the", "river", "."], ["No", "."], ["It", "was", "closed", "."]]


@pytest.fixture(scope="module")
def subject():
    return Subject(name="handful", model=BiLM(CONFIG).eval().requires_grad_(False), indexer=ByteIndexer(10))


def test_operations_are_those_of_a_hand_count():
    # one call of "a b a": 2 distinct words, 3 tokens
    # characters: "a" and marks are 3, so 4 windows: 2 * (4*1*4*2 + 4*3*4*4) = 448 a word
    # highway 4 * 6 * 6 = 144, projection 2 * 6 * 8 = 96
    words = 2 * (448 + 144 + 96)
    # a direction: input product once a word 8*8*16 = 1024; a token: recurrent 2 * 1024, second input 1024, two
    # projections 2 * 2*8*16 = 512
    lstm = 2 * (2 * 1024 + 3 * (2048 + 1024 + 512))
    assert operations(CONFIG, [[["a", "b", "a"]]]) == words + lstm
    assert operations(CONFIG, [[["a"]], [["a"]]]) == 2 * operations(CONFIG, [[["a"]]])  # nothing is kept between calls


def test_every_path_gives_the_plain_vectors(subject):
    paths = variants_of(subject, ["float32"])
    assert {"loop", "loop sorted", "plain", "torch float32"} <= set(paths)
    results = compare(subject, "bulk", SENTENCES, paths, {("cpu", "float32"): 1.0}, rounds=1)
    assert [result.path for result in results] == list(paths)
    for result in results:
        assert result.difference_to_plain is not None
        assert result.difference_to_plain <= 2e-5
        assert result.words == 12
        assert result.words_per_second > 0
        assert result.share_of_limit is not None
        assert set(result.times) >= {"loop", "loop sorted"}
    assert results[0].as_dict()["times_loop"] == 1.0


def test_one_at_a_time_has_nothing_to_sort(subject):
    results = compare(subject, "single", SENTENCES[:1], variants_of(subject, ["float32"]), {}, rounds=1)
    assert "loop sorted" not in [result.path for result in results]
    assert {result.share_of_limit for result in results} == {None}


def test_the_table_names_every_column(subject):
    peaks = {("cpu", "float32"): 100.0}
    results = compare(subject, "single", SENTENCES[:1], variants_of(subject, ["float32"]), peaks, rounds=1)
    lines = comparison_table(results, peaks).splitlines()
    assert "cpu float32 100" in lines[0]
    assert lines[1].split()[:6] == ["size", "feed", "path", "words/s", "spread", "x"]
    assert [line.split()[2] for line in lines[2:]] == [result.path.split()[0] for result in results]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sizes": ["huge"]}, "'huge'"),
        ({"dtypes": ["int4"]}, "'int4'"),
        ({"feeds": []}, "'nothing'"),
        ({"sizes": ["tiny"], "paths": ["warp"]}, "'warp'"),
    ],
)
def test_what_cannot_be_measured_is_said(settings, said):
    with pytest.raises(ConfigError, match=said):
        run_comparison(BenchConfig(**settings))


def test_sorted_sentences_come_back_in_order():
    embed = by_length(lambda sentences: [np.full((1, len(s), 1), len(s)) for s in sentences])
    assert [int(found[0, 0, 0]) for found in embed(SENTENCES)] == [6, 2, 4]


def test_growth_holds_all_but_one_thing_still(subject):
    found = growth(make_embedder(subject, "off", "float32"), SENTENCES, seconds=0.5)
    assert [point.at for point in found["length"].points] == list(LENGTHS)
    assert len({point.distinct for point in found["length"].points}) == 1
    assert [point.at for point in found["call"].points] == list(CALLS)
    for point in found["vocabulary"].points:
        assert point.distinct == point.at
        assert point.words == found["vocabulary"].points[0].words
    text = found["text"]
    assert (*(point.at for point in text.points), *text.left_out) == TEXTS
    assert text.left_out  # ten million words do not fit in half a second
    assert all(point.words == point.at for point in text.points)


def test_sample_is_the_same_every_time(tmp_path):
    assert sentences_for(5) == sentences_for(5)
    assert len(sentences_for(5)) == 5
    path = tmp_path / "text.txt"
    path.write_text("One two three.\ntoo short\n", encoding="utf-8")
    assert sentences_for(5, path) == [["One", "two", "three", "."]]
    path.write_text("short\n", encoding="utf-8")
    with pytest.raises(DataError, match="3 to 60 tokens"):
        sentences_for(5, path)


def test_missing_libraries_are_stood_in_for_and_no_others():
    code = """
import sys
sys.path.insert(0, "benchmarks/peers")
import allennlp_side
allennlp_side.NEEDS = ("json", "no_such_library")
assert allennlp_side.stand_in_for_what_is_missing() == ["no_such_library"]
from no_such_library.below import Thing
class Mine(Thing.Inner): pass
try:
    import no_such_other
except ImportError:
    print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "fine", done.stderr
