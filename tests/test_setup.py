"""run.py: when it installs, how two processes share one environment, and its error messages."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals and permissions")


@pytest.fixture
def checkout(tmp_path):
    """A copy of the files that the set-up reads, with a small package that installs quickly."""
    folder = tmp_path / "checkout"
    (folder / "elmo").mkdir(parents=True)
    shutil.copy(ROOT / "run.py", folder)
    (folder / "pyproject.toml").write_text("[project]\nname = 'elmo-lm'\nversion = '1'\n")
    (folder / "constraints.txt").write_text("torch==2.13.0\n")
    return folder


def load_run(checkout: Path):
    spec = importlib.util.spec_from_file_location("run", checkout / "run.py")
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    return run


def pretend_installed(run) -> None:
    run.PYTHON.parent.mkdir(parents=True)
    run.PYTHON.touch()
    run.MAIN.stamp.write_text(run.MAIN.wanted())


def start(checkout: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ELMO_VENV": "", **env}
    return subprocess.run(
        [sys.executable, checkout / "run.py", *words], env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_requirement_file_needs_a_new_installation(checkout, name):
    run = load_run(checkout)
    pretend_installed(run)
    assert run.MAIN.is_fresh()
    with open(checkout / name, "a") as file:
        file.write("# changed\n")
    assert not run.MAIN.is_fresh()


def test_another_python_needs_a_new_installation(checkout, monkeypatch):
    run = load_run(checkout)
    pretend_installed(run)
    monkeypatch.setattr(run.sys, "version", "3.99.0 (main)")
    assert not run.MAIN.is_fresh()


def test_a_killed_installation_does_not_count_as_complete(checkout):
    run = load_run(checkout)
    pretend_installed(run)
    run.MAIN.unfinished.touch()
    assert not run.MAIN.is_fresh()


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 6, 15), (3, 9, 18)])
def test_an_old_python_gets_a_one_line_error(checkout, version):
    code = f"import sys; sys.path.insert(0, {str(checkout)!r}); import run; run.need_python({version})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"3.10 or newer is required, this is {version[0]}.{version[1]}" in done.stderr


def test_new_enough_python_passes(checkout):
    load_run(checkout).need_python((3, 10, 0))


def test_run_py_parses_on_an_old_python():
    # the message of need_python() is printed only if the complete file parses
    import ast

    ast.parse((ROOT / "run.py").read_text(encoding="utf-8"), feature_version=(3, 7))
    assert "from __future__ import annotations" not in (ROOT / "run.py").read_text(encoding="utf-8")


def test_unknown_command_prints_the_commands(checkout):
    done = start(checkout, "tset")
    assert done.returncode == 2
    assert "run.py test" in done.stdout
    assert not (checkout / ".venv").exists()


@posix
def test_second_process_waits_for_the_lock_and_a_killed_holder_releases_it(checkout):
    code = (
        f"import sys; sys.path.insert(0, {str(checkout)!r}); import run\n"
        f"with run.held(run.VENV.parent / '.run.lock'): print('held', flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as first:
        assert first.stdout.readline() == "held\n"
        with subprocess.Popen([sys.executable, "-c", code], **pipes) as second:
            assert "another run.py is setting up" in second.stderr.readline()
            assert second.poll() is None
            first.kill()
            assert second.communicate()[0] == "held\n"
    assert second.returncode == 0


def test_a_folder_that_cannot_be_written_is_named(checkout, tmp_path):
    (tmp_path / "file").touch()
    done = start(checkout, "setup", ELMO_VENV=str(tmp_path / "file" / "venv"))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot write in" in done.stderr
    assert "ELMO_VENV" in done.stderr


def test_no_network_is_reported_once_and_no_stamp_is_written(checkout):
    (checkout / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    unreachable_index = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "1",
        "PIP_CONFIG_FILE": os.devnull,
    }
    done = start(checkout, "setup", **unreachable_index)
    assert done.returncode == 1
    assert "cannot reach the package index" in done.stderr
    assert "trying the newest ones" not in done.stderr
    assert not (checkout / ".venv" / ".stamp").exists()


@posix
@pytest.mark.skipif(importlib.util.find_spec("ensurepip") is None, reason="this Python has no ensurepip")
def test_the_environment_has_its_own_pip(checkout, monkeypatch):
    run = load_run(checkout)
    monkeypatch.setattr(run, "install", lambda *_: None)  # of the requirements, which needs the network
    run.install_all(0)
    done = subprocess.run([run.VENV / "bin" / "pip", "--version"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(run.VENV) in done.stdout
    assert run.MAIN.is_fresh()


def test_missing_pip_error_says_how_to_install_it(checkout, monkeypatch, capsys):
    run = load_run(checkout)
    monkeypatch.setattr(run, "works", lambda command: False)
    with pytest.raises(SystemExit):
        run.pip_for(run.PYTHON)
    assert "apt install python3-pip" in capsys.readouterr().err


def test_constraints_that_cannot_be_installed_are_dropped_with_a_notice(checkout, monkeypatch, capsys):
    calls = checkout / "calls"
    fake = checkout / "fake_pip.py"
    fake.write_text(
        f"import sys\nopen({str(calls)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "if '-c' in sys.argv: print('ERROR: no matching distribution'); sys.exit(1)\n"
    )
    run = load_run(checkout)
    monkeypatch.setattr(run, "pip_for", lambda python: [sys.executable, str(fake)])
    run.install(run.PYTHON, ["thing"])
    first, second = calls.read_text().splitlines()
    assert "constraints.txt" in first
    assert "constraints.txt" not in second
    assert "trying the newest ones" in capsys.readouterr().err


def add_integrations(checkout: Path, *names: str) -> None:
    (checkout / "tests" / "integrations").mkdir(parents=True)
    for name in names:
        (checkout / "tests" / "integrations" / f"test_{name}.py").touch()


def test_flair_has_an_environment_of_its_own(checkout):
    add_integrations(checkout, "environment", "flair", "sklearn", "spacy")
    run = load_run(checkout)
    runs = {environment.folder.name: [file.stem for file in files] for environment, files in run.integration_runs([])}
    assert runs == {
        ".venv-integrations": ["test_environment", "test_sklearn", "test_spacy"],
        ".venv-flair": ["test_environment", "test_flair"],
    }
    assert [environment.folder.name for environment, _ in run.integration_runs(["spacy"])] == [".venv-integrations"]


def test_an_unknown_integration_is_a_usage_error_that_lists_the_known_ones(checkout):
    add_integrations(checkout, "sklearn", "spacy")
    done = start(checkout, "integrations", "spaci")
    assert done.returncode == 2
    assert done.stderr == "run.py: tests/integrations has no test_spaci.py; there are tests for: sklearn spacy.\n"
    assert not (checkout / ".venv-integrations").exists()


def test_each_environment_follows_its_own_constraints(checkout):
    run = load_run(checkout)
    for environment in (run.INTEGRATIONS, *run.SEPARATE.values()):
        for name in environment.constraints:
            (checkout / name).write_text("torch==2.13.0\n")
        before = environment.wanted()
        assert before != run.MAIN.wanted()
        (checkout / environment.constraints[-1]).write_text("torch==2.12.0\n")
        assert environment.wanted() != before


def test_the_fast_suite_leaves_the_integrations_to_their_own_command(tmp_path):
    """Their libraries are not installed in .venv; a path on the command line still runs them."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    add_integrations(tmp_path, "spacy")
    for path in ("tests/test_fast.py", "tests/integrations/test_spacy.py"):
        (tmp_path / path).write_text("def test_one() -> None: pass\n")
    collect = [sys.executable, "-m", "pytest", "-n", "0", "--collect-only", "-q", "-p", "no:cacheprovider"]
    for path, expected in (("tests", "tests/test_fast.py"), ("tests/integrations", "tests/integrations/test_spacy.py")):
        done = subprocess.run([*collect, path], cwd=tmp_path, capture_output=True, text=True)
        assert [line for line in done.stdout.splitlines() if "::" in line] == [f"{expected}::test_one"], done.stdout


def write_wheel_project(checkout: Path) -> None:
    """A project whose wheel has 200,000 bytes and needs no other package to be built."""
    (checkout / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        "[project]\nname = 'elmo-lm'\nversion = '1'\n"
    )
    (checkout / "backend.py").write_text(
        "import zipfile\n"
        "def build_wheel(folder, config=None, metadata=None):\n"
        "    with zipfile.ZipFile(folder + '/elmo_lm-1-py3-none-any.whl', 'w') as file:\n"
        "        file.writestr('elmo_lm-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nTag: py3-none-any\\n')\n"
        "        file.writestr('elmo_lm-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: elmo-lm\\nVersion: 1')\n"
        "        file.writestr('elmo/weights.bin', bytes(200_000))\n"
        "    return 'elmo_lm-1-py3-none-any.whl'\n"
    )


def test_a_wheel_that_is_too_large_for_the_index_is_refused(checkout, monkeypatch, capsys):
    write_wheel_project(checkout)
    run = load_run(checkout)
    monkeypatch.setattr(run, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(run, "WHEEL_LIMIT", 0.1)
    with pytest.raises(SystemExit):
        run.try_wheel()
    assert "has 0.2 MB, more than 0.1 MB" in capsys.readouterr().err


def test_a_wheel_that_works_in_a_clean_environment_is_kept(checkout, monkeypatch):
    write_wheel_project(checkout)
    run = load_run(checkout)
    monkeypatch.setattr(run, "PYTHON", Path(sys.executable))
    build, commands = run.check, []

    def build_only(command, cwd=None) -> None:
        """Builds the wheel; what the clean environment would run is only noted."""
        if "wheel" in command:
            build(command)
        else:
            commands.append(str(command[-1]))

    for name, replacement in (("check", build_only), ("make_venv", lambda *words: None), ("works", lambda words: True)):
        monkeypatch.setattr(run, name, replacement)
    monkeypatch.setattr(run, "install", lambda python, what: commands.append(Path(what[0]).suffix))
    run.try_wheel()
    assert commands == [".whl", "--version", run.EMBED_ONE, "check"]
    assert [path.name for path in (checkout / "dist").iterdir()] == ["elmo_lm-1-py3-none-any.whl"]


def test_the_environment_of_the_documentation_has_its_extra_alone_and_is_renewed_when_that_changes(
    checkout, monkeypatch
):
    for name in ("pyproject.toml", "constraints-docs.txt"):
        shutil.copy(ROOT / name, checkout)
    run = load_run(checkout)
    installed = []
    monkeypatch.setattr(run, "make_venv", lambda folder, clear: folder.mkdir(exist_ok=True))
    monkeypatch.setattr(run, "install", lambda python, what, lock, constraints: installed.append(what))
    python = run.docs_python()
    run.docs_python()
    assert python.is_relative_to(run.VENV.with_name(run.VENV.name + "-docs"))
    assert len(installed) == 1, "the second call finds it installed"
    assert [re.split(r"[>\[]", name)[0] for name in installed[0]] == ["mkdocs-material", "mkdocstrings", "ruff"]
    project = (checkout / "pyproject.toml").read_text(encoding="utf-8")
    (checkout / "pyproject.toml").write_text(
        project.replace('    "mkdocs-material', '    "mike>=2",\n    "mkdocs-material')
    )
    run.docs_python()
    assert installed[1][0] == "mike>=2"


def test_missing_browser_is_reported_and_is_no_failure(checkout, monkeypatch, capsys):
    run = load_run(checkout)
    commands = []
    monkeypatch.setattr(run, "pip_for", lambda python: ["pip"])
    monkeypatch.setattr(
        run, "did", lambda command, limit=300: commands.append(command[0])
    )  # returns None: nothing succeeds
    run.get_browser()
    assert commands == ["pip", "pip"], "first with the tested versions, then without"
    assert "Playwright cannot be installed here" in capsys.readouterr().err
    monkeypatch.setattr(run, "did", lambda command, limit=300: commands.append(command[0]) or command[0] == "pip")
    monkeypatch.setattr(run, "find_chromium", lambda: None)
    run.get_browser()
    assert commands[-1] == str(run.PYTHON), "Playwright's own Chromium is the last resort"
    assert "cannot be installed" in capsys.readouterr().err


@posix
def test_a_chromium_that_does_not_run_is_ignored(checkout, tmp_path, monkeypatch):
    run = load_run(checkout)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ELMO_CHROMIUM", raising=False)
    assert run.find_chromium() is None
    for name, code in (("chromium", 1), ("chromium-browser", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    assert run.find_chromium() == str(tmp_path / "chromium-browser")
    assert not run.did([str(tmp_path / "nothing")])


def pins_of(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    for pin in pins:
        assert "==" in pin, pin
        assert "+" not in pin, pin
        assert not pin.startswith("-e"), pin
    return dict(pin.lower().replace("_", "-").split("==") for pin in pins)


def test_constraints_pin_exact_versions_and_no_local_paths():
    assert pins_of("constraints.txt")["torch"] == "2.13.0"


@pytest.mark.parametrize("name", ["constraints-docs.txt", "constraints-integrations.txt", "constraints-flair.txt"])
def test_further_constraints_add_packages_and_repeat_none(name):
    """pip refuses two versions of one package, and a repeated one would have to be changed in two files."""
    further = pins_of(name)
    assert further
    assert not further.keys() & pins_of("constraints.txt").keys()


@posix
@pytest.mark.slow
def test_a_killed_installation_is_repeated(tmp_path):
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".venv", ".git", "tests", ".*_cache", "models"))
    environment = {**os.environ, "ELMO_VENV": ""}
    first = subprocess.Popen([sys.executable, folder / "run.py", "setup"], env=environment, start_new_session=True)
    while not (folder / ".venv" / ".unfinished").exists():
        time.sleep(0.05)
    time.sleep(3)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not (folder / ".venv" / ".stamp").exists()
    second = start(folder, "elmo", "--version")
    assert second.returncode == 0, second.stderr
    assert second.stdout.startswith("elmo ")
    assert (folder / ".venv" / ".stamp").exists()
    third = start(folder, "elmo", "--version")
    assert third.stderr == ""
