"""Builds the sdist and the wheel and checks both as the package index would: `python3 run.py release`.

    python3 run.py release                 builds both in dist/, checks them, installs the sdist and runs `elmo demo`
    python3 run.py release --tag v0.2.0    also checks that the version is 0.2.0 and that CHANGELOG.md dates it

docs/releasing.md lists the steps of a release; .github/workflows/release.yml runs this command for a tag.
"""

from __future__ import annotations

import argparse
import re
import tarfile
import tempfile
from pathlib import Path

from clean_install import ROOT, CleanEnvironment, run

LIMIT = run.WHEEL_LIMIT  # MB, of each file
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "elmo/__init__.py", "elmo/py.typed", "run.py")


def main() -> None:
    parser = argparse.ArgumentParser(prog="run.py release", description="Builds and checks the sdist and the wheel.")
    parser.add_argument("--tag", help="The tag of the release, such as v0.2.0.")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="Folder for both files; it is emptied first.")
    options = parser.parse_args()
    problem = tag_problem(options.tag) if options.tag else ""
    if not problem:
        with tempfile.TemporaryDirectory() as name:
            problem = check_release(Path(name), options.dist)
    if problem:
        run.stop(problem)
    for path in sorted(options.dist.iterdir()):
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


def check_release(folder: Path, dist: Path) -> str:
    """Builds both files in `dist` and checks them; the problem, or "" if there is none."""
    for path in dist.glob("elmo_lm-*"):
        path.unlink()
    tools = CleanEnvironment(folder / "tools", run.base_python())
    if not tools.install(*release_tools(), constraints=empty_file(folder)):
        return f"build and twine cannot be installed: {tools.problem}"
    if not tools.run_python("-m", "build", "--outdir", str(dist), str(ROOT), cwd=folder):
        return f"the build failed: {tools.problem}"
    files = sorted(dist.glob("elmo_lm-*"))
    if not tools.run_python("-m", "twine", "check", "--strict", *map(str, files), cwd=folder):
        return f"twine check: {tools.problem}"
    for path in files:
        if path.stat().st_size > LIMIT * 1e6:
            return f"{path.name} has {path.stat().st_size / 1e6:.1f} MB, more than {LIMIT} MB."
    (sdist,) = dist.glob("elmo_lm-*.tar.gz")
    return missing_files(sdist) or demo_problem(folder, sdist)


def demo_problem(folder: Path, sdist: Path) -> str:
    """Installs the sdist in a clean environment and runs `elmo demo` there; the problem, or ""."""
    clean = CleanEnvironment(folder / "clean", run.base_python())
    if not clean.install(str(sdist), constraints=ROOT / "constraints.txt") or not clean.check():
        return f"the sdist cannot be installed: {clean.problem}"
    if not clean.run_python("-m", "elmo", "demo", cwd=folder):
        return f"elmo demo failed: {clean.problem}"
    return "" if "bank" in clean.output else f"elmo demo printed no words in context: {clean.output[-300:]}"


def missing_files(sdist: Path) -> str:
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    missing = [name for name in NEEDED if name not in names]
    return f"{sdist.name} has no {', '.join(missing)}." if missing else ""


def tag_problem(tag: str) -> str:
    """Why the tag does not fit the version and the changelog, or ""."""
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "elmo/__init__.py").read_text("utf-8"), re.M)[1]
    if tag != f"v{version}":
        return f"the tag is {tag}, but the version in elmo/__init__.py is {version}."
    heading = f"## {version} ("
    sections = [line for line in (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines() if line.startswith(heading)]
    if not re.fullmatch(r"\(\d{4}-\d\d-\d\d\)", sections[0].split(" ")[2] if sections else ""):
        return f"CHANGELOG.md has no section '{heading}YYYY-MM-DD)'."
    return ""


def release_tools() -> list[str]:
    """The requirements of the extra `release`."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"([^"]+)"', re.search(r"^release = \[(.*)\]", text, re.M)[1])


def empty_file(folder: Path) -> Path:
    path = folder / "none.txt"
    path.touch()
    return path


if __name__ == "__main__":
    main()
