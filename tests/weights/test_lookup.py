"""Models by name: those on this machine are found and checked; for others, the error says what to download."""

from __future__ import annotations

import dataclasses
import logging
import os
import random
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from published_models import VOCAB, write_model

import elmo
from elmo.errors import ConfigError, WeightsError
from elmo.files import sha256_file
from elmo.model.config import PRESETS, num_parameters
from elmo.weights import model_folders
from elmo.weights.catalogue import OWN_MODELS, PUBLISHED_MODELS, PublishedFile, markdown_table
from elmo.weights.languages import LANGUAGES
from elmo.weights.lookup import find_model, tiny_random
from elmo.weights.model_parts import build
from elmo.weights.names import tensor_specs
from elmo.weights.store import save_store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ELMO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home" / "models"


def add_model(monkeypatch, folder: Path, **facts) -> None:
    """Adds a published model `mine` to the catalogue; its files are those of the folder."""
    files = tuple(PublishedFile(url=f"https://example.org/{p.name}", name=p.name) for p in sorted(folder.iterdir()))
    model = dataclasses.replace(
        PUBLISHED_MODELS["small"], **({"name": "mine", "files": files, "parameters": None} | facts)
    )
    monkeypatch.setitem(PUBLISHED_MODELS, "mine", model)


# ---- the catalogue ----


def test_catalogue_is_consistent():
    assert len(PUBLISHED_MODELS) > 80
    for name, model in PUBLISHED_MODELS.items():
        assert name == model.name == name.lower()
        assert model.languages
        assert model.files
        assert model.page.startswith("http")
        assert model.source or not model.fetchable  # an address without a source is not trusted
        for file in model.files:
            assert file.url.startswith(("https://", "http://"))
            assert Path(file.name).name == file.name
            assert file.sha256 is None or len(file.sha256) == 64
    for name, preset in (("small", "small"), ("medium", "medium"), ("original", "original"), ("pubmed", "original")):
        assert PUBLISHED_MODELS[name].parameters == num_parameters(PRESETS[preset])
        assert PUBLISHED_MODELS[name].dim == PRESETS[preset].dim
    for model in PUBLISHED_MODELS.values():  # every model of the catalogue can be asked for by its language
        assert set(model.languages) <= set(LANGUAGES)
        # a page is not the address of a file: every fetchable file's address ends with a name
        assert not model.fetchable or all("." in file.url.split("?")[0].rsplit("/", 1)[1] for file in model.files)
    assert sum(model.kind == "manylangs" for model in PUBLISHED_MODELS.values()) == 45


def test_published_file_size_fits_the_parameters():
    weights = PUBLISHED_MODELS["original"].files[1]
    floats = 4 * PUBLISHED_MODELS["original"].parameters
    assert floats < weights.num_bytes < floats + 100_000  # the rest is HDF5 metadata


def test_documentation_shows_the_catalogue():
    text = (ROOT / "docs" / "weights.md").read_text(encoding="utf-8")
    begin, end = "<!-- known models: begin -->\n", "<!-- known models: end -->"
    shown = text[text.index(begin) + len(begin) : text.index(end)]
    assert shown == markdown_table(), "put elmo.weights.catalogue.markdown_table() between the two marks"


# ---- names ----


def test_error_for_a_missing_model_names_its_files_and_folder(home):
    with pytest.raises(WeightsError) as error:
        elmo.load("small")
    for file in PUBLISHED_MODELS["small"].files:
        assert file.url in str(error.value)
    assert str(home / "small") in str(error.value)


def test_error_for_an_unreadable_model_says_why(home):
    with pytest.raises(WeightsError, match="TF-Hub"):
        find_model("tfhub-3")


def test_error_for_an_unknown_name_lists_local_models_and_the_closest(home):
    save_store(home / "my-model", tiny_random())
    start = time.process_time()
    with pytest.raises(WeightsError) as error:
        elmo.load("my-modell")
    assert time.process_time() - start < 1  # about 0.01; no model is loaded
    for word in ("'my-modell'", "'my-model'", "tiny-random", "elmo models"):
        assert word in str(error.value)


@pytest.mark.parametrize("name", ["german", "de", "German", "deutsch", "de_DE"])
def test_error_for_a_language_points_to_its_models(home, name):
    with pytest.raises(WeightsError) as error:
        elmo.load(name)
    for word in (repr(name), "`elmo models --language de`", "elmo.load('many')", "`elmo fetch de-wikipedia`"):
        assert word in str(error.value)


@pytest.mark.parametrize("name", ["Welsh", "cy", "Cymraeg", "Swahili", "Serbian", "Srpski", "हिन्दी", "Espan\u0303ol"])
def test_every_language_of_many_is_known_by_its_names(home, name):
    with pytest.raises(WeightsError, match=r"On this machine: elmo.load\('many'\)"):
        elmo.load(name)


def test_every_language_of_the_catalogue_has_a_name():
    codes = {code for model in (*OWN_MODELS.values(), *PUBLISHED_MODELS.values()) for code in model.languages}
    assert codes == set(LANGUAGES)


def test_error_for_a_language_prefers_a_model_on_this_machine(home):
    save_store(home / "de-wikipedia", tiny_random())
    for name, model in (("de", "de-wikipedia"), ("en", "english")):
        with pytest.raises(WeightsError, match=f"On this machine: elmo.load\\('{model}'\\)") as error:
            elmo.load(name)
        assert "`elmo fetch" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "meant"), [("orignal", "'original'"), ("ORIGINAL-5.5B", "'original-5.5b'"), ("multilingual", "'many'")]
)
def test_error_for_a_misspelt_name_suggests_the_closest(home, name, meant):
    with pytest.raises(WeightsError, match=f"Did you mean {meant}"):
        elmo.load(name)


@pytest.mark.parametrize("name", ["nope", "SMALL", "x" * 5_000, "nul\0", "..", "."])
def test_odd_names_are_weights_errors(home, name):
    with pytest.raises(WeightsError) as error:
        find_model(name)
    assert len(str(error.value)) < 1_000


def test_empty_name(home):
    with pytest.raises(ConfigError, match="empty"):
        find_model("")


def test_path_has_precedence_over_name_and_separator_means_path(home, tmp_path):
    save_store(tmp_path / "small", tiny_random())
    assert find_model("small").source == "small"
    assert find_model(Path("small")).source == "small"
    with pytest.raises(WeightsError, match="No such file"):
        find_model("small/none")
    with pytest.raises(WeightsError, match="No such file"):
        find_model(Path("medium"))


def test_home_folder_in_a_path(home, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    save_store(tmp_path / "m", tiny_random())
    assert find_model("~/m").config == PRESETS["tiny"]


def test_model_in_the_users_folder_is_found_by_name(home):
    save_store(home / "mine-own", dataclasses.replace(tiny_random(), vocab=tuple(VOCAB)))
    assert find_model("mine-own").vocab == tuple(VOCAB)


# ---- published models on this machine ----


def test_published_files_are_read_and_named(home, monkeypatch):
    write_model(home / "mine", 1, char_input=True)
    add_model(monkeypatch, home / "mine", licence="CC0")
    parts = find_model("mine")
    assert parts.about["name"] == "mine"
    assert "CC0" in parts.card
    build(parts)


def test_zip_is_read(home, monkeypatch, tmp_path):
    write_model(tmp_path / "unpacked", 1, char_input=True, vocab=True)
    (home / "mine").mkdir(parents=True)
    with zipfile.ZipFile(home / "mine" / "210.zip", "w") as archive:
        for file in (tmp_path / "unpacked").iterdir():
            archive.write(file, file.name)
    add_model(monkeypatch, home / "mine", kind="zip")
    assert find_model("mine").vocab == tuple(VOCAB)


def test_error_for_a_tar_says_to_unpack_it(home, monkeypatch):
    (home / "mine").mkdir(parents=True)
    (home / "mine" / "a.tar.gz").write_bytes(b"\x1f\x8b")
    add_model(monkeypatch, home / "mine", kind="tar")
    with pytest.raises(WeightsError, match=r"tar xf a\.tar\.gz"):
        find_model("mine")


def test_converted_model_is_read(home, monkeypatch):
    add_model(monkeypatch, ROOT / "elmo" / "golden" / "allennlp")
    save_store(home / "mine", tiny_random())
    assert find_model("mine").format == "elmo"


def test_sha256_and_size_are_verified(home, monkeypatch):
    write_model(home / "mine", 1, char_input=True)
    weights = home / "mine" / "weights.hdf5"
    size, digest = weights.stat().st_size, sha256_file(weights)
    url = "https://example.org/weights.hdf5"
    for num_bytes, sha256, word in (
        (size, digest, ""),
        (size, "0" * 64, "sha256 differs"),
        (size + 1, None, f"{size:,} bytes"),
    ):
        files = (PublishedFile(url=url, name="weights.hdf5", num_bytes=num_bytes, sha256=sha256),)
        add_model(monkeypatch, home / "mine", files=files)
        if not word:
            find_model("mine")
            continue
        with pytest.raises(WeightsError, match=word) as error:
            find_model("mine")
        assert url in str(error.value)


def test_another_model_under_a_published_name_is_refused(home):
    save_store(home / "small", tiny_random())
    with pytest.raises(WeightsError, match=r"645,904 parameters; 'small' has 13,593,296"):
        find_model("small")


def test_incomplete_download_is_refused(home):
    folder = home / "original"
    folder.mkdir(parents=True)
    (folder / PUBLISHED_MODELS["original"].files[1].name).write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(WeightsError, match="8 bytes; the published file has 374,434,792"):
        find_model("original")


def test_empty_folder_with_a_published_name_is_not_a_model(home):
    (home / "small").mkdir(parents=True)
    with pytest.raises(WeightsError, match="not on this machine"):
        find_model("small")


# ---- home folders ----


@pytest.mark.skipif(os.name == "nt", reason="POSIX homes")
def test_error_without_a_home_names_the_variable(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ELMO_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # no HOME and no entry in the user database
    with pytest.raises(WeightsError, match="Set ELMO_HOME"):
        find_model("small")
    assert find_model("tiny-random").config == PRESETS["tiny"]
    shipped = set(model_folders.SHIPPED_FOLDER.glob("*"))
    assert set(model_folders.local_models().values()) <= shipped  # no others are found


def test_unreadable_home_has_no_models(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ELMO_HOME", str(tmp_path / "file"))
    with pytest.raises(WeightsError, match="not on this machine"):
        find_model("medium")


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_read_only_home_works(home):
    save_store(home / "mine-own", tiny_random())
    home.chmod(0o500)
    (home / "mine-own").chmod(0o500)
    assert find_model("mine-own").config == PRESETS["tiny"]
    home.chmod(0o700)
    (home / "mine-own").chmod(0o700)


# ---- built-in models ----


def test_tiny_random_has_fixed_numbers_and_a_card_that_says_untrained():
    a, b = tiny_random(), find_model("tiny-random")
    for name, tensor in a.tensors.items():
        assert torch.equal(tensor, b.tensors[name])
    assert "Untrained" in a.card
    assert a.about["trained"] is False
    # fixed numbers, so that a demo's output is the same on every machine and after every upgrade
    kernel = a.tensors["stacks.0.layers.0.kernel"]
    assert [round(float(value), 6) for value in kernel[0, :3]] == [0.100358, 0.131561, 0.145847]
    assert {spec.name for spec in tensor_specs(PRESETS["tiny"])} == set(a.tensors)
    assert not torch.equal(tiny_random(1).tensors["stacks.0.layers.0.kernel"], kernel)


def test_tiny_random_does_not_change_the_random_state():
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    expected = torch.rand(3), np.random.rand(3), random.random()
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    tiny_random()
    drawn = torch.rand(3), np.random.rand(3), random.random()
    assert torch.equal(expected[0], drawn[0])
    assert (expected[1] == drawn[1]).all()
    assert expected[2] == drawn[2]


def test_default_is_the_shipped_model_or_logs_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(model_folders, "SHIPPED_FOLDER", tmp_path)
    with caplog.at_level(logging.WARNING):
        assert find_model("default").source == "tiny-random"
    assert len(caplog.records) == 1
    caplog.clear()
    save_store(tmp_path / "trained", dataclasses.replace(tiny_random(), vocab=tuple(VOCAB)))
    with caplog.at_level(logging.WARNING):
        assert find_model("default").vocab == tuple(VOCAB)
        assert find_model("trained").vocab == tuple(VOCAB)
    assert caplog.records == []


def test_network_is_not_used(home):
    code = (
        "import socket, elmo.embed.load\n"
        "def refuse(*_, **__): raise SystemExit('network')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse\n"
        "for name in ('nope', 'small', 'ar-manylangs'):\n"
        "    try: elmo.load(name)\n"
        "    except elmo.ElmoError: print(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["nope", "small", "ar-manylangs"], done.stderr


def test_load_by_name_and_by_path(home, tmp_path):
    save_store(home / "mine-own", tiny_random())
    for name in ("tiny-random", "mine-own", home / "mine-own", str(home / "mine-own")):
        assert elmo.load(name, device="cpu").embed("The cat sat .").shape == (4, 128)
