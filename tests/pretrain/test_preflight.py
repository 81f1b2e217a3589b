"""The check of a corpus before preparation: its errors, warnings and numbers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from elmo.pretrain.data.corpus import Reading
from elmo.pretrain.data.preflight import preflight
from elmo.text.vocab import Vocabulary

TRAIN = Path(__file__).resolve().parent.parent / "fixtures" / "bilm-tf" / "train"
GOOD = "The cat sat on the mat , and It slept .\n" * 30


def write(tmp_path: Path, text: str, name: str = "a.txt") -> Path:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


def test_good_text_has_neither_errors_nor_warnings(tmp_path):
    report = preflight([write(tmp_path, GOOD)])
    assert (report.errors, report.warnings) == ((), ())
    assert (report.num_lines, report.num_sentences, report.num_tokens, report.num_types) == (30, 30, 330, 11)
    assert report.coverage == 1.0
    assert report.longest_line == (str(tmp_path / "a.txt"), 39)
    assert report.suggested_max_chars == len("slept") + 2
    assert "330, 11 different" in "\n".join(report.lines())
    json.dumps(report.to_dict())


def test_empty_files_bad_bytes_damage_and_special_words_are_errors(tmp_path):
    write(tmp_path, GOOD, "1.txt")
    write(tmp_path, "", "2.txt")
    write(tmp_path, "\n \n", "3.txt")
    (tmp_path / "4.txt").write_bytes(b"fine\nna\xefve\n")
    write(tmp_path, "a <S> b\n", "5.txt")
    (tmp_path / "6.txt.gz").write_bytes(gzip.compress(GOOD.encode())[:-9])
    errors = preflight([tmp_path / "*"]).errors
    assert len(errors) == 5
    assert errors[0].endswith("2.txt contains no sentence.")
    assert errors[1].endswith("3.txt contains no sentence.")
    assert "4.txt:2: byte 7 (0xef)" in errors[2]
    assert "5.txt:1: the word <S>" in errors[3]
    assert "6.txt.gz: cannot be read past byte" in errors[4]
    skipping = preflight([tmp_path / "*"], Reading(errors="skip"))
    assert skipping.errors == ()
    assert sum(warning.startswith("skipped: ") for warning in skipping.warnings) == 5


def test_blank_lines_are_counted(tmp_path):
    report = preflight([write(tmp_path, "a\n\n \n\nb\n")])
    assert (report.num_lines, report.num_blank, report.num_sentences) == (5, 3, 2)
    assert any("3 of 5 lines are blank" in warning for warning in report.warnings)


def test_words_longer_than_max_chars_are_counted_by_bytes(tmp_path):
    thai = "ก" * 20  # 3 bytes each: 60
    report = preflight([write(tmp_path, f"{thai} กา\n" * 50)])
    assert report.cut_share == 0.5
    assert report.suggested_max_chars == 62
    assert any("50.0% of the words are longer than 48 bytes" in w and "--max-chars 62" in w for w in report.warnings)
    assert not any("capital" in warning for warning in report.warnings), "Thai has no capitals"
    assert preflight([tmp_path / "a.txt"], max_chars=62).cut_share == 0


@pytest.mark.parametrize(
    ("text", "tokenize", "warning"),
    [
        ("the cat sat on the mat , and it slept .\n" * 30, None, "Almost no word has a capital letter"),
        ("The cat sat, then It slept. Why? No.\n" * 30, None, "looks untokenised; use --tokenizer default"),
        ("The end\ufffd is near .\n" * 30, None, "30 characters are U+FFFD"),
        (
            "The cat sat on the mat and then it soon went\nout of the house to look for some mice and\n" * 9,
            "default",
            "one line",
        ),
        ("Le cafe\u0301 est ferme\u0301 .\n" * 30, None, "40.0% of the words have accents as separate characters"),
        ("The cat " * 400 + "\n", None, "Sentences have hundreds of words: one sentence per line is expected"),
        ("The cat " * 400 + "\n", "unicode", "Sentences have hundreds of words: try another tokenizer"),
        ('<p>The cat sat .</p>\n{"text": 1}\nThe end .\n' * 9, None, "18 of 27 lines begin as in HTML, XML or JSON"),
        ("One two three .\n", None, "data.min_count"),
        (
            "天地玄黄宇宙洪荒日月盈昃辰宿列张 寒来暑往秋收冬藏闰余成岁律吕调阳\n" * 30,
            None,
            "into words first",
        ),
    ],
)
def test_unusual_text_gives_a_warning(tmp_path, text, tokenize, warning):
    report = preflight([write(tmp_path, text)], Reading(tokenize=tokenize))
    assert any(warning in text for text in report.warnings), report.warnings


def test_text_of_which_nothing_can_be_read_has_no_table(tmp_path):
    (tmp_path / "latin.txt").write_bytes("Ein Bär .\n".encode("latin-1") * 20)
    report = preflight([tmp_path / "latin.txt"])
    assert all(line.startswith("error: ") for line in report.lines())
    assert "--encoding" in next(report.lines())


def test_abbreviations_that_a_tokenizer_leaves_whole_give_no_warning(tmp_path):
    text = write(tmp_path, "Das Boot Nr. 7 ist ca. 9 Meter lang.\n" * 30)
    assert preflight([text], Reading(tokenize="unicode")).warnings == ()
    assert any("untokenised" in warning for warning in preflight([text]).warnings)


def test_coverage_and_order_of_a_given_vocabulary():
    report = preflight([TRAIN / "data.txt"], vocab=Vocabulary.from_file(TRAIN / "vocab.txt"))
    words = (TRAIN / "data.txt").read_text(encoding="utf-8").split()
    vocab_words = set((TRAIN / "vocab.txt").read_text(encoding="utf-8").split())
    assert report.coverage == pytest.approx(sum(word in vocab_words for word in words) / len(words))
    assert report.order_score == pytest.approx(1, abs=1e-3)
    words_only = sorted(vocab_words - {"<S>", "</S>", "<UNK>"}, reverse=True)
    other = preflight([TRAIN / "data.txt"], vocab=Vocabulary(["<S>", "</S>", "<UNK>", *words_only]))
    assert other.order_score is not None
    assert other.order_score < 0.5
    assert any("not sorted" in warning for warning in other.warnings)


def test_a_sample_is_spread_over_the_whole_text(tmp_path):
    write(tmp_path, "".join(f"Word{i // 10_000} here .\n" for i in range(200_000)))
    report = preflight([tmp_path / "a.txt"], max_bytes=600_000)
    assert report.sampled
    assert 200_000 < report.num_bytes < 1_200_000
    assert report.num_types > 10, "not only the beginning"
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(GOOD.encode() * 2000))
    compressed = preflight([tmp_path / "b.txt.gz"], max_bytes=100_000)
    assert 0 < compressed.num_tokens < 330 * 2000
