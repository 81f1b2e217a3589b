"""Builds the documentation site of this version and checks every link of the built pages.

python docs/build_site.py               write site/VERSION, site/versions.json and site/index.html
python docs/build_site.py --out FOLDER  write them into FOLDER; other versions in it remain

The layout is that of `mike`: a folder per version, and versions.json for the menu of versions. A page may load nothing
from another host. `python3 run.py docs` runs this in an environment with the extra `docs`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
REDIRECT = (  # the empty icon, because a browser may ask for /favicon.ico before it leaves the page
    '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
    '<meta http-equiv="refresh" content="0; url={0}/"><a href="{0}/">elmo</a>\n'
)
LOADING = ("img", "script", "link", "iframe", "source", "video", "audio", "embed")  # a browser loads what they name
SUFFIXES = (".md", ".py", ".ipynb", ".svg", ".png")
SOURCES = "built_from.txt"  # in the folder of a version: the hash of what it was built from


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the documentation site and check its links.")
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="Folder of all versions.")
    out: Path = parser.parse_args().out.absolute()
    version = current_version()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(out / version)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    (out / version / SOURCES).write_text(hash_of_sources(), encoding="utf-8")
    write_versions(out)
    problems = check_pages(out / version)
    if problems:
        sys.exit("\n".join([f"{len(problems)} links of the site are wrong:", *problems]))
    print(f"{out / version}: {len(list((out / version).rglob('*.html')))} pages, all links lead somewhere")


def current_version() -> str:
    (version,) = re.findall(r'^__version__ = "(.+)"$', (ROOT / "elmo/__init__.py").read_text(encoding="utf-8"), re.M)
    return str(version)


def hash_of_sources() -> str:
    """Hash of all that pages are made of; the tests compare it with that of the built site."""
    tops = [*ROOT.glob("*.md"), ROOT / "mkdocs.yml"]
    folders = [ROOT / top for top in ("docs", "elmo", "runs", "benchmarks/results", "examples", "deploy")]
    below = [path for folder in folders for path in folder.rglob("*") if path.suffix in SUFFIXES]
    digest = hashlib.sha256()
    for path in sorted([*tops, *below]):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def write_versions(out: Path) -> None:
    """Writes the list of versions, newest first, and a page that leads to the newest."""
    folders = [path.parent.name for path in out.glob(f"*/{SOURCES}")]
    newest_first = sorted(folders, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], reverse=True)
    entries = [
        {"version": name, "title": name, "aliases": ["latest"] if name == newest_first[0] else []}
        for name in newest_first
    ]
    (out / "versions.json").write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    (out / "index.html").write_text(REDIRECT.format(newest_first[0]), encoding="utf-8")


class PageLinks(HTMLParser):
    """The ids of a page, what it links to, and what a browser loads for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {values.get(name) or "" for name in ("id", "name")}
        address = values.get("href") or values.get("src")
        if address and (values.get("rel") or "") not in ("canonical", "prev", "next"):
            (self.loaded if tag in LOADING else self.links).append(address)


def check_pages(folder: Path) -> list[str]:
    """One line per link that leads to no file or no heading, and per file that would be loaded from another host."""
    pages = {path: PageLinks(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    problems = []
    for path, page in pages.items():
        if path.name == "404.html":  # its addresses begin at the root of the host
            continue
        name = path.relative_to(folder).as_posix()
        for address in [*page.links, *page.loaded]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loaded and parts.scheme != "data":
                    problems.append(f"{name}: loads {address} from another host")
                continue
            target = path if not parts.path else Path(os.path.normpath(path.parent / unquote(parts.path)))
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                problems.append(f"{name}: {address} leads to no file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                problems.append(f"{name}: {address} leads to no heading")
    return problems


if __name__ == "__main__":
    main()
