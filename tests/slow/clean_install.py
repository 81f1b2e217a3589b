"""New virtual environments for the checks of `run.py extras` and `run.py release`, without access to the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
import run  # noqa: E402

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


class CleanEnvironment:
    """A virtual environment of one interpreter; `problem` is the end of the output of the last failed command."""

    def __init__(self, folder: Path, interpreter: str) -> None:
        subprocess.run([interpreter, "-m", "venv", "--without-pip", "--clear", str(folder)], check=True)
        self.folder, self.interpreter, self.problem = folder, interpreter, ""
        self.python = folder / run.BIN / run.PYTHON.name

    def copy(self, folder: Path) -> CleanEnvironment:
        """An environment with the same packages, as hard links: pip replaces files and never writes into them."""
        other = CleanEnvironment(folder, self.interpreter)
        for source in self.site_packages.rglob("*"):
            target = other.site_packages / source.relative_to(self.site_packages)
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(source, target)
        return other

    @property
    def site_packages(self) -> Path:
        if os.name == "nt":
            return self.folder / "Lib" / "site-packages"
        (path,) = (self.folder / "lib").glob("python3*/site-packages")
        return path

    def install(self, *what: str, constraints: Path) -> bool:
        pip = [*run.pip_for(self.python), "install", "--no-compile", "--disable-pip-version-check", "--no-input"]
        return self.call([*pip, "-c", str(constraints), *what], limit=3600)

    def check(self) -> bool:
        """Whether the requirements of all installed packages are met."""
        return self.call([*run.pip_for(self.python), "check", "--disable-pip-version-check"])

    def run_python(self, *words: str, cwd: Path) -> bool:
        return self.call([str(self.python), *words], cwd=cwd)

    def call(self, command: list[str], cwd: Path | None = None, limit: int = 1200) -> bool:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | OFFLINE
        try:
            done = subprocess.run(
                command,
                cwd=cwd or self.folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            self.problem = f"{command[-1]} did not end within {limit} s"
            return False
        if done.returncode != 0:
            lines = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("WARNING")]
            self.problem = " | ".join(lines[-3:])[-600:] or f"exit code {done.returncode}"
        self.output = done.stdout
        return done.returncode == 0

    def versions(self) -> dict[str, str]:
        """Package -> installed version, names in lower case with dashes."""
        code = "from importlib import metadata as m\nfor d in m.distributions(): print(d.metadata['Name'], d.version)"
        done = subprocess.run([str(self.python), "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        pairs = (line.split() for line in done.stdout.splitlines())
        return {name.lower().replace("_", "-"): version for name, version in pairs}

    def megabytes(self) -> float:
        return sum(path.lstat().st_size for path in self.site_packages.rglob("*") if path.is_file()) / 1e6


def build_wheel(folder: Path) -> Path:
    """Builds the wheel of the checkout in `folder`."""
    subprocess.run([*run.pip_for(run.PYTHON), "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def torch_constraint(folder: Path) -> Path:
    """A constraints file with the tested torch alone: on other Pythons the other tested versions may not exist."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    path = folder / "torch.txt"
    path.write_text("".join(f"{line}\n" for line in lines if line.startswith("torch==")), encoding="utf-8")
    return path


def interpreters() -> dict[str, str]:
    """Minor version -> path, of every Python from 3.10 on that runs: on the PATH or installed by pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [f"python3.{minor}" for minor in range(10, 20)] + [str(path) for path in pyenv.glob("3.*/bin/python")]
    found: dict[str, str] = {}
    for candidate in [*candidates, run.base_python()]:
        code = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
        try:
            done = subprocess.run([candidate, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            continue
        version, _, path = done.stdout.strip().partition(" ")
        if done.returncode == 0 and tuple(map(int, version.split("."))) >= (3, 10):
            found.setdefault(version, path)
    return dict(sorted(found.items(), key=lambda item: int(item[0].split(".")[1])))


def seconds_since(start: float) -> str:
    return f"{time.monotonic() - start:.0f} s"
