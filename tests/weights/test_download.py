"""Downloads of one file from a server on this machine: whole, interrupted, changed, wrong, missing, redirected."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

import pytest
from http_files import Site, serve

from elmo.errors import OutputError, WeightsError
from elmo.weights import download as module
from elmo.weights.download import download
from elmo.weights.partial_file import Expected

DATA = bytes(range(256)) * 40  # 10,240 bytes
NO_WAIT = (0.0, 0.0, 0.0)


@pytest.fixture
def site():
    with serve() as site:
        site.files["/model.bin"] = DATA
        yield site


def fetch(site: Site, path: Path, expected: Expected | None = None, *, retries: tuple[float, ...] = NO_WAIT) -> str:
    return download(f"{site.address}/model.bin", path, expected, show=False, timeout=900, retry_seconds=retries)


def ranges(site: Site) -> list[str]:
    return [headers.get("Range", "") for _, headers in site.requests]


def test_file_arrives_with_its_sha256_and_nothing_else_is_left(site, tmp_path):
    path = tmp_path / "new" / "model.bin"
    assert fetch(site, path) == hashlib.sha256(DATA).hexdigest()
    assert path.read_bytes() == DATA
    assert [p.name for p in path.parent.iterdir()] == ["model.bin"]


def test_interrupted_download_continues_in_the_same_call(site, tmp_path):
    site.cut_after = [4_000, 3_000]
    fetch(site, tmp_path / "model.bin")
    assert (tmp_path / "model.bin").read_bytes() == DATA
    assert ranges(site) == ["", "bytes=4000-", "bytes=7000-"]


def test_interrupted_download_continues_in_a_later_call(site, tmp_path):
    site.cut_after = [4_000]
    with pytest.raises(WeightsError, match="interrupted") as error:
        fetch(site, tmp_path / "model.bin", retries=())
    assert "4,000 bytes are stored" in str(error.value)
    assert not (tmp_path / "model.bin").exists()
    fetch(site, tmp_path / "model.bin")
    assert (tmp_path / "model.bin").read_bytes() == DATA
    assert ranges(site) == ["", "bytes=4000-"]


def test_file_that_changed_between_two_calls_is_not_spliced(site, tmp_path):
    site.cut_after = [4_000]
    with pytest.raises(WeightsError):
        fetch(site, tmp_path / "model.bin", retries=())
    site.files["/model.bin"] = DATA[::-1]
    fetch(site, tmp_path / "model.bin")
    assert (tmp_path / "model.bin").read_bytes() == DATA[::-1]


def test_file_that_became_shorter_starts_again(site, tmp_path):
    site.cut_after, site.etags = [4_000], {"/model.bin": '"same"'}
    with pytest.raises(WeightsError):
        fetch(site, tmp_path / "model.bin", retries=())
    site.files["/model.bin"] = DATA[:100]
    fetch(site, tmp_path / "model.bin")
    assert (tmp_path / "model.bin").read_bytes() == DATA[:100]


def test_server_without_ranges_starts_again(site, tmp_path):
    site.cut_after, site.ranges = [4_000], False
    fetch(site, tmp_path / "model.bin")
    assert (tmp_path / "model.bin").read_bytes() == DATA


def test_halves_without_a_validator_are_joined_only_with_a_known_checksum(site, tmp_path):
    site.validators, site.cut_after = False, [4_000]
    fetch(site, tmp_path / "model.bin")
    assert ranges(site) == ["", ""]
    site.cut_after = [4_000]
    fetch(site, tmp_path / "again.bin", Expected(sha256=hashlib.sha256(DATA).hexdigest()))
    assert ranges(site)[2:] == ["", "bytes=4000-"]
    assert (tmp_path / "again.bin").read_bytes() == DATA


def test_partial_file_of_another_address_is_not_continued(site, tmp_path):
    site.cut_after, site.files["/other.bin"] = [4_000], DATA[::-1]
    site.etags = {"/model.bin": '"same"', "/other.bin": '"same"'}
    with pytest.raises(WeightsError):
        fetch(site, tmp_path / "model.bin", retries=())
    download(f"{site.address}/other.bin", tmp_path / "model.bin", show=False)
    assert (tmp_path / "model.bin").read_bytes() == DATA[::-1]


def test_damaged_notes_of_a_partial_file_start_again(site, tmp_path):
    (tmp_path / "model.bin.part").write_bytes(b"x" * 100)
    (tmp_path / "model.bin.part.json").write_bytes(b"{")
    fetch(site, tmp_path / "model.bin")
    assert (tmp_path / "model.bin").read_bytes() == DATA


@pytest.mark.parametrize(
    ("expected", "word"),
    [
        (Expected(sha256="0" * 64), "sha256"),
        (Expected(sha1="0" * 40), "sha1"),
        (Expected(num_bytes=10_241), "10,240 bytes"),
    ],
)
def test_another_file_than_the_published_one_is_refused_and_deleted(site, tmp_path, expected, word):
    with pytest.raises(WeightsError, match=word):
        fetch(site, tmp_path / "model.bin", expected)
    assert list(tmp_path.iterdir()) == []


def test_known_checksums_pass(site, tmp_path):
    sha256, sha1 = hashlib.sha256(DATA).hexdigest(), hashlib.sha1(DATA).hexdigest()
    assert fetch(site, tmp_path / "model.bin", Expected(num_bytes=10_240, sha256=sha256, sha1=sha1)) == sha256


def test_missing_file_is_an_error_without_another_attempt(site, tmp_path):
    with pytest.raises(WeightsError, match="404"):
        download(f"{site.address}/none.bin", tmp_path / "none.bin", show=False)
    assert len(site.requests) == 1
    assert list(tmp_path.iterdir()) == []


def test_busy_server_is_tried_again(site, tmp_path):
    site.statuses = [503, 429]
    fetch(site, tmp_path / "model.bin")
    assert len(site.requests) == 3


def test_refused_connection_names_the_address_and_the_proxy(tmp_path, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/model.bin"
        with pytest.raises(WeightsError, match="cannot be reached") as error:
            download(url, tmp_path / "model.bin", show=False)
        assert url in str(error.value)
        assert "no proxy" in str(error.value)
        monkeypatch.setenv("http_proxy", url.replace("//", "//user:secret@"))
        monkeypatch.setenv("no_proxy", "")
        with pytest.raises(WeightsError) as error:
            download("http://example.invalid/model.bin", tmp_path / "model.bin", show=False)
    assert "proxy http: http://127.0.0.1" in str(error.value)
    assert "secret" not in str(error.value)


def test_proxy_of_the_environment_is_used(site, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", site.address)
    monkeypatch.setenv("no_proxy", "")
    site.files["http://example.invalid/model.bin"] = DATA  # a proxy is asked for complete addresses
    download("http://example.invalid/model.bin", tmp_path / "model.bin", show=False)
    assert (tmp_path / "model.bin").read_bytes() == DATA


def test_redirect_is_followed_and_keeps_the_range(site, tmp_path):
    site.redirects["/old.bin"], site.cut_after = f"{site.address}/model.bin", [4_000]
    download(f"{site.address}/old.bin", tmp_path / "model.bin", show=False, retry_seconds=NO_WAIT)
    assert (tmp_path / "model.bin").read_bytes() == DATA
    assert site.requests[-1] == ("/model.bin", site.requests[-1][1])
    assert ranges(site)[-1] == "bytes=4000-"


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/model.bin"])
def test_redirect_to_another_kind_of_address_is_refused(site, tmp_path, target):
    site.redirects["/model.bin"] = target
    with pytest.raises(WeightsError):
        fetch(site, tmp_path / "model.bin")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "model.bin", "http://127.0.0.1:x/model.bin"])
def test_address_that_is_not_http_is_refused(tmp_path, url):
    with pytest.raises(WeightsError, match="address"):
        download(url, tmp_path / "model.bin", show=False)


def test_web_page_in_place_of_the_file_is_refused(site, tmp_path):
    site.content_type = "text/html; charset=utf-8"
    with pytest.raises(WeightsError, match="web page"):
        fetch(site, tmp_path / "model.bin")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["weights.hdf5", "210.zip", "options.json", "a.tar.gz"])
def test_text_under_the_name_of_a_model_file_is_refused(site, tmp_path, name):
    site.files[f"/{name}"] = b"Access denied"
    with pytest.raises(WeightsError, match="Access denied"):
        download(f"{site.address}/{name}", tmp_path / name, show=False)
    assert list(tmp_path.iterdir()) == []


def test_too_little_disk_space_is_reported_before_anything_is_written(site, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SPARE_BYTES", 1 << 60)
    with pytest.raises(OutputError, match="MB free"):
        fetch(site, tmp_path / "model.bin")
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_bytes(site, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("elmo.progress.LINE_SECONDS", 0.0)
    download(f"{site.address}/model.bin", tmp_path / "model.bin", label="tiny", show=True)
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith("tiny: 10,240 of 10,240 bytes")
