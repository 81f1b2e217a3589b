"""The documentation site: what is on it, and that a wrong link or a file from another host is found."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

import elmo

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for suffix in ("*.md", "*.ipynb") for path in (ROOT / "docs").rglob(suffix))
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]


def load_builder():
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "docs" / "build_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_of_docs_is_in_the_navigation():
    pages = [path for path in PAGES if "\nThis page has moved: " not in path.read_text(encoding="utf-8")]
    wanted = [path.relative_to(ROOT / "docs").with_suffix(".md").as_posix() for path in pages]
    assert [page for page in wanted if not re.search(rf"[ :]{re.escape(page)}$", NAVIGATION, re.M)] == []


def test_every_public_name_is_on_the_page_of_the_api():
    page = (ROOT / "docs" / "api" / "index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^::: elmo\.(\w+)$", page, re.M)) == elmo.__all__


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="missing/">x</a>', "missing/ leads to no file"),
        ('<a href="other.html#nothing">x</a>', "other.html#nothing leads to no heading"),
        ('<a href="#nothing">x</a>', "#nothing leads to no heading"),
        ('<img src="missing.png">', "missing.png leads to no file"),
        ('<script src="https://example.org/a.js"></script>', "loads https://example.org/a.js from another host"),
        ('<link rel="stylesheet" href="//example.org/a.css">', "loads //example.org/a.css from another host"),
    ],
)
def test_a_wrong_link_of_a_built_page_is_found(body, problem, tmp_path):
    (tmp_path / "other.html").write_text('<h1 id="here">Other</h1>')
    (tmp_path / "index.html").write_text(body)
    assert load_builder().check_pages(tmp_path) == [f"index.html: {problem}"]


def test_right_links_of_a_built_page_are_accepted(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "index.html").write_text('<h1 id="über">Up</h1> <a href="../">up</a>')
    page = '<a href="folder/#%C3%BCber">x</a> <a href="https://example.org">out</a> <img src="data:image/png;base64,">'
    (tmp_path / "index.html").write_text(page)
    assert load_builder().check_pages(tmp_path) == []


def test_versions_are_listed_newest_first_and_the_first_page_leads_to_the_newest(tmp_path):
    builder = load_builder()
    for name in ("0.2.0", "0.10.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / builder.SOURCES).touch()
    builder.write_versions(tmp_path)
    entries = json.loads((tmp_path / "versions.json").read_text())
    assert [entry["version"] for entry in entries] == ["0.10.0", "0.2.0"]
    assert [entry["aliases"] for entry in entries] == [["latest"], []]
    assert "url=0.10.0/" in (tmp_path / "index.html").read_text()


def test_nothing_tells_people_to_install_a_release_from_an_index():
    folders = [ROOT / name for name in ("docs", "elmo", "examples", "benchmarks", "runs", "deploy", ".github")]
    below = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".md", ".py", ".ipynb", ".yml")
    ]
    install = re.compile(r"pip install +(?:-\S+ +)*[\"']?elmo(?:-lm|_lm)\b(?! *@|-)")
    pages = [*ROOT.glob("*.md"), *below, ROOT / "deploy" / "Containerfile"]
    assert len(pages) > 300
    assert [path.name for path in pages if install.search(path.read_text(encoding="utf-8"))] == []
