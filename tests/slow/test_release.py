"""A release can be built from this checkout: both files pass twine, and the installed sdist runs the demo."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import release
from clean_install import ROOT

import elmo


@pytest.mark.slow("release")
@pytest.mark.timeout(7200)
def test_the_sdist_and_the_wheel_pass_twine_and_the_installed_sdist_runs_the_demo(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    assert release.check_release(tmp_path, tmp_path / "dist") == ""
    assert len(list((tmp_path / "dist").iterdir())) == 2


def test_the_version_is_the_same_everywhere() -> None:
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.M)
    section = re.search(
        r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M
    )
    assert citation is not None
    assert section is not None
    assert citation[1] == section[1] == elmo.__version__


def test_a_tag_must_name_the_version_and_a_dated_section_of_the_changelog() -> None:
    assert "but the version in elmo/__init__.py is" in release.tag_problem("v99.0.0")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    is_dated = re.search(rf"^## {re.escape(elmo.__version__)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.M) is not None
    assert (release.tag_problem(f"v{elmo.__version__}") == "") == is_dated


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_workflows_pin_every_action_to_a_commit(path: Path) -> None:
    """A tag of an action can be moved to other code; a commit cannot."""
    text = path.read_text(encoding="utf-8")
    uses = re.findall(r"uses: (\S+)( +# v[\d.]+)?", text)
    assert uses
    for action, version in uses:
        if action.startswith("./.github/workflows/"):  # of the same commit
            assert (ROOT / action).exists()
            continue
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert version, f"{action} has no comment with its version"
    assert re.search(r"^permissions:\n  contents: read$", text, re.M), "the default permission of the token is too wide"
