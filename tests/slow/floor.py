"""Tests the lowest versions that pyproject.toml allows, in a new environment: `python3 run.py floor`.

    python3 run.py floor                 all of them
    python3 run.py floor --keep torch    the installed torch, where the lowest one cannot be installed or is too large

Direct dependencies get the lowest version of their range, the rest what pip then chooses. The tests are CORE: import,
embedding, one pretraining run, the fixtures of every format. torch's lowest version is several gigabytes on Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("zstd", "moses", "parquet", "test")  # spacy, tensorboard and playwright have no tests in CORE
TOOLS = ("ruff", "mypy")  # not needed to run the tests
CORE = (
    "tests/test_oracle.py", "tests/test_files.py", "tests/embed/test_embedder.py", "tests/embed/test_dump_formats.py",
    "tests/weights/test_formats.py", "tests/weights/test_hdf5.py", "tests/weights/test_store.py",
    "tests/weights/test_tf_checkpoint.py", "tests/weights/test_manylangs.py", "tests/weights/test_allennlp_archive.py",
    "tests/pretrain/test_step.py", "tests/pretrain/test_bilm_training.py", "tests/tasks/test_framework.py",
    "tests/cli/test_main.py",
)  # fmt: skip


TIMED = "tests/cli/test_main.py::test_help_is_quick"  # old libraries may take longer


def main() -> None:
    parser = argparse.ArgumentParser(prog="run.py floor", description="Tests the lowest versions of the dependencies.")
    parser.add_argument("--keep", action="append", default=[], help="A package that gets its installed version.")
    with tempfile.TemporaryDirectory() as name:
        result = check_floor(Path(name), parser.parse_args().keep)
    print(json.dumps(result, indent=1))
    sys.exit(1 if result["problem"] else 0)


def check_floor(folder: Path, keep: list[str]) -> dict[str, Any]:
    """Installs the lowest versions in a new environment in `folder` and runs CORE; "problem" is "" if all passed."""
    pins = lowest_versions(keep)
    python = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    pip = [base, "-m", "pip", "--python", str(python), "install", "-q", "--no-compile", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *(f"{name}=={version}" for name, version in pins.items())], **_CAPTURE)
    if done.returncode:
        return {"versions": pins, "problem": "cannot be installed: " + _last_lines(done.stdout, "ERROR")}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", "-o", "timeout=3600", "--deselect", TIMED]
    done = subprocess.run([str(python), "-m", "pytest", *options, *CORE], cwd=ROOT, env=environment, **_CAPTURE)
    summary = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    problem = "" if done.returncode == 0 else _last_lines(done.stdout, "FAILED", "ERROR", "E  ") or summary
    listed = subprocess.run([str(python), "-c", _LIST], **_CAPTURE)
    return {"versions": json.loads(listed.stdout), "tests": summary.strip("= "), "problem": problem}


_CAPTURE: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "check": False}
_LIST = (
    "import json; from importlib import metadata; "
    "print(json.dumps({d.name: d.version for d in sorted(metadata.distributions(), key=lambda d: d.name.lower())}))"
)


def lowest_versions(keep: list[str]) -> dict[str, str]:
    """Package -> the version after ">=" in pyproject.toml; those in `keep` get their installed version."""
    lowest: dict[str, str] = {}
    for requirement in requirements():
        match = re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", requirement)
        if match is None:
            raise ValueError(f"pyproject.toml: {requirement!r} is not of the form NAME>=VERSION")
        name, version = match.groups()
        if name not in TOOLS:
            lowest[name] = metadata.version(name) if name in keep else version
    return lowest


def requirements() -> list[str]:
    """The requirements of the package and of EXTRAS for this Python, without those that name its own extras."""
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *(text for extra in EXTRAS for text in project["optional-dependencies"][extra])]
    parsed = [Requirement(text) for text in texts]
    parsed = [requirement for requirement in parsed if requirement.marker is None or requirement.marker.evaluate()]
    return [f"{requirement.name}{requirement.specifier}" for requirement in parsed if not requirement.extras]


def _last_lines(text: str, *starts: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.startswith(starts)]
    return " | ".join(lines[-6:])[:1500]


if __name__ == "__main__":
    main()
