"""The `elmo` command in real processes: exit codes, one-line errors, and `--help` without importing torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from in_process_cli import run_in_process

from elmo.cli.main import VERBS

ROOT = Path(__file__).resolve().parent.parent.parent
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals and devices")


def elmo(*words: str, before: str = "", **options) -> subprocess.CompletedProcess[str]:
    """Runs the command in its own process; `before` is Python code that runs first, for example to add a verb."""
    options["env"] = {**os.environ, "PYTHONPATH": str(ROOT), **options.get("env", {})}
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run(command(*words, before=before), stderr=subprocess.PIPE, text=True, **options)


def command(*words: str, before: str = "") -> list[str]:
    if not before:
        return [sys.executable, "-m", "elmo", *words]
    return [sys.executable, "-c", f"{before}\nfrom elmo.cli.main import main\nmain()", *words]


def verb(body: str) -> str:
    """Python code that adds a verb `planted` whose function `run` has this body."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return (
        "import sys, types, elmo.cli.main\nfrom elmo.errors import *\n"
        f"def run() -> None:\n{lines}\n"
        "sys.modules['planted'] = types.SimpleNamespace(run=run, EXAMPLE='elmo planted')\n"
        "elmo.cli.main.VERBS['planted'] = ('planted', 'Fail.')"
    )


def test_version():
    import elmo as package

    done = elmo("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"elmo {package.__version__}\n", "")


def test_help_lists_every_verb_without_importing_it():
    watch = "import atexit, sys; atexit.register(lambda: print([m for m in sys.modules if m.startswith('elmo.cli.')]))"
    done = elmo("--help", before=watch)
    assert done.returncode == 0
    for name, (_, summary) in VERBS.items():
        assert name in done.stdout
        assert summary.split()[0] in done.stdout
    assert done.stdout.endswith("['elmo.cli.main']\n")


def test_help_imports_few_modules():
    watch = "import atexit, sys; atexit.register(lambda: print(*sys.modules))"
    modules = elmo("--help", before=watch).stdout.splitlines()[-1].split()
    assert "typer" in modules
    assert not {"torch", "numpy", "h5py", "safetensors", "rich", "asyncio"} & set(modules)
    assert len(modules) < 250  # about 150, most of them of typer; torch alone has more than 1,000


@pytest.mark.parametrize("name", VERBS)
def test_verb_help_has_an_example_and_no_torch(name):
    watch = "import atexit, sys; atexit.register(lambda: print('heavy', {'torch', 'numpy', 'h5py'} & set(sys.modules)))"
    done = elmo(name, "--help", before=watch)
    assert done.returncode == 0, done.stderr
    assert f"Example: elmo {name}" in done.stdout
    assert done.stdout.endswith("heavy set()\n")


def test_no_verb_shows_help_and_is_a_usage_error():
    done = elmo()
    assert done.returncode == 2
    assert "Commands:" in done.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [(["doctr"], "Did you mean 'doctor'?"), (["doctor", "--jsn"], "--json"), (["--versio"], "--version")],
)
def test_misspelt_command_or_flag_exits_2_and_suggests_the_nearest(words, hint):
    done = elmo(*words)
    assert done.returncode == 2
    assert hint in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("kind", "code"), [("WeightsError", 1), ("DataError", 1), ("ConfigError", 2)])
def test_elmo_errors_print_message_and_hint_and_set_the_exit_code(kind, code):
    done = elmo("planted", before=verb(f"raise {kind}('x.hdf5 is cut short.', 'Fetch it again.')"))
    assert done.returncode == code
    assert done.stderr == "elmo: x.hdf5 is cut short.\n  Fetch it again.\n"


def test_missing_extra_names_the_package_to_install():
    body = "from elmo.files import require_extra\nrequire_extra('no_such_library', 'spacy', 'spaCy')"
    done = elmo("planted", before=verb(body))
    assert done.returncode == 2
    assert "pip install spacy" in done.stderr


def test_unexpected_error_is_one_line():
    done = elmo("planted", before=verb("raise ValueError('two\\nlines')"))
    assert done.returncode == 1
    assert done.stderr == "elmo: internal error: ValueError: two lines (run with --debug for the traceback)\n"


@pytest.mark.parametrize(
    ("words", "env"), [(["--debug", "planted"], {}), (["planted", "--debug"], {}), (["planted"], {"ELMO_DEBUG": "1"})]
)
def test_debug_shows_the_traceback(words, env):
    done = elmo(*words, before=verb("raise ValueError('deep')"), env=env)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ValueError: deep" in done.stderr


def test_elmo_debug_0_disables_the_traceback():
    assert "Traceback" not in elmo("planted", before=verb("raise ValueError"), env={"ELMO_DEBUG": "0"}).stderr


def test_verb_can_set_its_own_exit_code():
    assert elmo("planted", before=verb("import typer\nraise typer.Exit(3)")).returncode == 3


@posix
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_unwinds_and_sets_the_exit_code(number, code):
    body = "import time\ntry:\n    print('ready', flush=True)\n    time.sleep(3600)\nfinally:\n    print('cleaned')"
    child = subprocess.Popen(
        command("planted", before=verb(body)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    rest, errors = child.communicate()
    assert rest == "cleaned\n"
    assert child.returncode == code
    assert "Traceback" not in errors


@posix
@pytest.mark.parametrize("lines", [1, 100_000])
def test_closed_pipe_is_no_error(lines):
    body = f"import sys\nsys.stdin.readline()\nfor i in range({lines}): print(i)"
    child = subprocess.Popen(
        command("planted", before=verb(body)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    child.stdout.close()
    child.stdin.write("go\n")
    child.stdin.flush()
    assert child.stderr.read() == ""
    assert child.wait() == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [["--help"], ["doctor", "--json"], ["planted"]])
def test_full_disk_behind_stdout_exits_1_with_one_line(words):
    with open("/dev/full", "w") as full:
        done = elmo(*words, before=verb("for i in range(100_000): print(i)"), stdout=full)
    assert done.returncode == 1
    assert done.stderr == "elmo: standard output cannot be written (No space left on device)\n"


@posix
def test_closed_standard_streams_are_no_error():
    closed = f'"{sys.executable}" -m elmo --version <&- >&- 2>&-'
    assert subprocess.run(["bash", "-c", closed], cwd=ROOT).returncode == 0


@pytest.mark.parametrize(
    "env",
    [{"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"COLUMNS": "1"}, {"FORCE_COLOR": "1"}],
)
def test_output_is_plain_ascii_in_every_environment(env):
    for words in (["--help"], ["doctor", "--help"], ["doctr"]):
        done = elmo(*words, env=env)
        assert done.returncode in (0, 2)
        assert "\x1b" not in done.stdout + done.stderr
        assert (done.stdout + done.stderr).isascii()


def test_strange_characters_are_escaped_where_the_terminal_cannot_show_them():
    done = elmo("planted", before=verb("print('b\\u00e4nk \\ud800')"), env={"PYTHONIOENCODING": "ascii:strict"})
    assert (done.returncode, done.stdout) == (0, "b\\xe4nk \\ud800\n")


def test_every_verb_file_is_listed_in_verbs():
    files = (ROOT / "elmo" / "cli").glob("*.py")
    verb_files = {path.stem for path in files if "\ndef run(" in path.read_text(encoding="utf-8")}
    listed = {module.rpartition(".")[2] for module, _ in VERBS.values()}
    assert verb_files == listed, "a verb is a file with a function `run` and a line in VERBS of elmo/cli/main.py"


def test_doctor_reports_versions_and_devices(capsys):
    import numpy
    import torch

    done = elmo("doctor", "--json")
    assert done.returncode == 0
    facts = json.loads(done.stdout)
    assert facts["torch"].split("+")[0] == torch.__version__.split("+")[0]  # "+cu124" may be in only one of them
    assert facts["numpy"] == numpy.__version__
    assert facts["devices"][0] == "cpu"
    assert facts["torch_threads"] >= 1
    assert facts["free_disk_gb"] > 0
    table = run_in_process(capsys, "doctor").stdout
    assert all(any(line.startswith(name) for line in table.splitlines()) for name in facts)
