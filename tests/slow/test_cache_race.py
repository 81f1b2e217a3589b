"""Another user who swaps files of the kernel cache while they are opened cannot make this process load his library."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scale import scaled

from elmo.kernels.cpu.library_cache import CHECKSUM, LIBRARY, Untrusted, checksum_line, read_library

VERSION = "avx2-0123456789abcdef"
OURS, FOREIGN = b"our library" * 1000, b"another user's library" * 1000
NOBODY = 65534
# exchanges two names in one system call, again and again, until its input ends; prints how often
SWAP = """
import ctypes, os, select, sys
libc = ctypes.CDLL(None, use_errno=True)
pairs = [(os.fsencode(a), os.fsencode(b)) for a, b in zip(sys.argv[1::2], sys.argv[2::2])]
count = 0
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(50):
        for first, second in pairs:
            if libc.renameat2(-100, first, -100, second, 2):
                sys.exit(os.strerror(ctypes.get_errno()))
            count += 1
print(count)
"""
is_root = sys.platform == "linux" and os.getuid() == 0


def write_library(folder: Path, data: bytes, owner: int | None = None) -> Path:
    """A folder of the cache with a library and its right checksum, which may belong to another user."""
    folder.mkdir(parents=True)
    (folder / LIBRARY).write_bytes(data)
    (folder / CHECKSUM).write_text(checksum_line(VERSION, data), encoding="ascii")
    for path in (folder / LIBRARY, folder / CHECKSUM, folder):
        path.chmod(0o755)
        if owner is not None:
            os.chown(path, owner, owner)
    return folder


def swaps(cache: Path, place: str) -> list[tuple[Path, Path]]:
    """Pairs of paths of which the second belongs to another user, or leads to what does."""
    ours = write_library(cache / "kernels" / VERSION, OURS)
    if place == "parent":
        foreign = write_library(cache / "foreign" / VERSION, FOREIGN, NOBODY)
        os.chown(foreign.parent, NOBODY, NOBODY)
        return [(ours.parent, foreign.parent)]
    foreign = write_library(cache / "foreign", FOREIGN, NOBODY)
    if place == "files":
        return [(ours / name, foreign / name) for name in (LIBRARY, CHECKSUM)]
    if place == "link":
        link = cache / "link"
        link.symlink_to(foreign)
        return [(ours, link)]
    if place == "file links":
        for name in (LIBRARY, CHECKSUM):
            (cache / f"link-{name}").symlink_to(foreign / name)
        return [(ours / name, cache / f"link-{name}") for name in (LIBRARY, CHECKSUM)]
    return [(ours, foreign)]


def read_after_check(folder: Path) -> bytes | None:
    """What the cache must not do: it checks the owner of a path, and then opens the path."""
    if os.stat(folder / LIBRARY).st_uid not in (os.getuid(), 0) or (folder / LIBRARY).is_symlink():
        raise Untrusted("another user's")
    return (folder / LIBRARY).read_bytes()


@pytest.mark.slow("race")
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not is_root, reason="only root can give files to another user")
@pytest.mark.parametrize("place", ["folder", "parent", "files", "link", "file links"])
def test_a_swapped_library_is_never_loaded(place: str, tmp_path: Path, record_property: Any) -> None:
    pairs = swaps(tmp_path / "cache", place)
    folder = tmp_path / "cache" / "kernels" / VERSION
    command = [sys.executable, "-c", SWAP, *(str(path) for pair in pairs for path in pair)]
    outcomes: Counter[str] = Counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as attacker:
        assert attacker.stdout is not None
        assert attacker.stdout.readline() == "ready\n"
        for _ in range(scaled(15_000)):
            outcomes[outcome(read_library, folder)] += 1
            outcomes["naive " + outcome(read_after_check, folder)] += 1
        printed, _ = attacker.communicate("end\n")
    assert attacker.returncode == 0
    record_property("starts", sum(number for name, number in outcomes.items() if not name.startswith("naive")))
    record_property("swaps", int(printed))
    record_property("outcomes", dict(outcomes))
    assert outcomes["foreign"] + outcomes["mixed"] == 0
    assert outcomes["ours"] > 0
    assert outcomes["refused"] > 0


def outcome(read: Any, folder: Path) -> str:
    try:
        data = read(folder)
    except (Untrusted, OSError):  # OSError: a link appeared after the check; the kernels are then not used
        return "refused"
    return "must compile" if data is None else "ours" if data == OURS else "foreign" if data == FOREIGN else "mixed"
