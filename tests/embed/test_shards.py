"""Many files into a folder of Parquet shards: the vectors of `dump`, boundaries by input, continued runs, refusals."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from in_process_cli import run_in_process

from elmo.embed.dump.job import dump
from elmo.embed.dump.options import DumpOptions
from elmo.embed.load import load
from elmo.embed.shards.job import OneProcess, embed_files
from elmo.embed.shards.options import ModelSettings, ReadOptions
from elmo.embed.shards.source_file import RowReader, index_file
from elmo.errors import ConfigError, DataError, OutputError
from elmo.text.lines import read_lines
from elmo.text.tokenize import tokenizer

MODEL = Path(__file__).resolve().parent.parent.parent / "elmo" / "golden" / "allennlp"
SETTINGS = ModelSettings(
    model=str(MODEL / "options.json"), weights=str(MODEL / "lm_weights.hdf5"), tokenizer="whitespace"
)
LINES = [f"word{i} of the bank {'and ' * (i % 5)}." for i in range(50)]
LINES[7] = ""
POOLED = DumpOptions(pool="mean", layers="average", block_lines=4)
READ = ReadOptions(shard_rows=20)


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    with gzip.open(folder / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(LINES[:45]))
    rows = [json.dumps({"id": i, "text": line}) for i, line in enumerate(LINES[:21])]
    (folder / "c.jsonl").write_text("\n".join(rows), encoding="utf-8")
    table = pa.table({"id": range(41), "text": LINES[:41]})
    pq.write_table(table, folder / "d.parquet", row_group_size=9)
    return folder


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def embed(corpus: Path, out: Path, options: DumpOptions = POOLED, read: ReadOptions = READ):
    return embed_files(str(corpus), out, SETTINGS, options, read)


@pytest.mark.parametrize("options", [POOLED, DumpOptions(layers="all", block_lines=4, dtype="float16")])
def test_every_row_of_every_file_has_the_vectors_of_dump_once(options, corpus, tmp_path):
    summary = embed(corpus, tmp_path / "out", options)
    assert (summary.files, summary.lines, summary.shards) == (4, 157, 3 + 3 + 2 + 3)
    embedder = load(SETTINGS.model, SETTINGS.weights, device="cpu", tokenizer="whitespace")
    dump(embedder, corpus / "a.txt", tmp_path / "a.parquet", options)
    expected = pq.read_table(tmp_path / "a.parquet")
    for source, rows in enumerate([50, 45, 21, 41]):
        table = pa.concat_tables(
            pq.read_table(path) for path in sorted((tmp_path / "out").glob(f"part-0000{source}-*"))
        )
        assert table["line"].to_pylist() == list(range(rows))
        for column in ("text", "tokens"):
            assert table[column].to_pylist() == expected[column].to_pylist()[:rows]
        for a, b in zip(table["vectors"], expected["vectors"], strict=False):
            np.testing.assert_allclose(a.values.to_numpy(), b.values.to_numpy(), rtol=0, atol=2e-3)


def test_the_manifest_lists_files_settings_and_shards_with_checksums(corpus, tmp_path):
    out = tmp_path / "out"
    summary = embed(corpus, out)
    manifest = json.loads((out / "_manifest.json").read_text())
    assert [Path(source["path"]).name for source in manifest["sources"]] == [
        "a.txt",
        "b.txt.gz",
        "c.jsonl",
        "d.parquet",
    ]
    assert [shard["name"] for shard in manifest["shards"]] == sorted(shards(out))
    num_tokens = sum(len(line.split()) for rows in (50, 45, 21, 41) for line in LINES[:rows])
    assert sum(shard["tokens"] for shard in manifest["shards"]) == summary.tokens == num_tokens
    assert {path.name for path in out.iterdir()} == {"_manifest.json", *shards(out)}
    assert pq.read_table(out).num_rows == 157  # readers of folders skip the manifest


def test_a_run_that_was_stopped_is_continued_with_the_same_bytes(corpus, tmp_path):
    complete, out = tmp_path / "complete", tmp_path / "out"
    embed(corpus, complete)
    with pytest.raises(_Stop):
        embed_files(str(corpus), out, SETTINGS, POOLED, READ, runner=_StoppingRunner(5))
    assert not (out / "_manifest.json").exists()
    kept = list(shards(out))
    assert 5 <= len(kept) < 11
    (out / kept[1]).unlink()
    (out / kept[2]).write_bytes((out / kept[2]).read_bytes()[:-9])  # damaged
    (out / f".{kept[3]}.0123456789abcdef.partial").mkdir()  # of a process that was killed when the shard was in place
    summary = embed(corpus, out)
    assert not list(out.glob(".*.partial"))
    assert summary.shards_kept == len(kept) - 2
    assert shards(out) == shards(complete)
    assert (out / "_manifest.json").read_bytes() == (complete / "_manifest.json").read_bytes()


def test_a_finished_run_is_not_repeated_and_a_deleted_shard_is_made_again(corpus, tmp_path):
    out = tmp_path / "out"
    embed(corpus, out)
    before = shards(out)
    times = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert embed(corpus, out).shards_kept == len(before)
    assert {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")} == times
    (out / "part-00001-000001.parquet").unlink()
    assert embed(corpus, out).shards_kept == len(before) - 1
    assert shards(out) == before


def test_another_input_or_setting_does_not_continue_a_run(corpus, tmp_path):
    out = tmp_path / "out"
    embed(corpus, out)
    with pytest.raises(OutputError, match="belongs to another run") as caught:
        embed(corpus, out, DumpOptions(pool="max", layers="average", block_lines=4))
    assert "vectors.pool: was mean, is max" in caught.value.message
    (corpus / "a.txt").write_text("other\n")
    with pytest.raises(OutputError, match="file 0"):
        embed(corpus, out)
    embed(corpus, out, DumpOptions(pool="mean", layers="average", block_lines=4, overwrite=True))
    assert pq.read_table(out / "part-00000-000000.parquet")["text"].to_pylist() == ["other"]
    assert not (out / "part-00000-000001.parquet").exists()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xef\xbb\xbf",
        b"\n",
        b"a",
        b"a\n",
        b"a\nb",
        b"\xef\xbb\xbfa\nb\n",
        b"a\r\n\r\nb\r\nc",
        b"x\n" * 6,
        b"x\n" * 7,
    ],
)
@pytest.mark.parametrize("shard_rows", [1, 2, 3, 100])
def test_shards_of_a_text_are_its_lines(text, shard_rows, tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(text)
    options = ReadOptions(shard_rows=shard_rows)
    source = index_file(str(path), options)
    lines = list(read_lines(path))
    assert source.rows == len(lines)
    reader = RowReader(source, options, tokenizer("whitespace"))
    for first in range(0, len(lines), shard_rows):
        assert [line for line, _ in reader.rows(first)] == lines[first:]


def test_tokens_and_missing_rows_of_json_lines(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"words": ["New York", "!"]}\n{"words": null}\n{"words": "two words \\ud800"}\n')
    read = ReadOptions(column="words", missing="empty")
    embed_files(str(path), tmp_path / "out", SETTINGS, POOLED, read)
    table = pq.read_table(tmp_path / "out")
    assert table["tokens"].to_pylist() == [["New York", "!"], [], ["two", "words", "\ufffd"]]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("in.jsonl", '{"text": "a"}\n{"text": null}\n', r"in.jsonl:2: the text is null"),
        ("in.jsonl", '{"body": "a"}\n', r"in.jsonl:1 has no key 'text'; it has 'body'"),
        ("in.jsonl", '{"text": 3}\n', r"in.jsonl:1: 'text' is '3'; expected a string"),
        ("in.jsonl", '{"text": "a"}\n\n', r"in.jsonl:2: not valid JSON"),
        ("in.parquet", "x", "not a Parquet file"),
        ("in.csv", "", r"in.csv is empty; expected a row with the names"),
        ("in.csv", "id,body\n1,a\n", r"in.csv:1 has no column 'text'; it has 'id', 'body'"),
        ("in.tsv", "text\ttext\na\tb\n", r"in.tsv:1 has 2 columns 'text'"),
        ("in.csv", 'id,text\n1,"a\nb"\n2,c,d\n', r"in.csv:4: the row has 3 fields; expected 2"),
        ("in.csv", 'id,text\n1,a\n2,"b\n3,c\n', r"in.csv:3: the row cannot be read \(unexpected end"),
        ("in.csv", 'id,text\n1,a\n2,"b"c\n', r"in.csv:3: the row cannot be read"),
        ("in.txt", "a\nb\udcff\n", r"in.txt:2: byte 3 \(0xff\) is not UTF-8"),
    ],
)
def test_rows_that_cannot_be_read_are_errors_that_name_the_place(name, text, message, tmp_path):
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=message):
        embed_files(str(tmp_path / name), tmp_path / "out", SETTINGS, POOLED, READ)


CSV_ROWS = [("1", "The bank, and the bank ."), ("2", 'She said " no " .'), ("3", "two\nlines"), ("4", ""), ("5", "é")]


@pytest.mark.parametrize("name", ["in.csv", "in.tsv", "in.csv.gz", "IN.CSV"])
@pytest.mark.parametrize("shard_rows", [1, 2, 10])
def test_the_texts_of_csv_are_the_fields_of_the_column(name, shard_rows, tmp_path):
    out = io.StringIO(newline="")
    csv.writer(out, dialect="excel-tab" if "tsv" in name else "excel").writerows([("id", "text"), *CSV_ROWS])
    content = b"\xef\xbb\xbf" + (out.getvalue() + "\r\n").encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    read = ReadOptions(shard_rows=shard_rows)
    source = index_file(str(path), read)
    assert source.rows == 5
    reader = RowReader(source, read, tokenizer("whitespace"))
    for first in range(0, 5, shard_rows):
        assert [text for text, _ in reader.rows(first)] == [text for _, text in CSV_ROWS[first:]]


def test_a_run_over_csv_that_was_stopped_is_continued_with_the_same_bytes(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("text\n" + "".join(f'"{line}\nagain"\n' for line in LINES))
    embed_files(str(path), tmp_path / "complete", SETTINGS, POOLED, READ)
    with pytest.raises(_Stop):
        embed_files(str(path), tmp_path / "out", SETTINGS, POOLED, READ, runner=_StoppingRunner(2))
    assert embed_files(str(path), tmp_path / "out", SETTINGS, POOLED, READ).shards_kept == 2
    assert shards(tmp_path / "out") == shards(tmp_path / "complete")


def test_memory_of_reading_csv_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("id,text\n" + "1,The bank of the river\n" * 400_000)  # 10 MB
    tracemalloc.start()
    source = index_file(str(path), READ)
    assert source.rows == 400_000
    assert tracemalloc.get_traced_memory()[1] < 9e6  # blocks of 1 MiB and their lines
    tracemalloc.stop()


def test_the_command_embeds_a_column_of_csv(tmp_path, capsys):
    (tmp_path / "t.csv").write_text('id,body\n1,"The bank ."\n')
    model = ["--model", SETTINGS.model, "--weights", SETTINGS.weights, "--tokenizer", "whitespace", "--device", "cpu"]
    done = run_in_process(
        capsys, "embed", f"{tmp_path}/t.csv", f"{tmp_path}/out/", *model, "--layers", "top", "--column", "body"
    )
    assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "out")["tokens"].to_pylist() == [["The", "bank", "."]]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv.gz", "t.jsonl", "t.parquet"])
def test_one_output_file_refuses_tables_whose_markup_would_be_embedded_as_words(name, tmp_path, capsys):
    (tmp_path / name).write_text('{"text": "The bank ."}\n')
    done = run_in_process(capsys, "embed", f"{tmp_path}/{name}", f"{tmp_path}/o.npz")
    assert done.returncode == 2
    assert f"elmo embed {tmp_path}/{name} OUT/" in done.stderr


def test_a_file_that_changes_while_it_is_read_is_an_error(corpus, tmp_path):
    runner = _StoppingRunner(3, action=lambda: os.utime(corpus / "d.parquet"))
    with pytest.raises(DataError, match="changed while it was read"):
        embed_files(str(corpus), tmp_path / "out", SETTINGS, POOLED, READ, runner=runner)
    assert not (tmp_path / "out" / "_manifest.json").exists()


def test_folders_that_cannot_be_used_are_refused(corpus, tmp_path):
    with pytest.raises(OutputError, match="not empty"):
        embed(corpus, corpus)
    with pytest.raises(DataError, match="No file matches"):
        embed_files(str(tmp_path / "*.nothing"), tmp_path / "out", SETTINGS, POOLED, READ)
    with pytest.raises(ConfigError, match="URL"):
        embed(corpus, "s3://bucket/out")
    with pytest.raises(ConfigError, match="carry"):
        ModelSettings(state="carry")


def test_the_command_writes_a_folder(corpus, tmp_path, capsys):
    model = ["--model", SETTINGS.model, "--weights", SETTINGS.weights, "--tokenizer", "whitespace", "--device", "cpu"]
    words = ["embed", str(corpus / "*.txt"), f"{tmp_path}/out/", *model, "--pool", "mean", "--shard-lines", "20"]
    done = run_in_process(capsys, *words, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["shards"] == 3
    assert run_in_process(capsys, *words, "--shard", "1/2").returncode == 2
    assert (
        run_in_process(capsys, "embed", str(corpus / "a.txt"), f"{tmp_path}/a.npz", *model, "--column", "x").returncode
        == 2
    )
    assert run_in_process(capsys, *words, "--actors", "2").returncode == 2


class _Stop(Exception):
    pass


class _StoppingRunner:
    """Calls an action, or stops, when some shards are finished."""

    planning_device = "cpu"

    def __init__(self, count, action=None):
        self.count, self.action = count, action

    def index(self, paths, options):
        return [index_file(path, options) for path in paths]

    def run(self, job, tasks, embedder):
        for number, record in enumerate(OneProcess("cpu").run(job, tasks, embedder), 1):
            if number == self.count:
                if self.action is None:
                    raise _Stop
                self.action()
            yield record
