"""`import elmo` lets the threads of torch wait without spinning, unless torch is imported or the user has decided."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
PRINT = "import os; print(*map(os.environ.get, ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT')))"


def run_python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment |= {"PYTHONPATH": str(ROOT), **variables}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    ("variables", "printed"),
    [
        ({}, "PASSIVE 0"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE None"),
        ({"GOMP_SPINCOUNT": "1000"}, "None 1000"),
        ({"KMP_BLOCKTIME": "200"}, "None None"),
    ],
)
def test_waiting_is_passive_unless_the_environment_says_otherwise(variables: dict[str, str], printed: str) -> None:
    assert run_python(f"import elmo; {PRINT}", **variables).stdout.strip() == printed


def test_the_environment_is_not_changed_after_torch_is_imported() -> None:
    assert run_python(f"import torch, elmo; {PRINT}").stdout.strip() == "None None"


def test_the_openmp_library_of_torch_does_not_spin() -> None:
    before = run_python("import torch", OMP_DISPLAY_ENV="VERBOSE").stderr  # the library prints this when it is loaded
    if "GOMP_SPINCOUNT" not in before:
        pytest.skip("torch uses another OpenMP library than GCC's")
    after = run_python("from elmo.compat.allennlp import Elmo", OMP_DISPLAY_ENV="VERBOSE").stderr
    assert "GOMP_SPINCOUNT = '0'" not in before
    assert "GOMP_SPINCOUNT = '0'" in after
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in after


def test_the_command_line_waits_passively() -> None:
    code = "import sys; sys.argv = ['elmo', '--version']; from elmo.cli.main import main"
    code += f"\ntry: main()\nexcept SystemExit: {PRINT}"
    assert run_python(code).stdout.splitlines()[-1] == "PASSIVE 0"
