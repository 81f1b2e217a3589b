"""The licences of all runtime dependencies are permissive."""

from __future__ import annotations

import pytest
from licences import EXTRAS, is_permissive, runtime_packages, table


def test_every_runtime_dependency_has_a_permissive_licence() -> None:
    rows = table(EXTRAS)
    assert [f"{row.package}: {row.text}" for row in rows if not row.is_permissive] == []


def test_dependencies_of_dependencies_are_checked() -> None:
    packages, missing = runtime_packages()
    assert {"torch", "numpy", "h5py", "safetensors", "typer", "rich", "sympy", "mpmath", "markupsafe"} <= set(packages)
    assert missing == []


@pytest.mark.parametrize(
    "text",
    ["MIT", "BSD-3-Clause AND 0BSD", "(Apache-2.0 OR MIT)", "Apache-2.0 WITH LLVM-exception", "GPL-2.0-only OR MIT",
     "MPL-2.0 AND MIT", "ISC License", "Apache Software License"],
)  # fmt: skip
def test_permissive_licences_are_accepted(text: str) -> None:
    assert is_permissive(text)


@pytest.mark.parametrize(
    "text",
    ["", "unknown", "GPL-3.0-or-later", "LGPL-2.1", "AGPL-3.0 AND MIT", "CC-BY-NC-4.0", "MIT AND (GPL-2.0 OR AGPL-3.0)",
     "GNU General Public License v3 (GPLv3)", "Other/Proprietary License"],
)  # fmt: skip
def test_other_licences_are_refused(text: str) -> None:
    assert not is_permissive(text)
