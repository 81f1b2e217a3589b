"""Commands that are killed at random moments and given again: the files of an uninterrupted command, nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scale import scaled
from tiny_run import ENVIRONMENT

DRIVER = Path(__file__).with_name("kill_commands.py")


def kill(command: str, folder: Path, count: int) -> int:
    """Kills the command `count` times or more, and returns how many processes were killed before their end."""
    arguments = [sys.executable, str(DRIVER), command, str(folder), str(count)]
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-5000:]
    return int(done.stdout.split()[-2])


@pytest.mark.slow("kills")
@pytest.mark.timeout(3600)
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.parametrize("command", ["prepare", "task"])
def test_a_command_killed_at_random_moments_gives_the_same_files(
    command: str, tmp_path: Path, record_property: Any
) -> None:
    count = scaled(30)
    kills = kill(command, tmp_path, count)
    record_property("kills", kills)
    assert kills >= count // 3
