"""The environments of `run.py integrations` hold the tested versions, and every library of their extras imports."""

from __future__ import annotations

import importlib
import sys
from importlib import metadata
from pathlib import Path

import pytest
from licences import table
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
import run  # noqa: E402

MODULES = {"scikit-learn": "sklearn", "dask": "dask.dataframe", "ray": "ray.data"}  # where it is not the name
ENVIRONMENTS = [
    environment for environment in (run.INTEGRATIONS, *run.SEPARATE.values()) if environment.folder == Path(sys.prefix)
]
if not ENVIRONMENTS:
    pytest.skip("not an environment of `python3 run.py integrations`", allow_module_level=True)
(ENVIRONMENT,) = ENVIRONMENTS


def requirements_of(extra: str) -> list[Requirement]:
    """The requirements that an extra adds."""
    requirements = [Requirement(text) for text in metadata.requires("elmo-lm") or []]
    conditional = [item for item in requirements if item.marker is not None]
    return [
        item for item in conditional if [item.marker.evaluate({"extra": name}) for name in ("", extra)] == [False, True]
    ]


def libraries(extra: str) -> list[Requirement]:
    """The libraries of an extra and of the extras that it names."""
    own = requirements_of(extra)
    nested = [library for item in own if item.name == "elmo-lm" for name in item.extras for library in libraries(name)]
    return [item for item in own if item.name != "elmo-lm"] + nested


@pytest.mark.parametrize("library", libraries(ENVIRONMENT.extras.split(",")[-1]), ids=str)
def test_every_library_is_installed_and_imports(library: Requirement) -> None:
    assert library.specifier.contains(metadata.version(library.name))
    importlib.import_module(MODULES.get(library.name, library.name.replace("-", "_")))


def test_the_installed_versions_are_the_tested_ones() -> None:
    """One package that replaces torch or numpy by another version would test something else than the fast suite."""
    lines = [line for name in ENVIRONMENT.constraints for line in (ROOT / name).read_text("utf-8").splitlines()]
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    installed = {
        name.lower().replace("_", "-"): version for name, version in map(name_and_version, metadata.distributions())
    }
    differences = {
        name: (version, installed[key].split("+")[0])
        for name, version in pins.items()
        if (key := name.lower().replace("_", "-")) in installed and installed[key].split("+")[0] != version
    }
    assert differences == {}
    assert "torch" in installed


def name_and_version(distribution: metadata.Distribution) -> tuple[str, str]:
    return distribution.metadata["Name"], distribution.version


# no licence in the form that tests/licences.py reads, or a weaker copyleft; the reason why users may install it
ACCEPTED_LICENCES = {
    "gensim": "LGPL-2.1: users install it themselves, and the package only imports it",
    "mpld3": "BSD with three clauses, written 'BSD 3-clause'",
    "python-dateutil": "Apache-2.0 or BSD, written 'Dual License'",
    "pptree": "required by flair; its metadata name no licence",
    "pytorch-revgrad": "MIT, named by a classifier and its licence file alone",
}


def test_the_licences_of_the_libraries_are_permissive_or_accepted_for_a_reason() -> None:
    extra = ENVIRONMENT.extras.split(",")[-1]
    nested = [item for item in requirements_of(extra) if item.name == "elmo-lm"]
    extras = (extra, *sorted(name for item in nested for name in item.extras))
    rows = [row for row in table(extras) if not row.is_permissive]
    assert [f"{row.package}: {row.text}" for row in rows if row.package not in ACCEPTED_LICENCES] == []
