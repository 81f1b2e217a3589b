"""The hints for missing libraries name what the extras of pyproject.toml install."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import elmo
from elmo.errors import EXTRAS, MissingExtra

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_every_extra_that_a_hint_can_name_installs_its_libraries() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for extra, libraries in EXTRAS.items():
        assert [requirement.split(">=")[0] for requirement in extras[extra]] == libraries.split()


def load_from_the_hub() -> None:
    elmo.load("hf://ada/laws")


def import_flair() -> None:
    sys.modules.pop("elmo.integrations.flair", None)
    importlib.import_module("elmo.integrations.flair")


def make_keyed_vectors() -> None:
    importlib.import_module("elmo.integrations.gensim").keyed_vectors(elmo.load("tiny-random"), ["bank"])


@pytest.mark.parametrize(
    ("library", "use"),
    [("huggingface_hub", load_from_the_hub), ("flair", import_flair), ("gensim.models", make_keyed_vectors)],
)
def test_a_missing_library_is_one_sentence_with_the_command_that_installs_it(library, use, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    with pytest.raises(MissingExtra, match="is not installed") as caught:
        use()
    assert caught.value.hint == f"pip install {library.split('.')[0]}"


def test_import_elmo_imports_no_library_of_an_integration() -> None:
    code = "import elmo, sys; elmo.ElmoEmbedding; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"huggingface_hub", "flair", "gensim", "lightning"} & set(done.stdout.split())
