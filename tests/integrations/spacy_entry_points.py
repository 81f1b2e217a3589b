"""Processes that see the package as after an installation: with the entry points of pyproject.toml."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def run_installed(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs `python COMMAND` in a folder."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    info = folder / "site" / "elmo_entry_points-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elmo-entry-points\nVersion: 0\n")
    groups = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points[group].items()) for group in points]
    (info / "entry_points.txt").write_text("\n".join(groups))
    paths = [str(ROOT), str(info.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
