"""TaggedSentence sentences from CoNLL-U and IOB2 files, and the search for the three files of a corpus."""

from __future__ import annotations

import pytest

from elmo.errors import ConfigError, DataError
from elmo.probes.tagged_sentences import TaggedSentence, find_splits, read_tagged
from elmo.tasks.ner.data import read_examples

TREEBANK = """# sent_id = 1
# text = Don't go
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t0\troot\t_\t_
2\tn't\tnot\tPART\tRB\t_\t1\tadvmod\t_\t_
2.1\tnothing\t_\tX\tXX\t_\t_\t_\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t1\tx\t_\t_

1\t#\t#\tSYM\t#\t_\t0\troot\t_\t_

1\tja\tja\tINTJ\t_\t_\t0\troot\t_\t_
"""


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_treebank_words_are_the_rows_with_integer_ids(tmp_path):
    path = write(tmp_path / "a.conllu", TREEBANK)
    assert read_tagged(path, "xpos") == [
        TaggedSentence(["Do", "n't", "go"], ["VB", "RB", "VB"]),
        TaggedSentence(["#"], ["#"]),  # the third has no xpos
    ]
    assert [s.tags for s in read_tagged(path, "upos")] == [["AUX", "PART", "VERB"], ["SYM"], ["INTJ"]]
    assert len(read_tagged(path, "upos", limit=1)) == 1


def test_entities_are_the_third_column_and_a_last_blank_line_is_not_needed(tmp_path):
    path = write(tmp_path / "a.iob2", "# newdoc\n1\tAl\tB-ORG\t-\tx\n2\tZaman\tI-ORG\n\n1\t:\tO")
    assert read_tagged(path, "iob") == [
        TaggedSentence(["Al", "Zaman"], ["B-ORG", "I-ORG"]),
        TaggedSentence([":"], ["O"]),
    ]


@pytest.mark.parametrize("text", ["Al\tB-ORG\nZaman\tI-ORG\n\n:\tO\n", "Al NNP I-ORG\nZaman NNP I-ORG\n\n: : O\n"])
def test_entities_are_read_from_the_files_of_the_task_ner(text, tmp_path):
    path = write(tmp_path / "a.iob2", text)
    expected = [TaggedSentence(["Al", "Zaman"], ["B-ORG", "I-ORG"]), TaggedSentence([":"], ["O"])]
    assert read_tagged(path, "iob") == expected
    assert [TaggedSentence(list(e.tokens), list(e.tags)) for e in read_examples(path)] == expected


def test_a_comment_may_hold_a_tab(tmp_path):
    lines = "# text = a\tb\n1\t#\tO\n2\tb\tB-X\n\n"
    assert read_tagged(write(tmp_path / "a.iob2", lines), "iob")[0].tokens == ["#", "b"]


def test_a_row_with_too_few_columns_is_an_error_with_its_line(tmp_path):
    path = write(tmp_path / "a.conllu", "1\tword\n")
    with pytest.raises(DataError, match=r"a\.conllu:1: the row has 2 columns"):
        read_tagged(path, "upos")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\n2\tn't", "\nx\tn't", "5: the id of the row is 'x'; expected 2"),
        ("\n2\tn't", "\n 2\tn't", "5: the id of the row is ' 2'; expected 2"),
        ("\n2\tn't", "\n²\tn't", "5: the id of the row is '²'; expected 2"),
        ("\n2\tn't", "\n3\tn't", "5: the id of the row is '3'; expected 2"),
        ("\n\n1\tja", "\n1\tja", "10: the id of the row is '1'; expected 2"),  # no blank line between sentences
        ("\tn't\tnot", "\t\tnot", "5: the word is empty"),
    ],
)
def test_a_row_of_a_treebank_that_is_not_the_next_word_is_an_error(tmp_path, old, new, message):
    path = write(tmp_path / "a.conllu", TREEBANK.replace(old, new))
    with pytest.raises(DataError) as caught:
        read_tagged(path, "upos")
    assert caught.value.message.startswith(f"{path}:{message}")


def test_a_file_without_tags_is_an_error(tmp_path):
    path = write(tmp_path / "a.conllu", "1\tja\tja\tINTJ\t_\t_\t0\troot\t_\t_\n")
    with pytest.raises(DataError, match="no xpos"):
        read_tagged(path, "xpos")


def test_splits_are_found_by_folder_and_by_prefix(tmp_path):
    for name in ("en", "cy"):
        for split in ("train", "dev", "test"):
            write(tmp_path / f"{name}-ud-{split}.conllu", TREEBANK)
    splits = find_splits([tmp_path / "en"])
    assert [path.name for path in splits.values()] == [f"en-ud-{split}.conllu" for split in ("train", "dev", "test")]
    with pytest.raises(ConfigError, match="cy-ud-train"):
        find_splits([tmp_path])
    (tmp_path / "sub").mkdir()
    for split in ("train", "dev", "test"):
        write(tmp_path / "sub" / f"{split}.iob2", "1\ta\tO\n")
    assert [path.name for path in find_splits([tmp_path / "sub"]).values()] == ["train.iob2", "dev.iob2", "test.iob2"]
    assert list(find_splits(["a", "b", "c"])) == ["train", "dev", "test"]
    with pytest.raises(ConfigError, match="2 paths"):
        find_splits(["a", "b"])
