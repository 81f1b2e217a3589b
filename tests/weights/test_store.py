"""The package's own format: a saved model is read back exactly, and a changed byte is an error."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from models_with_head import tiny_with_head
from published_models import VOCAB, write_model
from safetensors.torch import save_file

from elmo.errors import ConfigError, OutputError, WeightsError
from elmo.files import sha256_file
from elmo.model.config import BiLMConfig, CharConfig, LSTMConfig, WordConfig
from elmo.weights.formats import read_model
from elmo.weights.lookup import tiny_random
from elmo.weights.model_parts import Lexicon, ModelParts, build
from elmo.weights.names import from_published, tensor_specs
from elmo.weights.store import read_store, save_store

ROOT = Path(__file__).resolve().parents[2]


def assert_same(a: ModelParts, b: ModelParts) -> None:
    assert a.config == b.config
    assert (a.vocab, a.lexicon, a.mixes) == (b.vocab, b.lexicon, b.mixes)
    assert a.tensors.keys() == b.tensors.keys()
    for name, tensor in a.tensors.items():
        assert tensor.dtype == b.tensors[name].dtype
        assert tensor.numpy().tobytes() == b.tensors[name].numpy().tobytes(), name


def make_manifest(folder: Path) -> None:
    """Writes a manifest that matches the current files of the folder, as an attacker would."""
    files = {
        p.name: {"sha256": sha256_file(p), "bytes": p.stat().st_size}
        for p in folder.iterdir()
        if p.name != "manifest.json"
    }
    (folder / "manifest.json").write_text(json.dumps({"format": "elmo-lm", "files": files}))


@pytest.fixture
def stored(tmp_path) -> Path:
    save_store(tmp_path / "model", tiny_random())
    return tmp_path / "model"


@pytest.mark.parametrize("seed", range(6))
def test_read_after_save_is_the_same(tmp_path, seed):
    write_model(tmp_path / "a", seed, vocab=True, softmax=True, bidirectional=seed % 2 == 0)
    parts = dataclasses.replace(read_model(tmp_path / "a"), mixes=(((0.1, -2.0, 3.5), 0.7),), card="# Mine\n\nödd ☃\n")
    save_store(tmp_path / "b", parts)
    stored = read_store(tmp_path / "b")
    assert_same(stored, parts)
    assert stored.card == parts.card
    assert stored.about["format"] == "hdf5"
    build(stored)


def test_lexicon_model_is_saved_and_read(tmp_path):
    config = BiLMConfig(
        chars=CharConfig(num_chars=4, char_dim=2, max_chars=5, filters=((1, 3),), num_highways=0),
        words=WordConfig(num_words=3, word_dim=2),
        lstm=LSTMConfig(num_layers=1, cell_dim=4, proj_dim=2, forget_bias=0.0),
        project_tokens=True,
    )
    rng = np.random.default_rng(0)
    tensors = {
        spec.name: from_published(spec, rng.standard_normal(spec.published_shape).astype(np.float32))
        for spec in tensor_specs(config)
    }
    lexicon = Lexicon(chars={"<oov>": 0, "\u3000": 1, "\u2028": 2, '"\\': 3}, words={"<oov>": 0, "a\tb": 1, "": 2})
    parts = ModelParts(config=config, tensors=tensors, lexicon=lexicon)
    save_store(tmp_path / "m", parts)
    assert_same(read_store(tmp_path / "m"), parts)


def test_vocabulary_has_the_same_lines(tmp_path):
    words = ("<S>", "</S>", "", "x\u2028y", "\u0085", "café", "")
    save_store(tmp_path / "m", dataclasses.replace(tiny_random(), vocab=words))
    assert read_store(tmp_path / "m").vocab == tuple(word.strip() for word in words)
    assert (tmp_path / "m" / "vocab.txt").read_bytes().count(b"\n") == len(words)


@pytest.mark.parametrize("num_words", [10, 12])
def test_a_vocabulary_of_another_length_than_the_softmax_is_refused(tmp_path, num_words):
    words = (*VOCAB, "more")[:num_words]
    save_store(tmp_path / "m", dataclasses.replace(tiny_with_head(), vocab=words))
    with pytest.raises(WeightsError, match=r"vocab\.txt holds (10 words; the model has rows for|more than) 11"):
        read_store(tmp_path / "m")


def test_float16_halves_the_file_and_rounds(tmp_path, stored):
    parts = read_store(stored)
    save_store(tmp_path / "half", parts, storage="float16")
    half = read_store(tmp_path / "half")
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (stored, tmp_path / "half")]
    assert 1.9 < sizes[0] / sizes[1] < 2.1
    for name, tensor in half.tensors.items():
        assert tensor.dtype == torch.float16
        torch.testing.assert_close(tensor.float(), parts.tensors[name], rtol=2**-11, atol=2**-24)
    assert next(build(half).parameters()).dtype == torch.float32


def test_value_too_large_for_float16_is_refused(tmp_path):
    parts = tiny_random()
    parts.tensors["stacks.0.layers.0.bias"][0] = 1e6
    with pytest.raises(ConfigError, match="too large for float16"):
        save_store(tmp_path / "m", parts, storage="float16")
    assert list(tmp_path.iterdir()) == []


def test_unknown_storage_and_existing_folder(tmp_path, stored):
    with pytest.raises(ConfigError, match="float64"):
        save_store(tmp_path / "n", tiny_random(), storage="float64")
    with pytest.raises(OutputError, match="exists"):
        save_store(stored, tiny_random())
    save_store(stored, dataclasses.replace(tiny_random(), vocab=tuple(VOCAB)), overwrite=True)
    assert read_store(stored).vocab == tuple(VOCAB)
    assert sorted(p.name for p in stored.parent.iterdir()) == ["model"]


def test_saving_twice_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        save_store(tmp_path / name, tiny_random())
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_one_flipped_byte_is_detected_by_the_manifest(stored, name):
    data = bytearray((stored / name).read_bytes())
    data[len(data) // 2] ^= 1
    (stored / name).write_bytes(data)
    with pytest.raises(WeightsError, match=f"{name} is not the file its manifest describes"):
        read_store(stored)


def test_a_card_that_was_filled_in_does_not_make_the_model_unreadable(stored):
    (stored / "README.md").write_text("# My model\n\nTrained on laws.\n", encoding="utf-8")
    assert read_store(stored).card == "# My model\n\nTrained on laws.\n"


def test_missing_file_and_missing_manifest(stored):
    (stored / "README.md").unlink()
    with pytest.raises(WeightsError, match=r"README\.md is missing"):
        read_store(stored)
    (stored / "manifest.json").unlink()
    with pytest.raises(WeightsError, match=r"manifest\.json"):
        read_store(stored)


@pytest.mark.parametrize(
    "files",
    [None, [], {}, {"model.safetensors": {}}, {"model.safetensors": 3, "config.json": {}}, {"../x": {}}],
)
def test_invalid_manifest_is_refused(stored, files):
    listed = json.loads((stored / "manifest.json").read_text())["files"]
    if isinstance(files, dict) and "../x" in files:
        (stored.parent / "x").write_text("outside")
        files = {"../x": {"sha256": sha256_file(stored.parent / "x"), "bytes": 7}, **listed}
    (stored / "manifest.json").write_text(json.dumps({"files": files}))
    with pytest.raises(WeightsError, match=r"manifest\.json"):
        read_store(stored)


def header_of(path: Path) -> tuple[dict, bytes]:
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def with_header(path: Path, header: dict, body: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def overlap(path: Path) -> None:
    header, body = header_of(path)
    first, second = sorted((name for name in header if name != "__metadata__"), key=lambda n: len(body))[:2]
    header[second]["data_offsets"] = header[first]["data_offsets"]
    with_header(path, header, body)


def beyond_the_end(path: Path) -> None:
    header, body = header_of(path)
    name = max((n for n in header if n != "__metadata__"), key=lambda n: header[n]["data_offsets"][1])
    header[name]["data_offsets"][1] += 4096
    with_header(path, header, body)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(path.read_bytes() + b"trailing"),
        lambda path: path.write_bytes(struct.pack("<Q", 1 << 60) + path.read_bytes()[8:]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\x80\x02cos\nsystem\n"),
        overlap,
        beyond_the_end,
        lambda path: save_file({"token_encoder.chars.table": torch.zeros(3, dtype=torch.int8)}, path),
        lambda path: save_file({"other": torch.zeros(3)}, path),
    ],
    ids=["cut", "trailing", "header 2^60", "empty", "pickle", "overlap", "beyond", "int8", "other tensors"],
)
def test_damaged_safetensors_are_refused_even_with_a_matching_manifest(stored, damage):
    damage(stored / "model.safetensors")
    make_manifest(stored)
    with pytest.raises(WeightsError):
        build(read_store(stored))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "other"),
        ("version", 99),
        ("model", []),
        ("model", {"lstm": {"num_layers": 10**9}}),
        ("model", {"lstm": {"layers": 2}}),
        ("mixes", [{"weights": [1.0]}]),
        ("mixes", 3),
        ("mixes", [{"weights": [1.0], "gamma": "x"}]),
        ("about", 3),
    ],
)
def test_invalid_config_is_refused(stored, key, value):
    settings = json.loads((stored / "config.json").read_text()) | {key: value}
    (stored / "config.json").write_text(json.dumps(settings))
    make_manifest(stored)
    with pytest.raises(WeightsError, match=r"config\.json"):
        read_store(stored)


@pytest.mark.parametrize("text", ["[]", '{"chars": [1]}', '{"chars": {"a": "b"}}', '{"words": {"a": 1.5}}', "\udcff"])
def test_invalid_lexicon_is_refused(stored, text):
    (stored / "lexicon.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    make_manifest(stored)
    with pytest.raises(WeightsError, match=r"lexicon\.json"):
        read_store(stored)


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
from elmo.cli.main import main
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="POSIX limits")
@pytest.mark.parametrize("target", ["elmo", "hdf5"])
def test_full_disk_is_reported_and_leaves_no_files(tmp_path, target):
    command = [sys.executable, "-c", LIMITED, "convert", "tiny-random", str(tmp_path / "out"), "--to", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "cannot be written" in done.stderr
    assert "MB are free" in done.stderr
    assert list(tmp_path.iterdir()) == []


SAVES = """
from pathlib import Path
from elmo.weights.lookup import tiny_random
from elmo.weights.store import save_store
parts = tiny_random(1)
print("go", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_kill_during_save_leaves_a_complete_model(tmp_path):
    save_store(tmp_path / "m", tiny_random())
    code = f"{SAVES}\nwhile True: save_store(Path({str(tmp_path / 'm')!r}), parts, overwrite=True)"
    for milliseconds in (3, 17, 40):
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(milliseconds / 1000)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        if (tmp_path / "m").exists():  # between two renames there is no folder, but never an incomplete one
            build(read_store(tmp_path / "m"))
