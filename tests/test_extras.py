"""The hints for missing libraries name what the extras of pyproject.toml install."""

from __future__ import annotations

import sys
from pathlib import Path

from elmo.errors import EXTRAS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_every_extra_that_a_hint_can_name_installs_its_libraries() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for extra, libraries in EXTRAS.items():
        names = libraries.replace("'", "").split()  # quoted for shells
        assert [requirement.split(">=")[0] for requirement in extras[extra]] == names
