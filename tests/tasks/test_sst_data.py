"""Reader and scorer of the sst task: trees, their phrases, and errors that name file and line."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import DataError
from elmo.tasks.sst.data import Example, Phrase, phrases_of, read_examples, write_examples
from elmo.tasks.sst.score import METRIC, score

TREE = "(3 (2 It) (4 (2 -LRB-) (1 3\u00a01\\/2)))"


def write_file(tmp_path, text):
    path = tmp_path / "trees.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_example_has_tokens_label_and_every_phrase(tmp_path):
    (example,) = read_examples(write_file(tmp_path, f"\ufeff{TREE}\r\n\n"))
    assert example.tokens == ("It", "(", "3\u00a01/2")
    assert example.label == 3
    nodes = [(p.first, p.last, p.label, p.is_word) for p in example.phrases]
    assert nodes == [(0, 2, 3, False), (0, 0, 2, True), (1, 2, 4, False), (1, 1, 2, True), (2, 2, 1, True)]


def test_each_distinct_phrase_is_one_training_example(tmp_path):
    examples = read_examples(write_file(tmp_path, "(3 (2 so) (4 good))\n(1 (2 so) (1 (2 so) (0 bad)))\n"))
    phrases = [(" ".join(example.tokens), example.label) for example in phrases_of(examples)]
    assert phrases == [("so good", 3), ("so", 2), ("good", 4), ("so so bad", 1), ("so bad", 1), ("bad", 0)]


@pytest.mark.parametrize(
    "text", ["It works.\t4\n\n3\t2\n", "4\tIt works.\r\n2\t3\r\n", "sentence\tlabel\nIt works.\t4\n3\t2\n"]
)
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_texts_with_a_label_are_read_from_tsv_in_either_order(text, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    examples = read_examples(path)
    assert examples == [Example(tokens=("It", "works", "."), label=4), Example(tokens=("3",), label=2)]
    assert phrases_of(examples) == examples  # whole texts are the training examples


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("It works\t4\nIt works\tgood\n", r"a\.tsv:2: the label is 'good'; expected 0, 1, 2, 3 or 4"),
        ("It works\t4\n\n4\n", r"a\.tsv:3: expected a text and a label"),
        ("text\tlabel\n\t4\n", r"a\.tsv:2: expected a text and a label"),
        ("", r"a\.tsv: the file has no text"),
        ("text\tlabel\n", r"a\.tsv: the file has no text"),
    ],
)
def test_a_line_of_tsv_without_a_text_or_label_is_an_error(text, message, tmp_path):
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_examples(tmp_path / "a.tsv")


def test_two_classes_are_not_read_as_two_of_five_without_a_message(tmp_path, caplog):
    path = tmp_path / "train.tsv"
    texts = "it works\t1\nit fails\t0\n"
    path.write_text(f"sentence\tlabel\n{texts}")  # SST-2 of GLUE
    with pytest.raises(DataError, match="all labels are 0 or 1") as caught:
        read_examples(path)
    assert "write 4 in place of 1" in caught.value.hint
    for text, num_warnings in (
        (texts, 1), (f"text\tlabel\n{texts}", 1), (f"sentence\tlabel\n{texts}fine\t3\n", 0), ("bad\t0\n", 0)
    ):  # fmt: skip
        caplog.clear()
        path.write_text(text)
        assert read_examples(path)
        assert len(caplog.records) == num_warnings


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("(3 (2 It) (4 works)", "incomplete"),
        ("(3 (2 It) (4 works)) more", "follows the end"),
        ("(3 (7 It) (4 works))", "'7'"),
        ("(3 (2 It) works)", "not in a node"),
        ("(3 (2 It here))", "not in a node"),
        ("(3 It (2 is))", "both a word and children"),
        ("((2 It) (4 works))", "no label"),
        ("(3 ())", "empty"),
        ("It works .", "not in a node"),
    ],
)
def test_an_invalid_tree_is_an_error_with_its_line(tmp_path, line, message):
    path = write_file(tmp_path, f"{TREE}\n{line}\n")
    with pytest.raises(DataError) as caught:
        read_examples(path)
    assert caught.value.message.startswith(f"{path}:2:")
    assert message in caught.value.message


words = st.text(st.characters(codec="utf-8", exclude_characters="()[]{}\\ ", exclude_categories=("Z", "C")), min_size=1)
trees = st.recursive(
    st.tuples(st.integers(0, 4), words),
    lambda children: st.tuples(st.integers(0, 4), st.lists(children, min_size=1)),
    max_leaves=8,
)


def as_text(tree):
    label, content = tree
    return f"({label} {content if isinstance(content, str) else ' '.join(map(as_text, content))})"


@settings(max_examples=25)  # each writes and syncs a file
@given(st.lists(trees, min_size=1, max_size=3))
def test_write_then_read_is_identity(tmp_path_factory, random_trees):
    folder = tmp_path_factory.mktemp("sst")
    lines = "\n".join(map(as_text, random_trees))
    examples = read_examples(write_file(folder, lines))
    write_examples(folder / "out.txt", examples)
    assert read_examples(folder / "out.txt") == examples
    assert (folder / "out.txt").read_text(encoding="utf-8").rstrip("\n") == lines


def test_an_example_without_a_tree_is_not_written(tmp_path):
    with pytest.raises(DataError, match="no tree"):
        write_examples(tmp_path / "out.txt", [Example(tokens=("a",), label=2)])


def test_accuracy_in_five_and_in_two_classes_by_hand():
    labels = [0, 1, 2, 3, 4]
    examples = [
        Example(tokens=("w",), label=n, phrases=(Phrase(first=0, last=0, label=n, is_word=True),)) for n in labels
    ]
    scores = score(examples, [1, 1, 2, 2, 0])
    assert scores[METRIC] == 40  # the second and third of five
    assert scores["binary_accuracy"] == 50  # of 0, 1, 3, 4: the two negative ones are correct
    with pytest.raises(DataError, match="no gold label"):
        score([Example(tokens=("w",))], [1])
