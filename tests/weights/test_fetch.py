"""Published models fetched from a server on this machine, by function, by `elmo.load` and by the command line."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from http_files import Site, serve
from in_process_cli import run_in_process
from published_models import VOCAB, write_model

import elmo
from elmo.errors import ConfigError, OutputError, WeightsError
from elmo.files import sha256_file
from elmo.weights.catalogue import PUBLISHED_MODELS, PublishedFile
from elmo.weights.fetch import fetch_model
from elmo.weights.lookup import find_model

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ELMO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ELMO_MIRROR", raising=False)
    monkeypatch.setenv("ELMO_KERNELS", "torch")  # a new home has no compiled kernels
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home" / "models"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A server with a published model `mine`, which is in the catalogue."""
    write_model(tmp_path / "published", 1, char_input=True)
    with serve() as site:
        files = []
        for path in sorted((tmp_path / "published").iterdir()):
            site.files[f"/files/{path.name}"] = path.read_bytes()
            files.append(PublishedFile(url=f"{site.address}/files/{path.name}", name=path.name))
        put(monkeypatch, files=tuple(files))
        yield site


def put(monkeypatch, **facts) -> None:
    model = PUBLISHED_MODELS.get("mine") or dataclasses.replace(PUBLISHED_MODELS["small"], name="mine", parameters=None)
    monkeypatch.setitem(PUBLISHED_MODELS, "mine", dataclasses.replace(model, **facts))


def pack_zip(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, path.name)
    return buffer.getvalue()


def pack_tar(folder: Path, *extra: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(folder, "slovenian")
        for entry in extra:
            archive.addfile(entry)
    return buffer.getvalue()


def one_file(monkeypatch, site: Site, name: str, data: bytes, kind: str) -> None:
    site.files[f"/files/{name}"] = data
    put(monkeypatch, kind=kind, files=(PublishedFile(url=f"{site.address}/files/{name}", name=name),))


# ---- fetch_model ----


def test_fetched_model_is_found_by_name_and_its_checksums_are_recorded(home, site, tmp_path):
    assert fetch_model("mine", show=False) == home / "mine"
    record = json.loads((home / "mine" / "download.json").read_text())
    assert record["files"]["weights.hdf5"]["sha256"] == sha256_file(tmp_path / "published" / "weights.hdf5")
    assert record["sources"]["weights.hdf5"]["url"] == f"{site.address}/files/weights.hdf5"
    assert find_model("mine").about["name"] == "mine"
    assert [p.name for p in home.iterdir() if not p.name.startswith(".")] == ["mine"]


def test_second_fetch_downloads_nothing(home, site):
    fetch_model("mine", show=False)
    requests = len(site.requests)
    assert fetch_model("mine", show=False) == home / "mine"
    assert len(site.requests) == requests


def test_file_changed_after_its_download_is_refused_when_read(home, site):
    fetch_model("mine", show=False)
    with open(home / "mine" / "weights.hdf5", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"?")
    for read in (find_model, fetch_model):
        with pytest.raises(WeightsError, match="sha256 differs") as error:
            read("mine")
        assert "elmo fetch mine" in str(error.value)


def test_failed_fetch_leaves_no_model_and_continues(home, site):
    data = site.files.pop("/files/weights.hdf5")
    with pytest.raises(WeightsError, match="404") as error:
        fetch_model("mine", show=False)
    for word in ("elmo fetch mine", "ELMO_MIRROR", str(home / "mine"), f"{site.address}/files/options.json"):
        assert word in str(error.value)
    with pytest.raises(WeightsError, match="not on this machine"):
        find_model("mine")
    site.files["/files/weights.hdf5"] = data
    fetch_model("mine", show=False)
    assert [path for path, _ in site.requests].count("/files/options.json") == 1  # it was complete
    find_model("mine")


def test_wrong_checksum_of_the_catalogue_refuses_the_model(home, site, monkeypatch):
    options, weights = PUBLISHED_MODELS["mine"].files
    put(monkeypatch, files=(options, dataclasses.replace(weights, sha256="0" * 64)))
    with pytest.raises(WeightsError, match="not the published file"):
        fetch_model("mine", show=False)
    assert not (home / "mine").exists()


def test_mirror_by_argument_and_by_variable(home, site, monkeypatch):
    for path in list(site.files):
        site.files[f"/mirror/mine/{Path(path).name}"] = site.files.pop(path)
    monkeypatch.setenv("ELMO_MIRROR", f"{site.address}/nowhere")
    with pytest.raises(WeightsError, match="nowhere"):
        fetch_model("mine", show=False)
    fetch_model("mine", url_base=f"{site.address}/mirror/", show=False)  # the argument has precedence
    assert find_model("mine").about["name"] == "mine"
    with pytest.raises(ConfigError, match="mirror"):
        fetch_model("small", url_base="mirror.example.org")


def test_zip_is_read_as_it_is(home, site, monkeypatch, tmp_path):
    (tmp_path / "published" / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    one_file(monkeypatch, site, "210.zip", pack_zip(tmp_path / "published"), "zip")
    fetch_model("mine", show=False)
    assert find_model("mine").vocab == tuple(VOCAB)


def test_tar_is_unpacked(home, site, monkeypatch, tmp_path):
    one_file(monkeypatch, site, "slovenian-elmo.tar.gz", pack_tar(tmp_path / "published"), "tar")
    fetch_model("mine", show=False)
    assert sorted(p.name for p in (home / "mine").iterdir()) == ["download.json", "options.json", "weights.hdf5"]
    find_model("mine")


@pytest.mark.parametrize(("name", "kind"), [("../../out", tarfile.REGTYPE), ("slovenian/link", tarfile.SYMTYPE)])
def test_tar_with_an_unsafe_entry_is_refused(home, site, monkeypatch, tmp_path, name, kind):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, "/etc/passwd"
    one_file(monkeypatch, site, "a.tar.gz", pack_tar(tmp_path / "published", entry), "tar")
    with pytest.raises(WeightsError, match="not a file inside a folder"):
        fetch_model("mine", show=False)
    assert not (home / "mine").exists()
    assert not (tmp_path / "out").exists()


def test_models_that_cannot_be_fetched_say_why_and_what_to_do(home):
    with pytest.raises(WeightsError, match="TF-Hub"):
        fetch_model("tfhub-3")
    with pytest.raises(WeightsError, match="could not be confirmed") as error:
        fetch_model("hr-embeddia")
    assert "http://hdl.handle.net/11356/1277" in str(error.value)
    with pytest.raises(WeightsError, match="Did you mean 'original'"):
        fetch_model("orignal")


def test_shipped_and_own_models_need_no_download(home):
    assert (fetch_model("english") / "config.json").is_file()


def test_folder_with_some_of_the_files_is_named(home, site):
    (home / "mine").mkdir(parents=True)
    (home / "mine" / "options.json").write_text("{}")
    with pytest.raises(OutputError, match=r"but not weights\.hdf5"):
        fetch_model("mine")


def test_two_processes_download_a_model_once(home, site, tmp_path):
    site.on_request, site.proceed = threading.Event(), threading.Event()
    code = (
        "import dataclasses, logging, sys\n"
        "from elmo.weights.catalogue import PUBLISHED_MODELS, PublishedFile\n"
        "from elmo.weights.fetch import fetch_model\n"
        "logging.basicConfig(format='%(message)s')\n"
        "files = tuple(PublishedFile(url=url, name=url.rsplit('/', 1)[1]) for url in sys.argv[1:])\n"
        "PUBLISHED_MODELS['mine'] = dataclasses.replace(PUBLISHED_MODELS['small'], name='mine', files=files)\n"
        "print(fetch_model('mine'))\n"
    )
    urls = [file.url for file in PUBLISHED_MODELS["mine"].files]
    command = [sys.executable, "-c", code, *urls]
    options = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    first = subprocess.Popen(command, **options)
    assert site.on_request.wait(900)  # it holds the lock
    second = subprocess.Popen(command, **options)
    assert "Waiting" in second.stderr.readline()
    site.proceed.set()
    for process in (first, second):
        printed, errors = process.communicate()
        assert (process.returncode, printed.strip()) == (0, str(home / "mine")), errors
    assert len(site.requests) == 2


# ---- elmo.load and the command line ----


def test_load_downloads_only_when_asked_to(home, site):
    with pytest.raises(WeightsError, match="not on this machine") as error:
        elmo.load("mine", device="cpu")
    assert "elmo fetch mine" in str(error.value)
    assert "download=True" in str(error.value)
    assert site.requests == []
    embedder = elmo.load("mine", device="cpu", download=True)
    assert embedder.embed("The cat sat .").shape[0] == 4
    requests = len(site.requests)
    elmo.load("mine", device="cpu", download=True)
    assert len(site.requests) == requests


def test_load_with_download_leaves_paths_and_shipped_models_alone(home, tmp_path):
    assert elmo.load("tiny-random", device="cpu", download=True).dim == 128
    write_model(tmp_path / "small", 1, char_input=True)  # a path has precedence over the published name
    elmo.load("small", device="cpu", download=True)


def test_fetch_verb_prints_the_folder(home, site, capsys):
    done = run_in_process(capsys, "fetch", "mine")
    assert (done.returncode, done.stdout) == (0, f"{home / 'mine'}\n"), done.stderr
    again = json.loads(run_in_process(capsys, "fetch", "mine", "--json").stdout)
    assert again["folder"] == str(home / "mine")
    assert set(again["files"]) == {"download.json", "options.json", "weights.hdf5"}


def test_fetch_verb_offline_says_what_failed_and_what_to_do(home, site, capsys, monkeypatch):
    put(monkeypatch, files=(PublishedFile(url="http://127.0.0.1:9/weights.hdf5", name="weights.hdf5"),))
    done = run_in_process(capsys, "fetch", "mine")
    assert (done.returncode, done.stdout) == (1, "")
    for word in ("http://127.0.0.1:9/weights.hdf5", "cannot be reached", str(home / "mine"), "ELMO_MIRROR"):
        assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_fetch_verb_with_an_unknown_name(home, capsys):
    done = run_in_process(capsys, "fetch", "german")
    assert done.returncode == 1
    assert "elmo models --language de" in done.stderr


def test_fetch_does_not_import_torch(home):
    code = (
        "import sys\nfrom elmo.weights.fetch import fetch_model\n"
        "fetch_model('english')\nprint({'torch', 'numpy', 'h5py'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
