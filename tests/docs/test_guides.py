"""The guides: in the order in which people need them, and the commands of the explorer guide start the explorer."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ORDER = (
    "quickstart", "pytorch", "layers", "own-language", "fine-tuning", "serving", "explorer", "scaling-out",
    "published-models", "probes", "report",
)  # fmt: skip
EXPLORER = (ROOT / "docs" / "guides" / "explorer.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"^```\n(.*?)^```", EXPLORER, re.M | re.S) for line in block.splitlines()]


def test_the_navigation_has_the_guides_in_the_order_in_which_people_need_them():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    places = [navigation.index(f"guides/{name}.md") for name in ORDER]
    assert places == sorted(places)


def test_the_readme_fits_on_200_lines_and_its_first_screen_is_complete():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    first_screen = "\n".join(lines[:60])
    for part in ("```pycon", "![the explorer", "## Install", "## Why trust it", "AllenNLP 2.10.1"):
        assert part in first_screen


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_explorer_guide_open_the_page(command):
    words = shlex.split(command.replace("my-model/", "tiny-random").replace("8001", "0"))
    assert words[:2] == ["elmo", "explore"]
    model = [] if "--model" in words else ["--model", "tiny-random"]
    with subprocess.Popen(
        [sys.executable, "-m", *words, *model, "--device", "cpu", "--no-browser", "--json"],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        address = json.loads(process.stdout.readline())["url"]
        with urllib.request.urlopen(f"{address}/") as answer:
            assert b"One word, several meanings" in answer.read()
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130


def test_the_explorer_guide_names_the_parts_of_the_page_as_the_page_does():
    page = (ROOT / "elmo" / "serve" / "static" / "index.html").read_text(encoding="utf-8")
    parts = re.findall(r"^- \*\*(Mix .*?|Most .*?|What .*?)\.?\*\*", EXPLORER, re.M)
    named = [*parts, *re.findall(r'"([A-Z][^"\n]+)"', EXPLORER.partition("```python")[0])]
    assert len(named) >= 8
    assert [name for name in named if name not in page] == []
