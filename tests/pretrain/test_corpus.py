"""Reading text files as sentences of tokens: formats, invalid bytes, special words, and chunks for workers."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import ConfigError, DataError
from elmo.pretrain.data.corpus import Reading, chunk_jobs, read_chunk, read_sentences, sentence_splitter
from elmo.pretrain.data.sources import find_sources

TEXT = "The cat sat .\n\nIt 's Ā day .\r\n  one   two\t three \n"
SENTENCES = [["The", "cat", "sat", "."], ["It", "'s", "Ā", "day", "."], ["one", "two", "three"]]


def test_a_line_is_a_tokenised_sentence(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert list(read_sentences([path])) == SENTENCES


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]
)
def test_compressed_files_and_globs_are_read(tmp_path, suffix, compress):
    for name in ("b", "a"):
        (tmp_path / f"{name}.txt{suffix}").write_bytes(compress(f"{name} .\n".encode()))
    assert list(read_sentences([str(tmp_path / f"*{suffix}")])) == [["a", "."], ["b", "."]]


def test_standard_input_is_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert list(read_sentences(["-"])) == SENTENCES


def test_raw_text_is_split_into_sentences_and_tokens(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Dr. Smith didn't go. Why? It's $5.\n\nNext (one).\n", encoding="utf-8")
    assert list(read_sentences([path], Reading(tokenize="default"))) == [
        ["Dr.", "Smith", "didn", "'t", "go", "."],
        ["Why", "?"],
        ["It", "'s", "$", "5", "."],
        ["Next", "(", "one", ")", "."],
    ]


@pytest.mark.parametrize("special", ["<S>", "</S>", "<UNK>"])
def test_special_words_are_refused_with_their_line(tmp_path, special):
    path = tmp_path / "a.txt"
    path.write_text(f"fine .\n\nnot {special} fine\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"a\.txt:3: the word {special}"):
        list(read_sentences([path]))


def test_special_words_can_be_escaped_or_unknown(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a <S> b\n", encoding="utf-8")
    assert list(read_sentences([path], Reading(specials="escape"))) == [["a", "&lt;S&gt;", "b"]]
    with pytest.raises(DataError, match=r"a\.txt:1"):
        list(read_sentences([path], Reading(specials="keep")))
    path.write_text("a <UNK> b\n", encoding="utf-8")
    assert list(read_sentences([path], Reading(specials="keep"))) == [["a", "<UNK>", "b"]]


def test_bytes_that_are_not_utf8_are_named_replaced_or_skipped(tmp_path):
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text("fine .\n", encoding="utf-8")
    bad.write_bytes(b"a b\nc \xff d\n")
    with pytest.raises(DataError, match=r"bad\.txt:2: byte 6 \(0xff\)"):
        list(read_sentences([bad, good]))
    assert list(read_sentences([bad, good], Reading(errors="replace")))[1] == ["c", "\ufffd", "d"]
    assert list(read_sentences([bad, good], Reading(errors="skip"))) == [["a", "b"], ["fine", "."]]
    (chunk,) = next(chunk_jobs(find_sources([bad])))
    with pytest.raises(DataError, match=r"bad\.txt:2: byte 6 \(0xff\)"):
        read_chunk(chunk)


def test_missing_files_folders_and_wrong_options_are_errors(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        find_sources([tmp_path / "none*"])
    with pytest.raises(DataError, match="has no text files"):
        find_sources([tmp_path])
    with pytest.raises(ConfigError, match="No text files"):
        find_sources([])
    with pytest.raises(ConfigError, match="no tokenizer 'defualt'"):
        Reading(tokenize="defualt")
    with pytest.raises(ConfigError, match="specials is 'drop'"):
        Reading(specials="drop")


def test_a_file_named_twice_is_read_once(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\n", encoding="utf-8")
    assert [source.path for source in find_sources([path, tmp_path / "*.txt"])] == [str(path)]


@settings(max_examples=60)
@given(
    lines=st.lists(st.text(alphabet="ab Ā\u2028\r", max_size=12), max_size=12),
    end=st.sampled_from(["", "\n", "\r\n"]),
    chunk_bytes=st.integers(1, 30),
    compressed=st.booleans(),
)
def test_chunks_of_any_size_hold_every_line_once(lines, end, chunk_bytes, compressed):
    text = "\n".join(lines) + end
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("a.txt.gz" if compressed else "a.txt")
        path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
        jobs = list(chunk_jobs(find_sources([path]), chunk_bytes))
        split = sentence_splitter(Reading())
        sentences = [sentence for job in jobs for chunk in job for sentence in split(read_chunk(chunk))]
        assert sentences == [line.split() for line in text.split("\n") if line.split()]


def test_small_files_share_a_job(tmp_path):
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text("a b c\n", encoding="utf-8")
    jobs = list(chunk_jobs(find_sources([tmp_path / "*.txt"]), 30))
    assert [len(job) for job in jobs] == [5, 5]
    assert [chunk.source for job in jobs for chunk in job] == list(range(10))


def test_a_truncated_gzip_is_named_in_the_error(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(TEXT.encode() * 1000)[:-20])
    with pytest.raises(DataError, match=r"a\.txt\.gz: cannot be read past byte"):
        list(chunk_jobs(find_sources([path])))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes (POSIX)")
def test_a_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(TEXT,), kwargs={"encoding": "utf-8"})
    writer.start()
    (source,) = find_sources([tmp_path / "pipe"])
    split = sentence_splitter(Reading())
    assert [s for job in chunk_jobs([source]) for chunk in job for s in split(read_chunk(chunk))] == SENTENCES
    writer.join()
