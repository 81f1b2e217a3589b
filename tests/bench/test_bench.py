"""The benchmark: its arithmetic, the equality of the vectors of all variants, and its JSON record."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from elmo.bench.baseline import sorted_by_length
from elmo.bench.compare import compare
from elmo.bench.growth import CALLS, LENGTHS, TEXTS, measure_growth
from elmo.bench.roofline import count_operations
from elmo.bench.run import BenchConfig, Comparison, growth_record, run_comparison
from elmo.bench.sample import sample_sentences
from elmo.bench.table import comparison_table
from elmo.bench.variants import Subject, make_embedder, make_variants
from elmo.errors import ConfigError, DataError
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, CharConfig, LSTMConfig
from elmo.records import kind_of
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


def test_operations_equal_a_count_by_hand():
    # one call of "a b a": 2 distinct words, 3 tokens
    # characters: "a" with begin and end marks is 3, so 4 windows: 2 * (4*1*4*2 + 4*3*4*4) = 448 per word
    # highway 4 * 6 * 6 = 144, projection 2 * 6 * 8 = 96
    words = 2 * (448 + 144 + 96)
    # per direction: input product once per word 8*8*16 = 1024; per token: recurrent 2 * 1024, second input 1024, two
    # projections 2 * 2*8*16 = 512
    lstm = 2 * (2 * 1024 + 3 * (2048 + 1024 + 512))
    assert count_operations(CONFIG, [[["a", "b", "a"]]]) == words + lstm
    one_call = count_operations(CONFIG, [[["a"]]])
    assert count_operations(CONFIG, [[["a"]], [["a"]]]) == 2 * one_call  # nothing is cached between calls


def test_all_variants_have_the_vectors_of_the_plain_one(subject):
    variants = make_variants(subject, ["float32"])
    assert {"loop", "loop sorted", "plain", "torch float32"} <= set(variants)
    results = compare(subject, "bulk", SENTENCES, variants, {("cpu", "float32"): 1.0}, rounds=1)
    assert [result.variant for result in results] == list(variants)
    for result in results:
        assert result.difference_to_plain is not None
        assert result.difference_to_plain <= 2e-5
        assert result.words == 12
        assert result.words_per_second > 0
        assert result.share_of_limit is not None
        assert set(result.times) >= {"loop", "loop sorted"}
    assert results[0].as_dict()["times_loop"] == 1.0


def test_single_sentences_are_not_sorted(subject):
    results = compare(subject, "single", SENTENCES[:1], make_variants(subject, ["float32"]), {}, rounds=1)
    assert "loop sorted" not in [result.variant for result in results]
    assert {result.share_of_limit for result in results} == {None}


def test_table_names_every_column(subject):
    peaks = {("cpu", "float32"): 100.0}
    results = compare(subject, "single", SENTENCES[:1], make_variants(subject, ["float32"]), peaks, rounds=1)
    lines = comparison_table(results, peaks).splitlines()
    assert "cpu float32 100" in lines[0]
    assert lines[1].split()[:6] == ["size", "feed", "path", "words/s", "spread", "x"]
    assert [line.split()[2] for line in lines[2:]] == [result.variant.split()[0] for result in results]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sizes": ["huge"]}, "'huge'"),
        ({"dtypes": ["int4"]}, "'int4'"),
        ({"feeds": []}, "'nothing'"),
        ({"sizes": ["tiny"], "paths": ["warp"]}, "'warp'"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        run_comparison(BenchConfig(**settings))


def test_vectors_of_sorted_sentences_are_in_input_order():
    embed = sorted_by_length(lambda sentences: [np.full((1, len(s), 1), len(s)) for s in sentences])
    assert [int(vectors[0, 0, 0]) for vectors in embed(SENTENCES)] == [6, 2, 4]


def test_growth_varies_one_quantity_at_a_time(subject):
    growths = measure_growth(make_embedder(subject, "off", "float32"), SENTENCES, seconds=0.5)
    assert [point.at for point in growths["length"].points] == list(LENGTHS)
    assert len({point.distinct for point in growths["length"].points}) == 1
    assert [point.at for point in growths["call"].points] == list(CALLS)
    for point in growths["vocabulary"].points:
        assert point.distinct == point.at
        assert point.words == growths["vocabulary"].points[0].words
    text = growths["text"]
    assert (*(point.at for point in text.points), *text.left_out) == TEXTS
    assert text.left_out  # ten million words do not fit in half a second
    assert all(point.words == point.at for point in text.points)


def test_records_have_the_envelope_and_the_command():
    for record in (
        Comparison(peaks={("cpu", "float32"): 1.0}).as_record("elmo bench --json"),
        growth_record(BenchConfig(sizes=["tiny"]), {}, "elmo bench --json"),
    ):
        assert kind_of(json.loads(json.dumps(record))) == "bench"
        assert record["command"] == "elmo bench --json"
        assert record["machine"]["torch"]


def test_old_records_without_envelope_are_recognised():
    text = (ROOT / "benchmarks/results/allennlp_zen4_202611.json").read_text(encoding="utf-8")
    assert kind_of(json.loads(text)) == "bench"


def test_sample_is_the_same_every_time(tmp_path):
    assert sample_sentences(5) == sample_sentences(5)
    assert len(sample_sentences(5)) == 5
    path = tmp_path / "text.txt"
    path.write_text("One two three.\ntoo short\n", encoding="utf-8")
    assert sample_sentences(5, path) == [["One", "two", "three", "."]]
    path.write_text("short\n", encoding="utf-8")
    with pytest.raises(DataError, match="3 to 60 tokens"):
        sample_sentences(5, path)


def test_only_missing_libraries_are_replaced_by_empty_modules():
    code = """
import sys
sys.path.insert(0, "benchmarks/peers")
import allennlp_side
allennlp_side.DEPENDENCIES = ("json", "no_such_library")
assert allennlp_side.replace_missing_modules() == ["no_such_library"]
from no_such_library.below import Thing
class Derived(Thing.Inner): pass
try:
    import no_such_other
except ImportError:
    print("fine")
"""
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert process.stdout.strip() == "fine", process.stderr
