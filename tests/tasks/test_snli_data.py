"""Reader and scorer of the snli task: layouts of SNLI and MultiNLI, skipped pairs, errors that name file and line."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import DataError
from elmo.tasks.snli.data import LABELS, Example, read_examples, write_examples
from elmo.tasks.snli.score import METRIC, score

OFFICIAL = {
    "annotator_labels": ["neutral"],
    "captionID": "1",
    "gold_label": "neutral",
    "pairID": "1r1n",
    "sentence1": "A person (me) rides.",
    "sentence1_binary_parse": "( ( A person ) ( ( -LRB- ( me -RRB- ) ) ( rides . ) ) )",
    "sentence1_parse": "(ROOT ...)",
    "sentence2": "She didn't.",
    "sentence2_binary_parse": "( She ( ( did n't ) . ) )",
}


def write_file(tmp_path, *values):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(v if isinstance(v, str) else json.dumps(v) + "\n" for v in values), encoding="utf-8")
    return path


def test_the_official_layout_takes_tokens_from_the_parse(tmp_path):
    (example,) = read_examples(write_file(tmp_path, OFFICIAL))
    assert example.premise == ("A", "person", "(", "me", ")", "rides", ".")
    assert example.hypothesis == ("She", "did", "n't", ".")
    assert example.label == "neutral"
    assert example.sentences == (example.premise, example.hypothesis)


def test_text_without_a_parse_is_tokenised(tmp_path):
    values = {"genre": "fiction", "gold_label": "entailment", "sentence1": "It didn't.", "sentence2": "It did n't ."}
    (example,) = read_examples(write_file(tmp_path, values))
    assert example.premise == example.hypothesis == ("It", "didn", "'t", ".")
    assert example.genre == "fiction"


def test_labels_may_be_numbers(tmp_path):
    rows = [{"premise": "a", "hypothesis": "b", "label": n} for n in (0, 1, 2)]
    assert tuple(example.label for example in read_examples(write_file(tmp_path, *rows))) == LABELS


def test_pairs_without_agreement_are_skipped_and_counted(tmp_path, caplog):
    rows = [OFFICIAL, {**OFFICIAL, "gold_label": "-"}, {"premise": "a", "hypothesis": "b", "label": -1}]
    with caplog.at_level(logging.WARNING):
        assert len(read_examples(write_file(tmp_path, *rows))) == 1
    assert any(record.args[1:] == (2, 3) for record in caplog.records)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json\n", "not valid JSON"),
        ('{"premise": "a", "premise": "b", "hypothesis": "c", "label": "neutral"}\n', "key 'premise' occurs 2 times"),
        ("[1, 2]\n", "list"),
        ({"premise": "a", "hypothesis": "b"}, "no 'gold_label'"),
        ({"premise": "a", "hypothesis": "b", "label": "maybe"}, "'maybe'"),
        ({"premise": "a", "hypothesis": "b", "label": True}, "True"),
        ({"premise": "a", "label": "neutral"}, "no 'hypothesis'"),
        ({"premise": 3, "hypothesis": "b", "label": "neutral"}, "premise is int"),
        ({"premise": " ", "hypothesis": "b", "label": "neutral"}, "empty"),
    ],
)
def test_an_invalid_line_is_an_error_with_its_number(tmp_path, line, message):
    path = write_file(tmp_path, OFFICIAL, line)
    with pytest.raises(DataError) as caught:
        read_examples(path)
    assert caught.value.message.startswith(f"{path}:2:")
    assert message in caught.value.message


def test_a_file_without_agreed_labels_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no labelled pair"):
        read_examples(write_file(tmp_path, {**OFFICIAL, "gold_label": "-"}))


sentences = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=5).map(tuple)
examples_strategy = st.builds(
    Example,
    premise=sentences,
    hypothesis=sentences,
    label=st.sampled_from(LABELS),
    genre=st.sampled_from(["", "travel"]),
)


@settings(max_examples=25)  # each writes and syncs a file
@given(st.lists(examples_strategy, min_size=1, max_size=4))
def test_write_then_read_is_identity(tmp_path_factory, examples):
    path = tmp_path_factory.mktemp("snli") / "out.jsonl"
    write_examples(path, examples)
    assert read_examples(path) == examples


def test_accuracy_by_hand():
    labels = ["entailment", "entailment", "neutral", "contradiction"]
    examples = [Example(premise=("a",), hypothesis=("b",), label=label) for label in labels]
    scores = score(examples, ["entailment", "neutral", "neutral", "neutral"])
    assert scores[METRIC] == 50
    assert scores["accuracy_entailment"] == 50
    assert scores["accuracy_neutral"] == 100
    assert scores["accuracy_contradiction"] == 0
