"""`elmo doctor` finds another distribution that installs a package `elmo`, and files that it has replaced."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = "import json, elmo.cli.doctor as d; print(json.dumps(d.package_facts(d.damaged_files())))"  # without torch


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder as pip fills it: elmo-lm with the code of the package, without its models."""
    folder = tmp_path / "site"
    shutil.copytree(ROOT / "elmo", folder / "elmo", ignore=shutil.ignore_patterns("models", "golden", "__pycache__"))
    write_distribution(folder, "elmo_lm", "elmo-lm", "0.1.0", sorted((folder / "elmo").rglob("*.py")))
    return folder


def write_distribution(folder: Path, stem: str, name: str, version: str, files: list[Path]) -> None:
    info = folder / f"{stem}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(map(record_line, [folder] * len(files), files)))


def record_line(folder: Path, file: Path) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
    return f"{file.relative_to(folder).as_posix()},sha256={digest},{file.stat().st_size}\n"


def run_python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)


def facts(folder: Path) -> list[str]:
    done = run_python(folder, "-c", CHECK)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def test_an_intact_installation_is_its_folder(site: Path) -> None:
    assert facts(site) == [f"ok {site / 'elmo'}"]


def test_another_distribution_with_a_package_elmo_is_named_with_the_remedy(site: Path) -> None:
    (site / "elmo" / "theirs.py").write_text("x = 1\n")
    write_distribution(site, "elmo", "elmo", "3.1", [site / "elmo" / "theirs.py"])
    (line,) = facts(site)
    assert line.startswith(f"WRONG elmo 3.1 in {site} installs a package elmo too")
    assert "pip uninstall elmo elmo-lm" in line


def test_doctor_names_replaced_and_missing_files_although_they_are_needed(site: Path) -> None:
    (site / "elmo" / "errors.py").write_text((site / "elmo" / "errors.py").read_text() + "# theirs\n")
    (site / "elmo" / "xz.py").unlink()
    done = run_python(site, "-m", "elmo", "doctor", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    (line,) = json.loads(done.stdout)["package"]
    assert line.startswith("WRONG 2 files of elmo-lm are missing or changed (elmo/errors.py, ...); remove both")


def test_an_init_file_of_another_package_is_one_clear_error(site: Path) -> None:
    (site / "elmo" / "__init__.py").write_text("")
    done = run_python(site, "-c", "from elmo.cli.main import main; main()", "doctor")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 2
    assert done.stderr.startswith("elmo: another package with the name elmo has replaced files of elmo-lm.\n")
    assert "pip uninstall elmo elmo-lm" in done.stderr
