"""Zip files of models: those of the NLPL repository are read; one unsafe entry makes the archive an error."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import stat
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from published_models import VOCAB, write_model

from elmo.errors import WeightsError
from elmo.weights.archives import MAX_ENTRIES
from elmo.weights.formats import detect, read_model


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path_factory, monkeypatch) -> Path:
    """The folder that zips are unpacked in; it must be empty after each test."""
    folder = tmp_path_factory.mktemp("unpacked")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def pack(path: Path, folder: Path, inside: str = "", names: dict[str, str] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, inside + (names or {}).get(file.name, file.name))
    return path


@pytest.mark.parametrize("inside", ["", "uniref50_v2/"])
@pytest.mark.parametrize("packed_vocab", [True, False])
def test_zip_of_the_nlpl_repository_is_read(tmp_path, inside, packed_vocab):
    folder = tmp_path / "model"
    write_model(folder, 1, char_input=True, vocab=True)
    (folder / "meta.json").write_text('{"algorithm": {"id": 7}}')
    (folder / "README").write_text("An ELMo.")
    if packed_vocab:
        (folder / "vocab.txt.gz").write_bytes(gzip.compress((folder / "vocab.txt").read_bytes()))
        (folder / "vocab.txt").unlink()
    path = pack(tmp_path / "210.zip", folder, inside, {"weights.hdf5": "model.hdf5"})
    assert detect(path) == "zip"
    parts, expected = read_model(path), read_model(folder)
    assert parts.vocab == tuple(VOCAB)
    assert parts.config == expected.config
    assert parts.source == str(path)
    assert parts.about["source"] == "210.zip"
    for name, tensor in expected.tensors.items():
        np.testing.assert_array_equal(parts.tensors[name].numpy(), tensor.numpy())


def entry(name: str, mode: int = 0o100644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize(
    ("name", "mode", "word"),
    [
        ("../../x", 0o100644, "outside"),
        ("a/../../x", 0o100644, "outside"),
        ("/x", 0o100644, "outside"),
        ("..\\x", 0o100644, "outside"),
        ("C:\\x", 0o100644, "outside"),
        ("softmax.hdf5", stat.S_IFLNK | 0o777, "link"),
        ("sub/options.json", 0o100644, "2 options.json"),
    ],
)
def test_archive_with_an_unsafe_entry_is_refused(tmp_path, name, mode, word):
    write_model(tmp_path / "model", 2, char_input=True)
    path = pack(tmp_path / "m.zip", tmp_path / "model")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(entry(name, mode), "/etc/passwd")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(WeightsError, match=word):
        read_model(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_zip_bomb_is_refused(tmp_path):
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("options.json", "{}")
        with archive.open("weights.hdf5", "w", force_zip64=True) as file:
            for _ in range(40):
                file.write(bytes(1 << 20))
    with pytest.raises(WeightsError, match="bomb"):
        read_model(path)
    data = path.read_bytes().replace((40 << 20).to_bytes(8, "little"), (10 << 30).to_bytes(8, "little"))
    path.write_bytes(data.replace((40 << 20).to_bytes(4, "little"), (3 << 30).to_bytes(4, "little")))
    with pytest.raises(WeightsError, match=r"bomb|damaged"):
        read_model(path)


def test_wrong_declared_size_is_refused(tmp_path):
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights.hdf5", bytes(1 << 20))
    data = path.read_bytes().replace((1 << 20).to_bytes(4, "little"), (100).to_bytes(4, "little"))
    path.write_bytes(data)
    with pytest.raises(WeightsError):
        read_model(path)


def test_too_many_entries_are_refused(tmp_path):
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(MAX_ENTRIES + 1):
            archive.writestr(entry(f"{number}"), "")
    with pytest.raises(WeightsError, match="1,001 entries"):
        read_model(path)


def test_zip_in_zip_and_deep_folders_are_not_models(tmp_path):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("options.json", "{}")
    for number, name in enumerate(["inner.zip", "a/b/options.json", "/".join(["d"] * 300) + "/options.json"]):
        path = tmp_path / f"{number}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, inner.getvalue() if name == "inner.zip" else "{}")
        with pytest.raises(WeightsError, match="no model found"):
            read_model(path)


def test_damaged_zip_is_a_weights_error(tmp_path):
    write_model(tmp_path / "model", 3, char_input=True)
    data = pack(tmp_path / "m.zip", tmp_path / "model").read_bytes()
    rng = np.random.default_rng(0)
    for number in range(60):
        bad = bytearray(data)
        for position in rng.integers(0, len(bad), 6):
            bad[position] = rng.integers(256)
        (tmp_path / "bad.zip").write_bytes(bytes(bad)[: len(bad) if number % 2 else rng.integers(10, len(bad))])
        with contextlib.suppress(WeightsError):  # any other error fails the test
            read_model(tmp_path / "bad.zip")


def test_encrypted_zip_is_refused(tmp_path):
    write_model(tmp_path / "model", 4, char_input=True)
    path = pack(tmp_path / "m.zip", tmp_path / "model")
    data = bytearray(path.read_bytes())
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag bit of every entry
        position = data.find(magic)
        while position >= 0:
            data[position + offset] |= 1
            position = data.find(magic, position + 1)
    path.write_bytes(data)
    with pytest.raises(WeightsError, match="encrypted"):
        read_model(path)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_error_without_room_to_unpack_names_the_variable(tmp_path, temporary_folder):
    path = pack(tmp_path / "m.zip", tmp_path)
    temporary_folder.chmod(0o500)
    with pytest.raises(WeightsError, match="TMPDIR"):
        read_model(path)
    temporary_folder.chmod(0o700)


@pytest.mark.parametrize("name", ["", "/", "."])
def test_an_entry_without_a_name_is_an_error(tmp_path, name):
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "data")
        archive.filelist[0].filename = name
    with pytest.raises(WeightsError, match="entry"):
        read_model(path)
