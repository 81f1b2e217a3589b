"""docs/tour.md names every file, and the paths that it draws are the paths that calls take."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from in_process_cli import run_in_process

import elmo

ROOT = Path(__file__).parents[1]
PACKAGE = Path(elmo.__file__).parent
TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
TEXT = "The cat sat on the mat .\nIt slept .\n"


def test_the_tables_of_the_tour_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "make_tour.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def drawn_path(name: str) -> list[str]:
    """The modules in the second column of the table below `<!-- path: name -->`."""
    table = TOUR.split(f"<!-- path: {name} -->")[1].split("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    return [module for row in rows for module in re.findall(r"`([\w/]+)`", row[2])]


def entered_modules(call: Callable[[], Any]) -> list[str]:
    """The modules of the package whose code `call` runs, in the order of their first function call."""
    order: dict[str, None] = {}

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            order.setdefault(path.relative_to(PACKAGE).with_suffix("").as_posix())

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(order)


def assert_path_is_taken(name: str, entered: list[str], *, in_order: bool) -> None:
    """Every module that the tour draws runs; `in_order`: first entered in the order of the table."""
    drawn = drawn_path(name)
    assert drawn
    missing = [module for module in drawn if module not in entered]
    assert not missing, f"the tour draws {missing}, which the call never enters; it enters {entered}"
    assert not in_order or [module for module in entered if module in drawn] == drawn, "the tour draws another order"


def test_the_cpu_path_is_the_one_that_embedding_takes() -> None:
    embedder = elmo.load("tiny-random", device="cpu")
    if type(embedder._executor).__name__ != "CpuExecutor":
        pytest.skip("this machine has no CPU kernels")
    embedder.embed("It slept .")  # packs the weights
    entered = entered_modules(lambda: embedder.embed("The cat sat ."))
    if "kernels/cpu/native" not in entered:
        pytest.skip("this machine has no compiled kernels")
    assert_path_is_taken("embed on the CPU", entered, in_order=True)


def test_the_reference_path_is_the_one_that_embedding_takes_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMO_KERNELS", "off")
    embedder = elmo.load("tiny-random", device="cpu")
    entered = entered_modules(lambda: embedder.embed("The cat sat ."))
    assert_path_is_taken("embed with the reference implementation", entered, in_order=True)
    assert not [module for module in entered if module.startswith("kernels/c")]


def test_the_path_of_a_file_is_the_one_that_elmo_embed_takes(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "in.txt").write_text(TEXT)
    arguments = ("embed", tmp_path / "in.txt", tmp_path / "out.hdf5", "--model", "tiny-random")
    entered = entered_modules(lambda: run_in_process(capsys, *map(str, arguments)))
    # some of these modules also check an earlier result before the first block is read
    assert_path_is_taken("embed a file", entered, in_order=False)


def test_the_pretraining_path_is_the_one_that_elmo_pretrain_takes(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "corpus.txt").write_text(TEXT * 200)
    flags = ("--preset", "tiny", "--max-steps", "2", "--rows", "4", "--workers", "1", "--set", "data.heldout=0.2")
    arguments = ("pretrain", str(tmp_path / "corpus.txt"), "--out", str(tmp_path / "run"), *flags)
    entered = entered_modules(lambda: run_in_process(capsys, *arguments))
    assert_path_is_taken("pretrain", entered, in_order=False)
