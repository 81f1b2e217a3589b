"""The hints for missing libraries name what the extras of pyproject.toml install."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("module", "library", "command"),
    [
        ("sklearn", "sklearn", "pip install scikit-learn"),
        ("sentence_transformers", "sentence_transformers", "pip install sentence-transformers"),
    ],
)
def test_a_missing_library_of_an_integration_is_one_sentence_with_a_command(
    module: str, library: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, f"elmo.integrations.{module}", raising=False)
    with pytest.raises(MissingExtra) as caught:
        importlib.import_module(f"elmo.integrations.{module}")
    assert caught.value.hint.startswith(command)
