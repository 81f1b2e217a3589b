"""Reader of the ner task: column layouts, tag schemes, and errors that name file and line."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import DataError
from elmo.tasks.ner.data import Example, read_examples, write_examples
from elmo.text.spans import spans_of_tags, tags_of_spans

CONLL2003 = """-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC
British JJ I-NP B-MISC
call NN I-NP O

# # I-NP O
1 CD I-NP I-ORG
"""
UNER = """# newdoc id = answers-1
# sent_id = answers-1-0001
# text = in tampa bay
1\tin\tO
2\ttampa\tB-LOC\t-\tstephen
3\tbay\tI-LOC\t-\tstephen
"""


def write_file(tmp_path, text, newline="\n"):
    path = tmp_path / "data.txt"
    path.write_bytes(text.replace("\n", newline).encode())
    return path


def test_conll2003_is_read_and_iob1_becomes_iob2(tmp_path):
    first, second = read_examples(write_file(tmp_path, CONLL2003))
    assert first.tokens == ("EU", "rejects", "German", "British", "call")
    assert first.tags == ("B-ORG", "O", "B-MISC", "B-MISC", "O")
    assert second == Example(tokens=("#", "1"), tags=("O", "B-ORG"))
    assert first.sentences == (first.tokens,)


def test_numbered_rows_have_the_tag_in_the_third_column(tmp_path):
    assert read_examples(write_file(tmp_path, UNER)) == [
        Example(tokens=("in", "tampa", "bay"), tags=("O", "B-LOC", "I-LOC"))
    ]


@pytest.mark.parametrize("name", ["text[en]", "text[zh-Hant]", "text_en", "newdoc id", "meta::source", "sent_id"])
def test_comments_of_treebanks_are_not_rows(tmp_path, name):
    text = UNER.replace("# text = in tampa bay", f"# {name} = I live in O")
    assert read_examples(write_file(tmp_path, text)) == read_examples(write_file(tmp_path, UNER))
    columns = f"# {name} = I live in O\nEU B-ORG\n# O\n"
    assert read_examples(write_file(tmp_path, columns)) == [Example(tokens=("EU", "#"), tags=("B-ORG", "O"))]


def test_a_sentence_of_the_number_one_has_its_tag_in_the_last_column(tmp_path):
    # the chunk in the third column is not the entity, although this sentence could be numbered
    for text in (f"{CONLL2003}\n1 CD I-NP O\n", "1 CD I-NP O\n", "Ada X B-PER\n\n1 O O\n"):
        assert read_examples(write_file(tmp_path, text))[-1] == Example(tokens=("1",), tags=("O",))


def test_windows_line_ends_and_a_byte_order_mark_are_ignored(tmp_path):
    path = tmp_path / "bom.txt"
    path.write_bytes(b"\xef\xbb\xbf" + CONLL2003.replace("\n", "\r\n").encode())
    assert read_examples(path) == read_examples(write_file(tmp_path, CONLL2003))


@pytest.mark.parametrize(
    ("tags", "iob2"),
    [
        ("B-X E-X S-Y O", "B-X I-X B-Y O"),  # IOBES
        ("B-X L-X U-Y I-Y", "B-X I-X B-Y B-Y"),  # BILOU
        ("I-X I-Y I-Y B-Y O I-X", "B-X B-Y I-Y B-Y O B-X"),  # IOB1
    ],
)
def test_every_scheme_becomes_iob2(tmp_path, tags, iob2):
    text = "".join(f"w{n} {tag}\n" for n, tag in enumerate(tags.split()))
    assert read_examples(write_file(tmp_path, text))[0].tags == tuple(iob2.split())


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a DT O\nb O\n", 2, "2 columns"),
        ("a O\nb X-PER\n", 2, "X-PER"),
        ("a O\n\nb\n", 3, "has only 'b'"),
        ("1\ta\tO\n2\tb\n", 2, "too short"),
        ("a\tO\n\tO\n", 2, "empty"),
    ],
)
def test_an_invalid_row_is_an_error_with_its_line(tmp_path, text, line, message):
    path = write_file(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read_examples(path)
    assert f"{path}:{line}:" in caught.value.message
    assert message in caught.value.message


def test_an_empty_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no sentence"):
        read_examples(write_file(tmp_path, "\n\n"))


words = st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1, max_size=8)
kinds = st.sampled_from(["PER", "LOC", "A-B"])


@st.composite
def tagged_spans(draw):
    length = draw(st.integers(1, 8))
    boundaries = sorted(draw(st.sets(st.integers(0, length), max_size=6)))
    spans = [(draw(kinds), a, b - 1) for a, b in itertools.pairwise(boundaries) if draw(st.booleans())]
    return length, spans


@given(tagged_spans())
def test_spans_to_tags_and_back(case):
    length, spans = case
    assert [tuple(span) for span in spans_of_tags(tags_of_spans(spans, length))] == spans


@settings(max_examples=25)  # each writes and syncs a file
@given(st.lists(tagged_spans(), min_size=1, max_size=4), st.data())
def test_write_then_read_is_identity(tmp_path_factory, cases, data):
    examples = [
        Example(
            tokens=tuple(data.draw(st.lists(words, min_size=length, max_size=length))),
            tags=tags_of_spans(spans, length),
        )
        for length, spans in cases
    ]
    path = tmp_path_factory.mktemp("ner") / "out.txt"
    write_examples(path, examples)
    assert read_examples(path) == examples
