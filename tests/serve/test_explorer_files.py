"""The files of the explorer: scripts parse, nothing is loaded from elsewhere, the sentence bank is as described."""

from __future__ import annotations

import lzma
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

SERVE = Path(__file__).resolve().parents[2] / "elmo" / "serve"
STATIC = SERVE / "static"
SCRIPTS = sorted(STATIC.glob("*.js"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_parses_and_says_what_it_holds(path, tmp_path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("// "), "open with a comment: what the module holds"
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; the tests in a browser load every script")
    module = tmp_path / "module.mjs"
    module.write_text(text, encoding="utf-8")
    done = subprocess.run([node, "--check", str(module)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_scripts_import_only_each_other_and_write_no_markup():
    for path in SCRIPTS:
        text = path.read_text(encoding="utf-8")
        imported = re.findall(r'from "([^"]+)"', text)
        assert all((STATIC / name).is_file() for name in imported), path.name
        for risky in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert risky not in text, f"{path.name} uses {risky}: text of users must become text nodes"


def test_the_page_has_no_inline_script_or_style_and_no_address_elsewhere():
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", page) == []
    for name in re.findall(r'(?:src|href)="([^"#]+)"', page):
        assert name.startswith("static/")
        assert (SERVE / name).is_file()
    for path in STATIC.iterdir():
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", path.read_text(encoding="utf-8")))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path.name


def test_the_bank_is_small_tokenised_and_names_its_licences():
    packed = SERVE / "bank" / "sentences.txt.xz"
    assert packed.stat().st_size < 300_000
    lines = lzma.decompress(packed.read_bytes()).decode().splitlines()
    assert len(lines) == len(set(lines)) > 3000
    words = Counter(token for line in lines for token in set(line.split()))
    for word in ("bank", "play", "court", "light", "match", "cell", "spring"):
        assert words[word] >= 20, word
    readme = (SERVE / "bank" / "README.md").read_text(encoding="utf-8")
    assert f"{len(lines):,} English sentences" in readme
    counts = [int(n.replace(",", "")) for n in re.findall(r"^\| [^|]+ \| ([\d,]+) \|", readme, re.M)]
    assert sum(counts) == len(lines)
    assert "CC BY-SA 4.0" in readme
