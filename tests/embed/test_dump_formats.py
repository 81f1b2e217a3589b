"""Every format of a bulk embedding, read back with its own library: the vectors equal those of `embed`."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from elmo.embed.dump.job import dump
from elmo.embed.dump.options import DumpOptions
from elmo.embed.dump.write_hdf5 import check_sentence_keys
from elmo.embed.dump.write_jsonl import json_line
from elmo.embed.load import load
from elmo.errors import DataError, OutputError

MODEL = Path(__file__).resolve().parents[2] / "elmo" / "golden" / "allennlp"
LINES = [
    "The cat sat on the mat .",
    "",
    "Zürich 東京 \U0001f600 \u2028 a\x00b \x85 c\x0bd",
    "  Twice the same .  ",
    "x",
    "and/or 1/2 .",
    "\ufeffmid \r bell\x07",
    "Twice the same .",
    '"quoted" \\ back',
]
LINES += [f"Line {i} of many ." for i in range(30)]
SENTENCES = [line.split() for line in LINES]
CHOICES = [
    ("all", None),
    ("top", None),
    ("average", None),
    ("1", None),
    ("0.2,0.3,0.5", None),
    ("all", "mean"),
    ("top", "max"),
]
SMALL = {"block_lines": 8, "batch_size": 4}


@pytest.fixture(scope="module")
def embedder():
    return load(MODEL / "options.json", MODEL / "lm_weights.hdf5", device="cpu", tokenizer="whitespace")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes("".join(f"{line}\n" for line in LINES).encode())
    return path


def expected(embedder, layers, pool):
    if pool:
        return list(embedder.encode(SENTENCES, layers=layers, pooling=pool))
    return embedder.embed(SENTENCES, layers=layers)


def read_npz(path):
    return flat(dict(np.load(path).items()))


def read_safetensors(path):
    with safe_open(path, "numpy") as file:
        return flat({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118  # not a dict


def flat(arrays):
    texts = {name: bytes(arrays[name]).decode().split("\n")[:-1] for name in ("tokens", "lines")}
    assert texts["lines"] == LINES
    pooled = len(arrays["vectors"]) != arrays["offsets"][-1]
    sentences = []
    for i, (a, b) in enumerate(zip(arrays["offsets"], arrays["offsets"][1:], strict=False)):
        rows = arrays["vectors"][i] if pooled else arrays["vectors"][a:b]
        sentences.append((texts["tokens"][a:b], rows if pooled or rows.ndim == 2 else rows.transpose(1, 0, 2)))
    return sentences


def read_hdf5(path):
    with h5py.File(path) as file:
        index = json.loads(file["sentence_to_index"][0])
        assert index == {line.strip(): str(i) for i, line in enumerate(LINES)}
        assert index["Twice the same ."] == "7"
        assert len(file) == len(LINES) + 1
        return [(SENTENCES[i], file[str(i)][...]) for i in range(len(LINES))]


def read_jsonl(path):
    raw = path.read_bytes()
    unpack = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
    if path.suffix == ".zst":
        raw = pytest.importorskip("zstandard").ZstdDecompressor().decompressobj().decompress(raw)
    raw = unpack.get(path.suffix, bytes)(raw)
    rows = [json.loads(line) for line in raw.decode("ascii").splitlines()]
    assert [row["line"] for row in rows] == list(range(len(LINES)))
    return [(row["tokens"], np.array(row["vectors"], dtype=np.float32)) for row in rows]


def read_parquet(path):
    pq = pytest.importorskip("pyarrow.parquet")
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"elmo"])["layout"]
    assert table["line"].to_pylist() == list(range(len(LINES)))
    assert table["text"].to_pylist() == LINES
    lead = (about["num_kept"],) if about["stacked"] else ()
    middle = () if about["pooled"] else (-1,)
    stored = []
    for tokens, values in zip(table["tokens"].to_pylist(), table["vectors"], strict=True):
        array = np.asarray(values.values.to_numpy(zero_copy_only=False))
        shape = (*lead, *middle, about["dim"])
        stored.append((tokens, array.reshape(shape if array.size else (*lead, 0, about["dim"]))))
    return stored


READERS = {
    ".hdf5": read_hdf5,
    ".npz": read_npz,
    ".safetensors": read_safetensors,
    ".parquet": read_parquet,
    ".jsonl": read_jsonl,
}


@pytest.mark.parametrize("suffix", READERS)
def test_format_reads_back_as_embedded(tmp_path, embedder, source, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    for number, (layers, pool) in enumerate(CHOICES):
        out = tmp_path / f"o{number}{suffix}"
        dump(embedder, source, out, DumpOptions(layers=layers, pool=pool, **SMALL))
        stored = READERS[suffix](out)
        assert len(stored) == len(LINES)
        for (tokens, vectors), sentence, expected_vectors in zip(
            stored, SENTENCES, expected(embedder, layers, pool), strict=True
        ):
            assert tokens == sentence
            if suffix == ".jsonl" and not sentence and not pool:
                assert vectors.shape == expected_vectors.shape[:-1]  # an empty list in JSON has no inner width
                continue
            assert vectors.shape == expected_vectors.shape
            np.testing.assert_allclose(vectors, expected_vectors, atol=2e-6)  # batches differ, so the last digits may


@pytest.mark.parametrize(("pool", "layers"), [(None, "all"), ("mean", "average"), ("max", "average")])
def test_default_layers_are_those_of_the_command(tmp_path, embedder, source, pool, layers):
    """All layers of pooled sentences were written, and `elmo embed --pool` wrote their average."""
    for name, options in (("default", {}), ("named", {"layers": layers})):
        dump(embedder, source, tmp_path / f"{name}.npz", DumpOptions(pool=pool, **options, **SMALL))
    assert (tmp_path / "default.npz").read_bytes() == (tmp_path / "named.npz").read_bytes()


@pytest.mark.parametrize("suffix", READERS)
def test_half_precision_is_the_rounded_vector(tmp_path, embedder, source, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    dump(embedder, source, tmp_path / "full.npz", DumpOptions(**SMALL))
    dump(embedder, source, tmp_path / f"half{suffix}", DumpOptions(dtype="float16", **SMALL))
    for (_, half), (_, full) in zip(
        READERS[suffix](tmp_path / f"half{suffix}"), read_npz(tmp_path / "full.npz"), strict=True
    ):
        assert suffix == ".jsonl" or half.dtype == np.float16
        assert np.array_equal(half.reshape(full.shape).astype(np.float16), full.astype(np.float16))


def test_value_beyond_half_precision_is_refused(tmp_path, source):
    large = load(MODEL / "options.json", MODEL / "lm_weights.hdf5", device="cpu", tokenizer="whitespace")
    large.model.token_encoder.project.weight.mul_(1e9)
    with pytest.raises(OutputError, match=r"in.txt:1: a value is too large for float16"):
        dump(large, source, tmp_path / "o.npz", DumpOptions(dtype="float16"))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_compressed_jsonl_is_the_same_text_and_always_the_same_bytes(tmp_path, embedder, source, suffix):
    if suffix == ".zst":
        pytest.importorskip("zstandard")
    options = DumpOptions(layers="top", **SMALL)
    for name in ("a.jsonl" + suffix, "b.jsonl" + suffix, "plain.jsonl"):
        dump(embedder, source, tmp_path / name, options)
    assert (tmp_path / f"a.jsonl{suffix}").read_bytes() == (tmp_path / f"b.jsonl{suffix}").read_bytes()
    pairs = zip(read_jsonl(tmp_path / f"a.jsonl{suffix}"), read_jsonl(tmp_path / "plain.jsonl"), strict=True)
    assert all(a[0] == b[0] and np.array_equal(a[1], b[1]) for a, b in pairs)


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_compressed_input_is_the_same_input(tmp_path, embedder, source, suffix):
    data = source.read_bytes()
    packers = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, "": bytes}
    if suffix == ".zst":
        packers[".zst"] = pytest.importorskip("zstandard").ZstdCompressor().compress
    (tmp_path / f"packed.txt{suffix}").write_bytes(packers[suffix](data))
    dump(embedder, tmp_path / f"packed.txt{suffix}", tmp_path / "o.npz", DumpOptions(**SMALL))
    dump(embedder, source, tmp_path / "p.npz", DumpOptions(**SMALL))
    assert (tmp_path / "o.npz").read_bytes() == (tmp_path / "p.npz").read_bytes()


def test_stream_to_standard_output_is_the_file(tmp_path, embedder, source, monkeypatch):
    dump(embedder, source, tmp_path / "o.jsonl", DumpOptions(**SMALL))
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    summary = dump(embedder, source, "-", DumpOptions(**SMALL))
    assert stdout.buffer.getvalue() == (tmp_path / "o.jsonl").read_bytes()
    assert (summary.lines, summary.path) == (len(LINES), "-")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=30), max_size=40))
def test_any_text_comes_back_from_jsonl(tmp_path, embedder, texts):
    source = tmp_path / "any.txt"
    source.write_bytes("".join(f"{text}\n" for text in texts).encode())
    out = tmp_path / "any.jsonl"
    dump(embedder, source, out, DumpOptions(layers="top", overwrite=True, block_lines=16))
    rows = [json.loads(line, parse_constant=pytest.fail) for line in out.read_text("ascii").splitlines()]
    lines = [text.removesuffix("\r") for text in texts]
    if lines:
        lines[0] = lines[0].removeprefix("\ufeff")
    assert [row["tokens"] for row in rows] == [text.split() if text.isprintable() else words(text) for text in lines]


def words(text):
    from elmo.text.tokenize import tokenizer

    return [token.text for token in tokenizer("whitespace")(text)]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_json_numbers_give_the_same_floats_back(values):
    vector = np.array(values, dtype=np.float32)
    row = json.loads(json_line(0, [], vector))
    assert np.array_equal(np.array(row["vectors"], dtype=np.float32), vector)


def test_numbers_that_json_does_not_have_are_null():
    line = json_line(3, ["a"], np.array([1.5, np.nan, -np.inf], dtype=np.float32))
    assert line == b'{"line": 3, "tokens": ["a"], "vectors": [1.5,null,null]}\n'


def test_sentence_keys(tmp_path, embedder):
    lines = ["One .", "1/2 cup of milk .", "1/2 cup", "Two"]
    (tmp_path / "in.txt").write_text("".join(f" {line}\n" for line in lines))
    dump(embedder, tmp_path / "in.txt", tmp_path / "o.hdf5", DumpOptions(use_sentence_keys=True, layers="top"))
    with h5py.File(tmp_path / "o.hdf5") as file:
        assert "sentence_to_index" not in file
        for line in lines:
            np.testing.assert_allclose(file[line][...], embedder.embed([line.split()], layers="top")[0], atol=2e-6)
    dump(embedder, tmp_path / "in.txt", tmp_path / "p.hdf5", DumpOptions(forget_sentences=True))
    with h5py.File(tmp_path / "p.hdf5") as file:
        assert set(file) == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["a", "b", "a"], ":3: the line was there before"),
        (["a", " a "], ":2: the line was there before"),
        (["a//b", "a/./b"], ":2: the line was there before"),
        (["a", ""], ":2: the line is blank"),
        (["."], ":1: the line has no name"),
        (["a", "a/b"], ":2: the line is the beginning"),
        (["a/b/c", "a/b"], ":2: the line is the beginning"),
        (["a\0b"], ":1: the line holds a NUL"),
        (["a" * 70_000], ":1: the line is longer"),
    ],
)
def test_sentences_that_cannot_be_keys_are_refused(lines, reason):
    with pytest.raises(DataError, match=reason):
        check_sentence_keys(lines, "in.txt")
