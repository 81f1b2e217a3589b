"""Reader and scorer of the squad task: offsets to tokens and back, invalid files, official scores by hand."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import DataError
from elmo.tasks.squad.data import make_example, read_examples, write_examples
from elmo.tasks.squad.score import METRIC, exact_match, normalize, score, word_f1

CONTEXT = "The war of 1066\u20131077 (a long one) cost \u00a35.5 million.  K\u00f6ln wasn't part of it."


def dataset(*answers, context=CONTEXT, **question):
    values = {"id": "q1", "question": "How long?", "answers": [{"text": t, "answer_start": s} for t, s in answers]}
    return {"data": [{"title": "War", "paragraphs": [{"context": context, "qas": [{**values, **question}]}]}]}


def write_file(tmp_path, values):
    path = tmp_path / "squad.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values, indent=1), encoding="utf-8")
    return path


def test_answers_cover_the_tokens_they_overlap(tmp_path):
    answers = [
        ("1066", 11),
        ("1077", 16),
        ("a long one", 22),
        ("K\u00f6ln", CONTEXT.index("K")),
        ("ln", CONTEXT.index("ln")),
    ]
    (example,) = read_examples(write_file(tmp_path, dataset(*answers)))
    answer_tokens = [example.passage[a.first : a.last + 1] for a in example.answers]
    assert answer_tokens == [("1066",), ("1077",), ("a", "long", "one"), ("K\u00f6ln",), ("K\u00f6ln",)]
    assert example.text_of(example.answers[2].first, example.answers[2].last) == "a long one"
    assert [len(sentence) for sentence in example.sentences] == [len(example.question), *example.lengths]
    assert example.passage_sentences[1] == ("K\u00f6ln", "wasn", "'t", "part", "of", "it", ".")
    assert (example.id, example.title) == ("q1", "War")


def test_a_span_outside_the_text_names_file_line_and_question(tmp_path):
    path = write_file(tmp_path, dataset(("1066", 12)))
    with pytest.raises(DataError) as caught:
        read_examples(path)
    line = 1 + path.read_text(encoding="utf-8").split("q1")[0].count("\n")
    assert f"{path}:{line}: question 'q1' of 'War'" in caught.value.message
    assert "not at character 12" in caught.value.message
    assert caught.value.hint
    with pytest.raises(DataError, match="not at character"):
        read_examples(write_file(tmp_path, dataset(("it.", len(CONTEXT) - 2))))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ('{"data": [\n}', "not valid JSON (Expecting value: line 2 column 1"),
        ('{"data": [], "data": []}', "key 'data' occurs 2 times"),
        ("[]", "holds a list"),
        ({"data": 3}, "no list 'data'"),
        ({"data": [{"title": "x"}]}, "no list 'paragraphs'"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, "no text 'context'"),
        ({"data": []}, "no question"),
        (dataset(question=None), "no text 'question'"),
        (dataset(question=" "), "question is empty"),
        (dataset(answers=[{"text": "1066"}]), "answer_start is None"),
        (dataset((" ", 3)), "covers no word"),
        (dataset(context=" "), "context is empty"),
    ],
)
def test_an_invalid_layout_is_an_error(tmp_path, values, message):
    with pytest.raises(DataError) as caught:
        read_examples(write_file(tmp_path, values))
    assert message in caught.value.message
    assert "squad.json" in caught.value.message


def test_questions_without_an_answer_are_read_and_counted(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        (example,) = read_examples(write_file(tmp_path, dataset(is_impossible=True)))
    assert example.answers == ()
    assert any(record.args[1:] == (1, 1) for record in caplog.records)


@given(st.text(max_size=60), st.data())
def test_the_tokens_of_an_answer_contain_its_text(text, data):
    context = "x " + text
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    answer = context[start:end]
    if not answer.strip():
        return
    example = make_example(context, "why ?", [(answer, start)])
    assert all(example.context[a:b] == token for token, (a, b) in zip(example.passage, example.spans, strict=True))
    assert answer.strip() in example.text_of(example.answers[0].first, example.answers[0].last)


@settings(max_examples=25)  # each writes and syncs a file
@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), min_size=1, max_size=3))
def test_write_then_read_is_identity(tmp_path_factory, pairs):
    examples = [
        make_example(f"a {context}", f"q {question}", [("a", 0)], id=str(n), title="t")
        for n, (context, question) in enumerate(pairs)
    ]
    path = tmp_path_factory.mktemp("squad") / "out.json"
    write_examples(path, examples)
    assert read_examples(path) == examples


def test_normalisation_removes_case_punctuation_articles_and_spaces():
    assert normalize("The  U.S.A., an (old) 'A-B'!") == "usa old ab"
    assert normalize("Theatre a nation") == "theatre nation"
    assert normalize("\u201cquoted\u201d") == "\u201cquoted\u201d"  # only ASCII punctuation is removed


def test_exact_match_and_word_f1_by_hand():
    assert exact_match("the Cat.", "cat") == 1
    assert exact_match("cats", "cat") == 0
    # predicted: big black cat, gold: black cat sat: 2 shared of 3 and 3
    assert word_f1("a big black cat", "the black cat sat") == pytest.approx(2 / 3)
    # a repeated word counts as often as both have it: 2 shared of 3 predicted and 2 gold words
    assert word_f1("no no no", "no no") == pytest.approx(0.8)
    assert word_f1("the", "cat") == 0
    assert word_f1("", "") == 1


def test_the_score_is_that_of_the_best_gold_answer():
    context = "big black cat sat"
    gold = [make_example(context, "who ?", [("black cat", 4), ("big black cat sat", 0)])]
    scores = score(gold, ["The big black cat"])
    assert scores[METRIC] == pytest.approx(100 * 6 / 7)  # 3 shared of 3 and 4: better than 2 of 3 and 2 (0.8)
    assert scores["exact_match"] == 0
    assert score(gold, ["Black cat"]) == {"f1": 100, "exact_match": 100}
    assert score([make_example(context, "who ?")], [""])["exact_match"] == 100
