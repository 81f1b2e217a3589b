"""Reader and scorer of the srl task: CoNLL-2005 and CoNLL-2012 columns, official F1 on cases computed by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import DataError
from elmo.tasks.srl.data import Example, read_examples, write_examples
from elmo.tasks.srl.score import METRIC, arguments_of, score
from elmo.text.spans import tags_of_spans

CONLL2005 = """I PRP (NP*) - - (A0*) *
get VB (VP* get get.01 (V*) *
what WP (NP* - - (A1* (R-A1*)
is VBZ * be be.03 * (V*)
here RB *)) - - *) (AM-LOC*)

Yes UH * - -

"""
CONLL2012 = """#begin document (bc/x/00); part 000
bc/x/00 0 0 Ann NNP (TOP(S(NP*) - - - ann * (ARG0*) * (1)
bc/x/00 0 1 wants VBZ (VP* want 01 1 ann * (V*) * -
bc/x/00 0 2 to TO (S(VP* - - - ann * (ARG1* * -
bc/x/00 0 3 go VB (VP*))))) go 02 2 ann * *) (V*) -

#end document
"""


def write_file(tmp_path, text):
    path = tmp_path / "props.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_conll2005_has_one_example_per_predicate(tmp_path):
    get, be = read_examples(write_file(tmp_path, CONLL2005))
    assert get.tokens == be.tokens == ("I", "get", "what", "is", "here")
    assert (get.predicate, get.pos, get.sense) == (1, "VB", "get.01")
    assert get.tags == ("B-A0", "B-V", "B-A1", "I-A1", "I-A1")
    assert (be.predicate, be.tags) == (3, ("O", "O", "B-R-A1", "B-V", "B-AM-LOC"))
    assert get.sentence == be.sentence


def test_words_and_props_columns_are_sufficient(tmp_path):
    text = "I - (A0*)\nwon win (V*)\n"
    assert read_examples(write_file(tmp_path, text)) == [
        Example(tokens=("I", "won"), predicate=1, tags=("B-A0", "B-V"), sense="win")
    ]


def test_conll2012_columns_are_recognised(tmp_path):
    want, go = read_examples(write_file(tmp_path, CONLL2012))
    assert want.tokens == ("Ann", "wants", "to", "go")
    assert (want.predicate, want.sense, want.pos) == (1, "want.01", "VBZ")
    assert want.tags == ("B-ARG0", "B-V", "B-ARG1", "I-ARG1")
    assert (go.predicate, go.tags) == (3, ("O", "O", "O", "B-V"))


def test_conll2012_may_number_the_words_from_one(tmp_path):
    lines = [line.split(" ") for line in CONLL2012.splitlines()]
    from_one = [[*row[:2], str(int(row[2]) + 1), *row[3:]] if row[0] == "bc/x/00" else row for row in lines]
    for without_coreference in (False, True):  # a last column of "-" looked like that of the predicates
        rows = [[*row[:-1], "-"] if without_coreference and row[0] == "bc/x/00" else row for row in from_one]
        text = "\n".join(map(" ".join, rows)) + "\n"
        assert read_examples(write_file(tmp_path, text)) == read_examples(write_file(tmp_path, CONLL2012))


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (CONLL2005.replace("what WP (NP* - - (A1* (R-A1*)", "what WP (NP* - - (A1*"), 3, "6 columns"),
        (CONLL2005.replace("here RB *)) - - *)", "here RB *)) - - *"), 3, "never closed"),
        (CONLL2005.replace("(V*) *\nwhat", "(V*) *)\nwhat"), 2, "none is open"),
        (CONLL2005.replace("is VBZ * be be.03 * (V*)", "is VBZ * be be.03 (A2*) (V*)"), 4, "may not be nested"),
        (CONLL2005.replace("be be.03", "- -"), 1, "names 1 predicates"),
        (CONLL2005.replace("* (V*)\nhere", "* *\nhere"), 1, "0 predicates (V*)"),
        ("- (A0*)\nwin (V*)\n", 1, "no column of words"),
        ("Yes UH -\n", None, "no predicate"),
        (CONLL2012.replace("00 0 2 to", "00 0 7 to"), 4, "the number of the word is '7'; expected 2"),
        (CONLL2012.replace("00 0 2 to", "00 0 2-3 to"), 4, "the number of the word is '2-3'; expected 2"),
        (CONLL2012.replace("00 0 0 Ann", "00 0 2 Ann"), 2, "the number of the word is '2'; expected 0"),
        ("I\t-\t(A0*)\n\twin\t(V*)\n", 2, "the word is empty"),
        (CONLL2012.replace(" ", "\t").replace("\tAnn\t", "\t\t"), 2, "the word is empty"),
    ],
)
def test_invalid_columns_are_an_error_with_their_line(tmp_path, text, line, message):
    path = write_file(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read_examples(path)
    assert message in caught.value.message
    assert caught.value.message.startswith(f"{path}:{line}:" if line else f"{path}:")


@st.composite
def propositions(draw):
    length = draw(st.integers(1, 7))
    predicate = draw(st.integers(0, length - 1))
    boundaries = sorted(draw(st.sets(st.integers(0, length), max_size=6)) | {predicate, predicate + 1})
    spans = [("V", predicate, predicate)]
    for a, b in itertools.pairwise(boundaries):
        if a != predicate and draw(st.booleans()):
            spans.append((draw(st.sampled_from(["A0", "A1", "C-A1", "R-A0", "AM-TMP"])), a, b - 1))
    words = st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1, max_size=4)
    tokens = draw(st.lists(words, min_size=length, max_size=length))
    pos, sense = draw(st.sampled_from(["VB", ""])), draw(st.sampled_from(["go.01", "be"]))
    tags = tags_of_spans(sorted(spans, key=lambda span: span[1]), length)
    return Example(tokens=tuple(tokens), predicate=predicate, tags=tags, pos=pos, sense=sense)


@settings(max_examples=25)  # each writes and syncs a file
@given(st.lists(propositions(), min_size=1, max_size=3))
def test_write_then_read_is_identity(tmp_path_factory, examples):
    path = tmp_path_factory.mktemp("srl") / "out.txt"
    numbered = [Example(**{**vars(example), "sentence": n}) for n, example in enumerate(examples)]
    write_examples(path, numbered)
    assert read_examples(path) == examples


def gold(*rows):
    return [Example(tokens=("w",) * len(row.split()), predicate=0, tags=tuple(row.split())) for row in rows]


def test_f1_does_not_score_the_predicate():
    scores = score(gold("B-V B-A0 B-A1 I-A1"), [["B-V", "B-A0", "B-A1", "B-A2"]])
    # gold A0 1, A1 2-3; predicted A0 1, A1 2, A2 3: 1 correct of 3 predicted and 2 gold
    assert scores["precision"] == pytest.approx(100 / 3)
    assert scores["recall"] == 50
    assert scores[METRIC] == pytest.approx(40)
    assert (scores["f1_A0"], scores["f1_A1"], scores["f1_A2"]) == (100, 0, 0)
    assert scores["perfect"] == 0
    assert "f1_V" not in scores


def test_a_continued_argument_is_correct_only_with_all_its_spans():
    examples = gold("B-A1 B-V B-C-A1 B-A0")
    assert arguments_of(examples[0].tags) == {("A1", ((0, 0), (2, 2))), ("A0", ((3, 3),))}
    half = score(examples, [["B-A1", "B-V", "O", "B-A0"]])
    # official: the predicted A1 lacks its second span, so 1 of 2 predicted and 1 of 2 gold; by spans: 2/2 and 2/3
    assert half["f1"] == pytest.approx(50)
    assert half["span_f1"] == pytest.approx(80)
    assert score(examples, [examples[0].tags])["perfect"] == 100


def test_a_continuation_without_a_beginning_is_an_argument_of_that_role():
    assert arguments_of(["B-V", "B-C-A1"]) == {("A1", ((1, 1),))}
    assert score(gold("B-V B-A1"), [["B-V", "B-C-A1"]])["f1"] == 100


def test_a_continuation_belongs_to_the_latest_argument_of_its_role():
    assert arguments_of(["B-A1", "B-A1", "B-C-A1"]) == {("A1", ((0, 0),)), ("A1", ((1, 1), (2, 2)))}


def test_a_reference_is_a_role_of_its_own():
    scores = score(gold("B-V B-R-A0"), [["B-V", "B-A0"]])
    assert scores["f1"] == 0
    assert scores["f1_R-A0"] == 0


def test_unlabelled_predicates_cannot_be_scored():
    with pytest.raises(DataError, match="no gold arguments"):
        score([Example(tokens=("a",), predicate=0)], [["O"]])
