"""Bulk embedding in one process: blocks, plans, shards, locks, and inputs and outputs that are refused."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scale import scaled

from elmo.embed.dump.assemble import merge
from elmo.embed.dump.blocks import cut_blocks
from elmo.embed.dump.job import dump
from elmo.embed.dump.options import DumpOptions, parse_shard
from elmo.embed.load import load
from elmo.errors import ConfigError, DataError, OutputError
from elmo.text.sentences import split_sentences
from elmo.text.tokenize import tokenizer

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "elmo" / "golden" / "allennlp"
SPLIT = tokenizer("whitespace")
SENTENCES = [line for batch in json.loads((MODEL / "sentences.json").read_text()) for line in batch]


def make_embedder(**options):
    return load(
        MODEL / "options.json", MODEL / "lm_weights.hdf5", **{"device": "cpu", "tokenizer": "whitespace", **options}
    )


@pytest.fixture(scope="module")
def embedder():
    return make_embedder()


@pytest.fixture
def source(tmp_path):
    """60 lines, some blank, in about ten blocks of SMALL."""
    lines = [*SENTENCES[:20], "", *SENTENCES[:10], "x", "", "", *(f"word{i} and word{i % 3} ." for i in range(26))]
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def after_blocks(embedder, count, action):
    """Calls `action` when the embedder has computed `count` blocks and the next one begins."""
    original, calls = embedder.stream, []

    def stream(*args, **options):
        calls.append(1)
        if len(calls) == count + 1:
            action()
        return original(*args, **options)

    embedder.stream = stream


def interrupt():
    raise KeyboardInterrupt


SMALL = {"block_lines": 7, "block_tokens": 120, "batch_size": 4, "max_tokens": 100}


# ---- blocks ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 12)), st.integers(1, 9), st.integers(1, 30), st.sampled_from([1, 1, 3])
)  # lengths of lines, limits
def test_blocks_hold_every_line_once_within_the_limits(lengths, max_lines, max_tokens, multiple):
    lines = [" ".join("w" * length) for length in lengths]
    blocks = list(cut_blocks(lines, SPLIT, max_lines=max_lines, max_tokens=max_tokens, multiple=multiple))
    assert [line for block in blocks for line in block.lines] == lines
    assert [block.number for block in blocks] == list(range(len(blocks)))
    assert [len(s) for block in blocks for s in block.sentences] == lengths
    for block, after in pairwise(blocks):
        assert after.first_line == block.first_line + len(block.lines)
        assert len(block.lines) % multiple == 0
    if multiple == 1:
        for block in blocks:
            assert len(block.lines) <= max_lines
            assert len(block.lines) == 1 or block.num_tokens + 2 * len(block.lines) <= max_tokens


def test_blocks_of_huge_tokens_are_small():
    blocks = list(cut_blocks(["x" * 1_000_000] * 9, SPLIT, max_lines=4096, max_tokens=16384))
    assert [len(block.lines) for block in blocks] == [4, 4, 1]


# ---- the same bytes in every way ------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_shards_give_the_bytes_of_one_run(tmp_path, source, state):
    used = make_embedder(state=state)
    used.embed("Words that it has seen before .")  # earlier calls have no effect
    dump(used, source, tmp_path / "one.npz", DumpOptions(**SMALL))
    for i in (3, 1, 2):
        dump(make_embedder(state=state), source, tmp_path / "many.npz", DumpOptions(shard=(i, 3), **SMALL))
    assert not (tmp_path / "many.npz").exists()
    summary = merge(tmp_path / "many.npz")
    assert (tmp_path / "many.npz").read_bytes() == (tmp_path / "one.npz").read_bytes()
    assert summary.lines == 60
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "many.npz", "one.npz"]


@pytest.mark.parametrize("state", ["reset", "warm", "carry"])
def test_resumed_run_gives_the_bytes_of_one_run(tmp_path, source, state):
    dump(make_embedder(state=state), source, tmp_path / "one.npz", DumpOptions(**SMALL))
    stopped = make_embedder(state=state)
    after_blocks(stopped, 4, interrupt)
    with pytest.raises(KeyboardInterrupt):
        dump(stopped, source, tmp_path / "two.npz", DumpOptions(**SMALL))
    assert len(list((tmp_path / "two.npz.parts").glob("block-*.part"))) == 4
    assert not (tmp_path / "two.npz").exists()
    summary = dump(make_embedder(state=state), source, tmp_path / "two.npz", DumpOptions(resume=True, **SMALL))
    assert summary.blocks_kept == 4
    assert (tmp_path / "two.npz").read_bytes() == (tmp_path / "one.npz").read_bytes()


@pytest.mark.parametrize(("tokenizer_name", "state"), [("default", "reset"), ("unicode", "carry")])
def test_paragraphs_give_the_bytes_of_their_sentences(tmp_path, tokenizer_name, state):
    paragraphs = ["It was 5 p.m. in St. Ives. Dr. Low left!", "", "One.", "यह है। ठीक है।", "L'eau dort ! Bon."]
    paragraphs += [f"No. {i} sleeps. {'It snores. ' * (i % 5)}" for i in range(20)]
    (tmp_path / "paragraphs.txt").write_text("".join(f"{text}\n" for text in paragraphs), encoding="utf-8")
    settings = {"tokenizer": tokenizer_name, "state": state}
    rules = make_embedder(**settings).sentence_rules
    sentences = [text[start:end] for text in paragraphs for start, end in split_sentences(text, rules)]
    assert len(sentences) > len(paragraphs)
    (tmp_path / "sentences.txt").write_text("".join(f"{text}\n" for text in sentences), encoding="utf-8")
    for suffix in ("npz", "jsonl"):
        expected = tmp_path / f"sentences.{suffix}"
        dump(make_embedder(**settings), tmp_path / "sentences.txt", expected, DumpOptions(**SMALL))
        out = tmp_path / f"paragraphs.{suffix}"
        stopped = make_embedder(**settings)
        after_blocks(stopped, 2, interrupt)
        with pytest.raises(KeyboardInterrupt):
            dump(stopped, tmp_path / "paragraphs.txt", out, DumpOptions(paragraphs=True, **SMALL))
        with pytest.raises(OutputError, match=r"text\.paragraphs"):
            dump(make_embedder(**settings), tmp_path / "paragraphs.txt", out, DumpOptions(resume=True, **SMALL))
        resumed = DumpOptions(paragraphs=True, resume=True, **SMALL)
        summary = dump(make_embedder(**settings), tmp_path / "paragraphs.txt", out, resumed)
        assert (summary.blocks_kept, summary.lines) == (2, len(sentences))
        assert out.read_bytes() == expected.read_bytes()


def test_carried_state_follows_the_whole_file(tmp_path, source):
    dump(make_embedder(state="carry"), source, tmp_path / "a.npz", DumpOptions(**SMALL))
    sentences = [line.split() for line in source.read_text().splitlines()]
    stream = make_embedder(state="carry").stream(sentences, layers="all", batch_size=SMALL["batch_size"])
    expected = np.concatenate([vectors.transpose(1, 0, 2) for vectors in stream])
    np.testing.assert_allclose(np.load(tmp_path / "a.npz")["vectors"], expected, atol=2e-6)  # other word batches


def test_damaged_part_file_is_detected_and_computed_again(tmp_path, embedder, source):
    dump(embedder, source, tmp_path / "one.npz", DumpOptions(**SMALL))
    for i in (1, 2):
        dump(embedder, source, tmp_path / "two.npz", DumpOptions(shard=(i, 2), **SMALL))
    damaged = tmp_path / "two.npz.parts" / "block-0000001.part"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(OutputError, match=r"block-0000001\.part is damaged: the checksum of its vectors"):
        merge(tmp_path / "two.npz")
    assert not (tmp_path / "two.npz").exists()
    damaged.write_bytes(data[:-5])
    assert dump(embedder, source, tmp_path / "two.npz", DumpOptions(shard=(2, 2), **SMALL)).blocks_kept > 0
    merge(tmp_path / "two.npz")
    assert (tmp_path / "two.npz").read_bytes() == (tmp_path / "one.npz").read_bytes()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("suffix", "num_random"),
    [(".npz", 4), pytest.param(".hdf5", scaled(100), marks=pytest.mark.slow("kills"))],
    ids=["npz", "hdf5"],
)
def test_killed_anywhere_and_resumed_gives_the_same_bytes(tmp_path, suffix, num_random, record_property):
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{line}\n" for line in SENTENCES[:12]))
    out = tmp_path / "out"
    out.mkdir()
    script = [sys.executable, Path(__file__).with_name("kill_dump.py")]
    words = [MODEL / "options.json", MODEL / "lm_weights.hdf5", source, out, suffix, str(num_random)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*script, *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[2]) > 20, done.stdout
    record_property("kills", int(done.stdout.split()[2]))


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_unfinished_run_is_neither_discarded_nor_mixed_with_another(tmp_path, embedder, source):
    out = tmp_path / "o.npz"
    dump(embedder, source, out, DumpOptions(shard=(1, 2), **SMALL))
    with pytest.raises(OutputError, match="finished blocks of an earlier run") as caught:
        dump(embedder, source, out, DumpOptions(**SMALL))
    assert "--resume" in caught.value.hint
    with pytest.raises(OutputError, match=r"vectors\.layout\.dtype: was 'float32', is 'float16'"):
        dump(embedder, source, out, DumpOptions(resume=True, dtype="float16", **SMALL))
    with pytest.raises(OutputError, match="shards: was 2, is 4"):
        dump(embedder, source, out, DumpOptions(shard=(1, 4), **SMALL))
    with pytest.raises(OutputError, match=r"compute\.state: was 'reset', is 'warm'"):
        dump(make_embedder(state="warm"), source, out, DumpOptions(resume=True, **SMALL))
    other = make_embedder()
    other.model.stacks[0].layers[0].bias[0] += 1.0
    with pytest.raises(OutputError, match=r"model\.sha256"):
        dump(other, source, out, DumpOptions(resume=True, **SMALL))
    changed = tmp_path / "changed.txt"
    changed.write_text(source.read_text().replace("x", "y"))
    with pytest.raises(OutputError, match=r"input\.sha256"):
        dump(embedder, changed, out, DumpOptions(resume=True, **SMALL))
    moved = shutil.copy(source, tmp_path / "moved.txt")
    assert dump(embedder, moved, out, DumpOptions(resume=True, **SMALL)).blocks_kept > 0  # finishes what shards began
    dump(embedder, source, tmp_path / "one.npz", DumpOptions(**SMALL))
    assert out.read_bytes() == (tmp_path / "one.npz").read_bytes()


def test_overwrite_discards_an_unfinished_run(tmp_path, embedder, source):
    out = tmp_path / "o.npz"
    out.write_text("old")
    dump(embedder, source, out, DumpOptions(shard=(1, 2), overwrite=True, **SMALL))
    assert out.read_text() == "old"
    summary = dump(embedder, source, out, DumpOptions(overwrite=True, layers="top", **SMALL))
    assert summary.blocks_kept == 0
    assert np.load(out)["vectors"].shape == (summary.tokens, embedder.dim)


def test_merge_names_the_missing_shards(tmp_path, embedder, source):
    out = tmp_path / "o.npz"
    with pytest.raises(OutputError, match="no part files"):
        merge(out)
    dump(embedder, source, out, DumpOptions(shard=(2, 4), **SMALL))
    with pytest.raises(OutputError, match="shards 1/4, 3/4, 4/4") as caught:
        merge(out)
    assert caught.value.exit_code == 1
    for i in (1, 3, 4):
        dump(embedder, source, out, DumpOptions(shard=(i, 4), **SMALL))
    out.write_text("someone else's")
    with pytest.raises(OutputError, match="exists"):
        merge(out)
    merge(out, overwrite=True)
    assert len(np.load(out)["offsets"]) == 61


@pytest.mark.parametrize(
    ("first", "second", "allowed"),
    [(None, None, False), ((1, 2), (2, 2), True), ((1, 2), (1, 2), False), ((1, 2), None, False)],
)
def test_two_writers_on_one_output(tmp_path, embedder, source, first, second, allowed):
    from elmo.embed.dump.part_folder import PartFolder
    from elmo.embed.dump.target import Target

    fcntl = pytest.importorskip("fcntl")
    assert fcntl
    holder = PartFolder(Target(path=tmp_path / "o.npz", format="npz"))
    holder.lock(first)
    try:
        if allowed:
            dump(embedder, source, tmp_path / "o.npz", DumpOptions(shard=second, **SMALL))
        else:
            with pytest.raises(OutputError, match=f"is being written by process {os.getpid()} on"):
                dump(embedder, source, tmp_path / "o.npz", DumpOptions(shard=second, **SMALL))
    finally:
        holder.close()


def test_outputs_that_cannot_be_written(tmp_path, embedder, source):
    before = source.read_bytes()
    with pytest.raises(OutputError, match="is the input itself"):
        dump(embedder, source, source, DumpOptions(overwrite=True, format="npz"))
    (tmp_path / "link.npz").symlink_to(source)
    with pytest.raises(OutputError, match="is the input itself"):
        dump(embedder, source, tmp_path / "link.npz", DumpOptions(overwrite=True))
    assert source.read_bytes() == before
    with pytest.raises(OutputError, match="there is no folder"):
        dump(embedder, source, tmp_path / "nowhere" / "o.npz")
    (tmp_path / "d.npz").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        dump(embedder, source, tmp_path / "d.npz")
    (tmp_path / "o.npz").write_text("precious")
    with pytest.raises(OutputError, match="exists") as caught:
        dump(embedder, source, tmp_path / "o.npz")
    assert "--overwrite (in Python overwrite=True)" in caught.value.hint
    with pytest.raises(OutputError, match="exists"):  # nothing to resume: the file may be of another program
        dump(embedder, source, tmp_path / "o.npz", DumpOptions(resume=True))
    assert (tmp_path / "o.npz").read_text() == "precious"
    (tmp_path / "loop.npz").symlink_to(tmp_path / "loop.npz")
    with pytest.raises(OutputError, match="cannot be written"):
        dump(embedder, source, tmp_path / "loop.npz")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "f.npz")
        with pytest.raises(OutputError, match="not a regular file"):
            dump(embedder, source, tmp_path / "f.npz", DumpOptions(overwrite=True))
    assert not list(tmp_path.glob("*.parts"))


def test_inputs_that_cannot_be_read(tmp_path, embedder):
    text = gzip.compress(b"A line of text .\n" * 5000)
    (tmp_path / "cut.gz").write_bytes(text[:-20])
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(70_000_000), 1))
    (tmp_path / "bad.txt").write_bytes(b"fine .\n" * 3 + b"\xff\xfe\n")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    reasons = {"cut.gz": "byte", "bomb.gz": "longer than", "bad.txt": "bad.txt:4: byte 21"}
    for name, reason in (*reasons.items(), (".", "folder"), ("loop", "cannot be read"), ("none", "cannot be read")):
        with pytest.raises(DataError, match=reason):
            dump(embedder, tmp_path / name, tmp_path / "o.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.txt", "bomb.gz", "cut.gz", "loop"]


def test_input_that_grows_is_an_error(tmp_path, embedder, source):
    growing = make_embedder()
    after_blocks(growing, 2, lambda: source.write_bytes(source.read_bytes() + b"One more line .\n"))
    with pytest.raises(DataError, match="changed while it was read"):
        dump(growing, source, tmp_path / "o.npz", DumpOptions(**SMALL))
    assert not (tmp_path / "o.npz").exists()


def test_contradicting_options_are_errors(tmp_path, embedder, source):
    for text in ("9/8", "0/8"):
        with pytest.raises(ConfigError, match="shard is"):
            DumpOptions(shard=parse_shard(text))
    for text in ("1", "a/b", "1/", "-1/2", "1/2/3"):
        with pytest.raises(ConfigError, match="expected i/n"):
            parse_shard(text)
    with pytest.raises(ConfigError, match="shards are not possible"):
        dump(make_embedder(state="carry"), source, tmp_path / "o.npz", DumpOptions(shard=(1, 2)))
    with pytest.raises(ConfigError, match="read only once"):
        dump(embedder, "-", tmp_path / "o.npz", DumpOptions(resume=True))
    with pytest.raises(ConfigError, match="does not tell the output format"):
        dump(embedder, source, tmp_path / "o.bin")
    with pytest.raises(ConfigError, match="compresses jsonl only"):
        dump(embedder, source, tmp_path / "o.npz.gz")
    with pytest.raises(ConfigError, match="are for hdf5"):
        dump(embedder, source, tmp_path / "o.npz", DumpOptions(use_sentence_keys=True))
    with pytest.raises(ConfigError, match="only jsonl can"):
        dump(embedder, source, "-", DumpOptions(format="npz"))
    for field, value in (("dtype", "int8"), ("pool", "sum"), ("format", "csv"), ("errors", "ignore")):
        with pytest.raises(ConfigError, match=f"{field} is"):
            DumpOptions(**{field: value})


def test_disk_that_is_too_small_is_an_error_before_any_work(tmp_path, embedder, source, monkeypatch):
    messages = []
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10_000))
    with pytest.raises(OutputError, match=r"needs about \d+ MB; 0 MB are free"):
        dump(embedder, source, tmp_path / "o.npz", DumpOptions(**SMALL), say=messages.append)
    assert "tokens" in messages[0]
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    dump(embedder, source, tmp_path / "o.npz", DumpOptions(force=True, **SMALL))
    assert (tmp_path / "o.npz").exists()


def test_estimate_is_close(tmp_path, embedder, source):
    from elmo.embed.dump.estimate import estimate
    from elmo.embed.dump.part_file import Layout

    layout = Layout(num_kept=3, dim=embedder.dim, stacked=True, pooled=False, dtype="float32")
    generator, words = random.Random(0), source.read_text().split()
    text = "".join(" ".join(generator.choices(words, k=20)) + "\n" for _ in range(5000)).encode()
    for name, data, close in (("all.txt", text, 0.05), ("all.txt.gz", gzip.compress(text), 0.3)):
        (tmp_path / name).write_bytes(data)
        size = estimate(tmp_path / name, SPLIT, layout, "npz", DumpOptions())
        assert size.tokens == pytest.approx(len(text.split()), rel=close)
        assert size.result_bytes == pytest.approx(4 * 3 * embedder.dim * len(text.split()), rel=close + 0.1)


def test_warnings_about_the_text(tmp_path, embedder, caplog):
    source = tmp_path / "in.txt"
    source.write_text("This was, never, tokenised.\n" * 30 + "x" * 49 + " " + "é" * 25 + " " + "y" * 48 + "\n")
    summary = dump(embedder, source, tmp_path / "o.npz")
    assert summary.cut_tokens == 2
    assert any("punctuation" in record.message for record in caplog.records)
    assert any("were cut" in record.message for record in caplog.records)


def test_empty_file_is_zero_sentences(tmp_path, embedder):
    (tmp_path / "in.txt").write_bytes(b"")
    for suffix in (".npz", ".hdf5", ".safetensors", ".jsonl", ".jsonl.gz"):
        summary = dump(embedder, tmp_path / "in.txt", tmp_path / f"o{suffix}")
        assert (summary.lines, summary.tokens, summary.blocks) == (0, 0, 0)
        assert (tmp_path / f"o{suffix}").exists()
    assert np.load(tmp_path / "o.npz")["vectors"].shape == (0, 3, embedder.dim)
