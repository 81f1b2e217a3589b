#!/usr/bin/env python3
"""Creates the environment .venv on first use and runs a command of the project in it. Needs only Python and pip.

    python3 run.py demo              show words in context, neighbours, substitutes and a picture
    python3 run.py test [ARGS...]    run the fast tests; ARGS are passed to pytest
    python3 run.py integrations [NAMES...] [ARGS...]
                                     run tests/integrations/test_NAME.py, or all, with the other libraries installed
    python3 run.py slow [ARGS...]    run the slow tests in parts and write a record; --help lists the parts
    python3 run.py floor             test the lowest versions that pyproject.toml allows
    python3 run.py lint              run ruff and mypy
    python3 run.py browser           install Playwright and Chromium for the tests that open a page
    python3 run.py extras [NAMES...] install each extra alone in clean environments, on every Python; --help lists more
    python3 run.py wheel             build the wheel in dist/, install it in a clean environment and embed with it
    python3 run.py wheel --platform  the same for the wheel with compiled kernels; --dist FOLDER keeps it
    python3 run.py release           build and check the sdist and the wheel for the package index, in dist/
    python3 run.py docs [ARGS...]    build the documentation site in site/ and check its links
    python3 run.py elmo ARGS...      run the elmo command
    python3 run.py setup             only create .venv

ELMO_VENV sets another location of the environment; those of `integrations` lie beside it (.venv-integrations,
.venv-flair). An interrupted set-up is repeated; if two run at the same time, the second one waits.

The file is one thing although it is long: it must run before anything is installed, also as a single copy.
"""
# No `from __future__` and no newer syntax: an old Python must reach need_python() to print its message.

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any, Iterator, NoReturn

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("ELMO_VENV") or ROOT / ".venv").absolute()
BIN = "Scripts" if os.name == "nt" else "bin"
PYTHON = VENV / BIN / ("python.exe" if os.name == "nt" else "python")
EMBED_ONE = "import elmo; print(elmo.load().embed('The bank of the river .').shape)"
WHEEL_LIMIT = 95  # MB; the package index accepts 100
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
SIZES = "about 5.5 GB, or 1.5 GB with PyTorch's CPU build (PIP_EXTRA_INDEX_URL=" + CPU_INDEX + ")"
REASONS = (  # pattern in pip's output -> message; other failures get a second attempt without constraints
    (
        r"connection broken|NewConnectionError|Max retries|name resolution|Network is unreachable|ProxyError|Timeout",
        "pip cannot reach the package index. Connect to the network, or set PIP_INDEX_URL or PIP_FIND_LINKS.",
    ),
    (r"No space left|Disk quota", f"the disk is full; {VENV} needs {SIZES}."),
    (r"Permission denied|Read-only file", f"files in {VENV} cannot be written; set ELMO_VENV to another folder."),
)


class Environment:
    """A virtual environment with the package, some of its extras and the versions of constraint files."""

    def __init__(self, folder: Path, extras: str, constraints: "tuple[str, ...]" = ("constraints.txt",)) -> None:
        self.folder = folder
        self.extras = extras
        self.constraints = constraints
        self.python = folder / BIN / PYTHON.name
        self.stamp = folder / ".stamp"  # written last: hash of the installed requirements
        self.unfinished = folder / ".unfinished"  # exists during an installation; found later, that one was killed

    def wanted(self) -> str:
        """Hash of the Python version and the requirements; the stamp of a current environment equals it."""
        digest = hashlib.sha256((sys.version + " with pip" + self.extras).encode())
        for name in ("pyproject.toml",) + self.constraints:
            digest.update((ROOT / name).read_bytes())
        return digest.hexdigest()

    def is_fresh(self) -> bool:
        is_stamped = self.python.exists() and self.stamp.exists() and self.stamp.read_text() == self.wanted()
        return is_stamped and not self.unfinished.exists()


MAIN = Environment(VENV, "test")
SEPARATE = {  # test of tests/integrations -> an environment that differs from INTEGRATIONS
    "flair": Environment(
        VENV.with_name(VENV.name + "-flair"), "test,flair", ("constraints.txt", "constraints-flair.txt")
    )
}
INTEGRATIONS = Environment(
    VENV.with_name(VENV.name + "-integrations"),
    "test,integrations",
    ("constraints.txt", "constraints-integrations.txt"),
)


def main(words: "list[str]") -> None:
    need_python(sys.version_info)
    verb, rest = (words[0], words[1:]) if words else ("help", [])
    commands = {
        "demo": ["-m", "elmo", "demo"],
        "elmo": ["-m", "elmo"],
        "test": ["-m", "pytest", "-n", "2", "--dist", "loadfile"],  # -n 0 runs in one process, for debuggers
        "slow": [str(ROOT / "tests" / "slow" / "run_slow.py")],
        "floor": [str(ROOT / "tests" / "slow" / "floor.py")],
        "extras": [str(ROOT / "tests" / "slow" / "extras.py")],
        "release": [str(ROOT / "tests" / "slow" / "release.py")],
        "wheel": [str(ROOT / "tests" / "slow" / "platform_wheel.py")],
        "setup": ["-m", "elmo", "--version"],
    }
    if verb not in commands and verb not in ("lint", "browser", "integrations", "docs"):
        print(__doc__)
        sys.exit(0 if verb in ("help", "-h", "--help") else 2)
    if verb == "integrations":
        sys.exit(run_integrations(rest))
    if verb == "docs":  # needs neither PyTorch nor the package: docstrings are read, not imported
        check([docs_python(), str(ROOT / "docs" / "build_site.py"), *rest])
        return
    set_up()
    if verb not in ("demo", "elmo", "slow", "floor", "extras"):  # their arguments may be paths relative to this folder
        os.chdir(str(ROOT))
    if verb == "lint":
        check([PYTHON, "-m", "ruff", "check", "."])
        check([PYTHON, "-m", "mypy"])
        check_scripts()
    elif verb == "wheel" and "--platform" not in rest:
        try_wheel()
    elif verb == "browser":
        get_browser()
    elif os.name == "nt":
        sys.exit(subprocess.call([str(PYTHON)] + commands[verb] + rest))
    else:
        os.execv(str(PYTHON), [str(PYTHON)] + commands[verb] + rest)


def need_python(version: "tuple[Any, ...]") -> None:
    if tuple(version[:2]) < (3, 10):
        stop(f"Python 3.10 or newer is required, this is {version[0]}.{version[1]} ({sys.executable}).")


def run_integrations(words: "list[str]") -> int:
    """Runs the tests of the libraries that `words` begins with, or all; the rest of the words is for pytest."""
    count = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    code = 0
    for environment, files in integration_runs(words[:count]):
        set_up(environment)
        command = [environment.python, "-m", "pytest", "-n", "0"] + files + words[count:]
        code = subprocess.call([str(word) for word in command], cwd=str(ROOT)) or code
    return code


def integration_runs(names: "list[str]") -> "list[tuple[Environment, list[Path]]]":
    """Each environment with the test files that run in it."""
    files = {path.stem[len("test_") :]: path for path in sorted((ROOT / "tests" / "integrations").glob("test_*.py"))}
    unknown = [name for name in names if name not in files]
    if unknown:
        tell(f"tests/integrations has no test_{unknown[0]}.py; there are tests for: {' '.join(files)}.")
        sys.exit(2)
    runs: "list[tuple[Environment, list[Path]]]" = []
    for environment in [INTEGRATIONS, *SEPARATE.values()]:
        own = [files[name] for name in names or files if belongs(name, environment)]
        if own:
            runs.append((environment, own))
    return runs


def belongs(name: str, environment: Environment) -> bool:
    return name == "environment" or SEPARATE.get(name, INTEGRATIONS) is environment  # test_environment.py: in each


def set_up(environment: Environment = MAIN) -> None:
    """Installs the package with the environment's extras and constraints, unless the stamp is current."""
    parent = environment.folder.parent
    try:
        if environment.is_fresh():
            return
        parent.mkdir(parents=True, exist_ok=True)
        with held(parent / ".run.lock") as lock:
            if not environment.is_fresh():
                install_all(lock, environment)
    except OSError as error:
        stop(f"cannot write in {parent} ({error.strerror}). Copy the checkout, or set ELMO_VENV=/a/folder.")


@contextlib.contextmanager
def held(path: Path) -> "Iterator[int]":
    """Holds an operating-system lock on a file; the system releases it when the process ends for any reason."""
    with open(str(path), "a") as file:
        if not take(file.fileno()):
            tell(f"another run.py is setting up an environment in {path.parent}; waiting for it to finish.")
            while not take(file.fileno()):
                time.sleep(0.2)
        yield file.fileno()


def take(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def install_all(lock: int, environment: Environment = MAIN) -> None:
    size = SIZES if environment is MAIN else "about 1 GB more than .venv"
    tell(f"creating {environment.folder}, only once; it needs {size} ...")
    make_venv(environment.folder, clear=environment.unfinished.exists())
    environment.unfinished.touch()
    install(environment.python, ["-e", f"{ROOT}[{environment.extras}]"], lock, environment.constraints)
    add_pip(environment.python, lock)
    environment.stamp.write_text(environment.wanted())
    environment.unfinished.unlink()


def add_pip(python: Path, lock: int) -> None:
    """Puts pip in the environment, because messages and guides name libraries with the command `pip install`."""
    if not works([str(python), "-m", "pip"]) and not works([str(python), "-m", "ensurepip", "--default-pip"]):
        install(python, ["pip"], lock)


def make_venv(folder: Path, clear: bool = False) -> None:
    config = folder / "pyvenv.cfg"
    ours = f"version = {sys.version_info[0]}.{sys.version_info[1]}."
    other_python = config.exists() and ours not in config.read_text()
    flags = ["--clear"] if clear or other_python else []
    if subprocess.call([base_python(), "-m", "venv", "--without-pip"] + flags + [str(folder)]) != 0:
        stop("this Python has no venv module. On Debian and Ubuntu: apt install python3-venv")


def base_python() -> str:
    # if this process runs the python of .venv, return the python it was created from
    inside = Path(sys.prefix) == VENV
    return getattr(sys, "_base_executable", sys.executable) if inside else sys.executable


def pip_for(python: Path) -> "list[str]":
    """A pip command that installs into the environment of this python."""
    outside = [base_python(), "-m", "pip", "--python", str(python)]
    inside = [str(python), "-m", "pip"]
    if works(outside):
        return outside
    if not works(inside):  # the outer pip is missing or older than 22.3: install one from the standard library
        works([str(python), "-m", "ensurepip", "--default-pip"])
    if not works(inside):
        stop(
            f"{base_python()} has no pip. Debian, Ubuntu: apt install python3-pip; Fedora: dnf install python3-pip; "
            "elsewhere: https://bootstrap.pypa.io/get-pip.py"
        )
    return inside


def works(command: "list[str]") -> bool:
    test_command = command if "ensurepip" in command else [*command, "--version"]
    return subprocess.call(test_command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


def install(
    python: Path,
    what: "list[str]",
    lock: "int | None" = None,
    constraints: "tuple[str, ...]" = ("constraints.txt",),
) -> None:
    """Installs with the tested versions; if they are not available (new Python, rare machine), without them."""
    pip = pip_for(python) + ["install", "-q", "--no-compile", "--disable-pip-version-check", "--no-input"]
    # if this process is killed and pip continues, pip keeps the lock
    keep: Any = {} if lock is None or os.name == "nt" else {"pass_fds": (lock,)}
    all_pins = [word for name in constraints for word in ("-c", str(ROOT / name))]
    for pins in (all_pins, []):
        done = subprocess.run(pip + pins + what, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **keep)
        if done.returncode == 0:
            return
        output = done.stdout.decode("utf-8", "replace")
        sys.stderr.write("".join(line + "\n" for line in output.splitlines() if not line.startswith("WARNING")))
        for pattern, meaning in REASONS:
            if re.search(pattern, output):
                stop(meaning)
        if pins:
            tell(
                f"the tested versions in {' and '.join(constraints)} cannot be installed here; trying the newest ones."
            )
    stop("the installation failed; see the messages above.")


def check_scripts() -> None:
    """Runs mypy over the tests, benchmarks, runs and examples, folder by folder, because their file names repeat."""
    for top in ("tests", "benchmarks", "runs", "examples"):
        for folder in sorted({path.parent for path in (ROOT / top).rglob("*.py")}):
            helpers = [ROOT / "tests", ROOT / "tests" / "tasks", ROOT / "tests" / "report", folder]
            os.environ["MYPYPATH"] = os.pathsep.join(str(path) for path in dict.fromkeys(helpers))
            files = sorted(folder.glob("*.py"))
            check([PYTHON, "-m", "mypy", "--no-error-summary", "--config-file", "tests/mypy.ini", *files])
    os.environ.pop("MYPYPATH")


def try_wheel() -> None:
    """Checks that the wheel works in a clean environment without access to the checkout."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check(pip_for(PYTHON) + ["wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)])
        (wheel,) = folder.glob("*.whl")
        size = wheel.stat().st_size / 1e6
        if size > WHEEL_LIMIT:
            stop(f"{wheel.name} has {size:.1f} MB, more than {WHEEL_LIMIT} MB; the package index accepts 100 MB.")
        inside = zipfile.ZipFile(str(wheel)).namelist()
        strays = [path for path in inside if not path.startswith(("elmo/", "elmo_lm-"))]
        if strays:
            stop(f"the wheel contains files that do not belong to the package: {strays[:5]}")
        clean = folder / "clean"
        make_venv(clean)
        python = clean / BIN / PYTHON.name
        install(python, [str(wheel)])
        os.environ.pop("PYTHONPATH", None)
        check([clean / BIN / "elmo", "--version"], cwd=folder)
        check([python, "-c", EMBED_ONE], cwd=folder)
        check(pip_for(python) + ["check"], cwd=folder)
        (ROOT / "dist").mkdir(exist_ok=True)
        shutil.copy(str(wheel), str(ROOT / "dist" / wheel.name))
        tell(f"dist/{wheel.name} ({size:.1f} MB) works in a clean environment.")


def docs_python() -> Path:
    """The python of an environment that has the extra `docs` alone; created on first use and after changes."""
    folder = VENV.with_name(VENV.name + "-docs")
    python, stamp = folder / BIN / PYTHON.name, folder / ".stamp"
    (block,) = re.findall(r"^docs = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)
    needed = re.findall(r'^ *"(.+?)"', block, re.M)
    pins = ("constraints.txt", "constraints-docs.txt")
    hashed = b"".join((ROOT / name).read_bytes() for name in pins)
    digest = hashlib.sha256(repr((sys.version, needed)).encode() + hashed).hexdigest()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with held(folder.parent / ".run.lock") as lock:
        if not stamp.exists() or stamp.read_text() != digest:
            tell(f"creating {folder} for the documentation ...")
            make_venv(folder, clear=folder.exists())
            install(python, needed, lock, pins)
            stamp.write_text(digest)
    return python


def get_browser() -> None:
    """Installs Playwright in .venv, and Chromium: Debian's package if apt can be used, otherwise Playwright's own.

    A part that cannot be installed is reported but is no failure: only the tests that open a page are skipped.
    """
    pip = pip_for(PYTHON) + ["install", "-q", "--disable-pip-version-check", "--no-input"]
    wanted_parts = ["-c", str(ROOT / "constraints.txt"), "-e", str(ROOT) + "[browser]"]
    if not did([*pip, *wanted_parts]) and not did([*pip, *wanted_parts[2:]]):
        tell("Playwright cannot be installed here; the tests that open a page are skipped.")
        return
    if find_chromium() is None and hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        tell("installing Debian's chromium ...")
        did(["apt-get", "update", "-qq"])
        did(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"])
    chromium = find_chromium()
    if chromium is None and did([str(PYTHON), "-m", "playwright", "install", "chromium"]):
        chromium = "Playwright's own Chromium"
    tell(chromium or "Chromium is missing and cannot be installed; the tests that open a page are skipped.")


def find_chromium() -> "str | None":
    """The path of a Chromium that runs: $ELMO_CHROMIUM, or one on the PATH."""
    names = [os.environ.get("ELMO_CHROMIUM"), "chromium", "chromium-browser"]
    paths = [path for path in (shutil.which(name) for name in names if name) if path]
    return next((path for path in paths if works([path])), None)  # a stub that only names an installer does not run


def did(command: "list[str]", limit: int = 300) -> bool:
    """Whether a command succeeded within `limit` seconds; its output is discarded."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def check(command: "list[Any]", cwd: "Path | None" = None) -> None:
    code = subprocess.call([str(word) for word in command], cwd=str(cwd) if cwd else None)
    if code != 0:
        sys.exit(code)


def tell(message: str) -> None:
    print("run.py: " + message, file=sys.stderr, flush=True)


def stop(message: str) -> NoReturn:
    tell(message)
    sys.exit(1)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
