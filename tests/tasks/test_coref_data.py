"""Reader of the coref task: JSON lines and CoNLL columns, nested and crossing mentions, errors with file and line."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import DataError
from elmo.tasks.coref.data import Example, read_examples, sorted_clusters, write_examples

SENTENCES = [["Ann", "left", "."], ["She", "and", "her", "dog", "ran", "."]]
GUM = """# begin document GUM_news_ann
0\tAnn\t(1)
1\tleft\t_
2\t.\t_
3\tShe\t(2(1)
4\tand\t_
5\ther\t(3(1)
6\tdog\t2)3)
7\tran\t_
8\tit\t(2)
9\tand\t_
10\t#\t(3)
# end document
"""
CONLL2012 = """#begin document (bc/cctv/00); part 000
bc/cctv/00 0 0 I PRP * - - - ann * (1)
bc/cctv/00 0 1 left VBD * - - - ann * -

bc/cctv/00 0 0 My PRP$ * - - - bob * (2|(1)
bc/cctv/00 0 1 dog NN * - - - bob * 2)

#end document
#begin document (nw/x); part 001
nw/x 1 0 It PRP * - - - - * (2)

#end document
"""


def write_file(tmp_path, *lines):
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(x if isinstance(x, str) else json.dumps(x) + "\n" for x in lines), encoding="utf-8")
    return path


def test_json_lines_are_read(tmp_path):
    values = {"doc": "d", "genre": "news", "sentences": SENTENCES, "clusters": [[[5, 5], [3, 3], [0, 0]]]}
    (example,) = read_examples(write_file(tmp_path, values))
    assert example.clusters == (((0, 0), (3, 3), (5, 5)),)
    assert (example.doc, example.genre, example.speakers) == ("d", "news", ())
    assert example.tokens[3:7] == ("She", "and", "her", "dog")


def test_doc_keys_and_speakers_of_other_converters_are_read(tmp_path):
    speakers = [["ann"] * 3, ["bob"] * 6]
    values = {"doc_key": "bc/cctv/00_0", "sentences": SENTENCES, "speakers": speakers, "clusters": []}
    (example,) = read_examples(write_file(tmp_path, values))
    assert (example.doc, example.genre) == ("bc/cctv/00_0", "bc")
    assert example.speakers == ("ann",) * 3 + ("bob",) * 6


def test_brackets_without_separators_may_nest_and_cross(tmp_path):
    (example,) = read_examples(write_file(tmp_path, GUM))
    assert example.genre == "news"
    assert example.tokens[-1] == "#"
    assert example.clusters == (((0, 0), (3, 3), (5, 5)), ((3, 6), (8, 8)), ((5, 6), (10, 10)))


def test_conll2012_has_parts_speakers_and_separators(tmp_path):
    first, second = read_examples(write_file(tmp_path, CONLL2012))
    assert first.sentences == (("I", "left"), ("My", "dog"))
    assert first.clusters == (((0, 0), (2, 2)), ((2, 3),))
    assert first.speakers == ("ann", "ann", "bob", "bob")
    assert (first.doc, first.genre) == ("bc/cctv/00 part 000", "bc")
    assert (second.clusters, second.speakers) == ((((0, 0),),), ())


def test_documents_without_blank_lines_between_them_are_separate(tmp_path):
    dense = CONLL2012.replace("\n\n#end", "\n#end")
    assert read_examples(write_file(tmp_path, dense)) == read_examples(write_file(tmp_path, CONLL2012))
    empty = "#begin document (nw/empty); part 000\n#end document\n"
    assert [example.doc for example in read_examples(write_file(tmp_path, empty, CONLL2012))] == [
        "bc/cctv/00 part 000", "nw/x part 001"
    ]  # fmt: skip


def test_a_mention_in_two_clusters_of_a_column_is_in_the_first(tmp_path, caplog):
    path = write_file(tmp_path, GUM.replace("8\tit\t(2)", "8\tit\t(2)(3)"))
    with caplog.at_level(logging.WARNING):
        (example,) = read_examples(path)
    assert any(record.args[:2] == (path, 10) for record in caplog.records)
    assert sum(cluster.count((8, 8)) for cluster in example.clusters) == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("{x\n", "not valid JSON"),
        ('{"sentences": [["a"]], "sentences": [["b"]]}\n', "key 'sentences' occurs 2 times"),
        ("{}\n", "sentences"),
        ({"sentences": [["a"], []]}, "sentences"),
        ({"sentences": [["a"], ["b", ""]], "clusters": []}, "sentence 2 has an empty word"),
        ({"sentences": SENTENCES, "clusters": [[[0, 9]]]}, "[0, 9]"),
        ({"sentences": SENTENCES, "clusters": [[[2, 1]]]}, "[2, 1]"),
        ({"sentences": SENTENCES, "clusters": [[[0, 0]], [[3, 3], [0, 0]]]}, "clusters 0 and 1"),
        ({"sentences": SENTENCES, "clusters": [[]]}, "cluster 0"),
        ({"sentences": SENTENCES, "clusters": {}}, "dict"),
        ({"sentences": SENTENCES, "speakers": [["ann"]], "clusters": []}, "speakers"),
    ],
)
def test_an_invalid_line_is_an_error_with_its_number(tmp_path, values, message):
    path = write_file(tmp_path, {"sentences": SENTENCES, "clusters": []}, values)
    with pytest.raises(DataError) as caught:
        read_examples(path)
    assert caught.value.message.startswith(f"{path}:2:")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (GUM.replace("4\tand\t_", "4\tand\t9)"), 6, "never opened"),
        (GUM.replace("7\tran\t_", "7\tran\t(9"), 9, "not closed"),
        (GUM.replace("7\tran\t_", "7\tran\t9"), 9, "not valid in a coreference column"),
        (GUM.replace("7\tran\t_", "7\tran"), 9, "2 columns"),
        (GUM.replace("7\tran\t_", "7\t\t_"), 9, "the word is empty"),
    ],
)
def test_invalid_brackets_are_an_error_with_their_line(tmp_path, text, line, message):
    path = write_file(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read_examples(path)
    assert caught.value.message.startswith(f"{path}:{line}:")
    assert message in caught.value.message


@st.composite
def documents(draw):
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    sentences = tuple(tuple(draw(st.text(min_size=1, max_size=3)) for _ in range(n)) for n in lengths)
    total = sum(lengths)
    spans = [(a, b) for a in range(total) for b in range(a, total)]
    mentions = draw(st.lists(st.sampled_from(spans), unique=True, max_size=8))
    cluster_ids = [draw(st.integers(0, 2)) for _ in mentions]
    clusters = [[m for m, number in zip(mentions, cluster_ids, strict=True) if number == k] for k in range(3)]
    return Example(
        sentences=sentences,
        clusters=sorted_clusters(cluster for cluster in clusters if cluster),
        doc=draw(st.text(max_size=5)),
        genre=draw(st.sampled_from(["news", "vlog"])),
        speakers=draw(st.sampled_from([(), tuple("x" * total)])),
    )


@settings(max_examples=25)  # each writes and syncs a file
@given(st.lists(documents(), min_size=1, max_size=3))
def test_write_then_read_is_identity(tmp_path_factory, examples):
    path = tmp_path_factory.mktemp("coref") / "out.jsonl"
    write_examples(path, examples)
    assert read_examples(path) == examples
