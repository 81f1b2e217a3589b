"""Resuming a run after kills, signals, damaged checkpoints and changed settings."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from scale import scaled
from tiny_run import ENVIRONMENT, digest, records, run, train_settings, write_text

from elmo.errors import DataError, ElmoError, OutputError
from elmo.pretrain.job import lock_run_folder
from elmo.pretrain.train.checkpoint import load_checkpoint, newest_sound

DRIVER = Path(__file__).parent / "kill_train.py"


def drive(test: str, folder: Path, count: int) -> int:
    """Runs one test of kill_train.py in a separate process; returns how many processes it killed."""
    arguments = [sys.executable, str(DRIVER), test, str(folder), str(count)]
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.split()[-2])


def test_run_killed_at_steps_ends_bit_identical(tmp_path: Path) -> None:
    drive("steps", tmp_path, 5)


@pytest.mark.slow("kills")
@pytest.mark.timeout(3600)
def test_runs_killed_at_random_times_end_bit_identical(tmp_path: Path, record_property: Any) -> None:
    record_property("kills", drive("moments", tmp_path, scaled(20)))


def test_kill_while_saving_loses_no_checkpoint(tmp_path: Path) -> None:
    drive("saves", tmp_path, 8)


@pytest.mark.slow("kills")
@pytest.mark.timeout(3600)
def test_many_kills_while_saving_lose_no_checkpoint(tmp_path: Path, record_property: Any) -> None:
    record_property("kills", drive("saves", tmp_path, scaled(60)))


def test_signals_save_a_checkpoint_and_the_run_resumes(tmp_path: Path) -> None:
    drive("signals", tmp_path, 2)


@pytest.mark.slow
def test_suspended_run_stops_after_its_time_limit(tmp_path: Path) -> None:
    drive("sleep", tmp_path, 1)


# ---- damaged checkpoints ----


def flip_a_byte(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate_a_file(folder: Path) -> None:
    path = folder / "training.pt"
    path.write_bytes(path.read_bytes()[:-100])


def delete_the_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def empty_a_file(folder: Path) -> None:
    (folder / "training.pt").write_bytes(b"")


def make_unreadable(folder: Path) -> None:
    (folder / "model.safetensors").chmod(0)


DAMAGES = [flip_a_byte, truncate_a_file, delete_the_manifest, empty_a_file, make_unreadable]


@pytest.fixture(scope="module")
def finished() -> Iterator[tuple[Path, Path]]:
    """The text and the folder of a run of 40 steps with checkpoints at 30 and 40, readable by every user."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        text = write_text(folder / "text.txt")
        run(text, folder / "run")
        yield text, folder / "run"


@contextmanager
def as_unprivileged_user() -> Iterator[None]:
    """Switches root, who may read everything, to the user nobody."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_newest_checkpoint_is_named_and_skipped(
    damage: Callable[[Path], None], finished: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    source = finished[1] / "checkpoints"
    checkpoints = source.with_name(f"checkpoints-{damage.__name__}")
    shutil.copytree(source, checkpoints)
    for path in checkpoints.rglob("*.*"):
        path.chmod(0o644)
    damage(checkpoints / "step-00000040")
    with as_unprivileged_user(), caplog.at_level(logging.WARNING):
        newest = newest_sound(checkpoints)
        with pytest.raises(DataError, match="step-00000040"):
            newest_sound(checkpoints, strict=True)
    assert newest is not None
    assert newest[0].name == "step-00000030"
    assert "step-00000040" in caplog.text


def test_run_with_a_damaged_checkpoint_ends_bit_identical(finished: tuple[Path, Path], tmp_path: Path) -> None:
    text, source = finished
    out = tmp_path / "run"
    shutil.copytree(source, out)
    flip_a_byte(out / "checkpoints" / "step-00000040")
    with pytest.raises(DataError, match="step-00000040"):
        run(text, out, strict_resume=True)
    status_lines: list[str] = []
    run(text, out, say=status_lines.append)
    assert any("continuing from step 30" in line for line in status_lines)
    assert digest(out) == digest(source)
    load_checkpoint(out / "checkpoints" / "step-00000040")


def test_damaged_checkpoint_is_replaced_and_two_undamaged_ones_remain(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    text, source = finished
    out = tmp_path / "run"
    shutil.copytree(source, out)
    flip_a_byte(out / "checkpoints" / "step-00000040")
    run(text, out, train_settings(max_steps=35))
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step-00000030", "step-00000035"]


def test_run_whose_checkpoints_are_all_damaged_does_not_start_over(finished: tuple[Path, Path], tmp_path: Path) -> None:
    text, source = finished
    out = tmp_path / "run"
    shutil.copytree(source, out)
    for path in (out / "checkpoints").iterdir():
        flip_a_byte(path)
    with pytest.raises(DataError, match="All 2 checkpoints"):
        run(text, out)
    assert len(records(out)) > 40


# ---- changed settings ----


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"train": {"seed": 1}}, "seed 0 -> 1"),
        ({"model": {"lstm": {"cell_dim": 14}}}, r"model.lstm.cell_dim 12 -> 14"),
        ({"objective": {"dropout": 0.2}}, r"objective.dropout 0.1 -> 0.2"),
        ({"train": {"rows": 8}}, "rows 4 -> 8"),
        ({"optim": {"name": "adagrad"}}, "optimizer adamw -> adagrad"),
        ({"data": {"max_vocab": 30}}, "max_vocab"),
    ],
)
def test_changed_identity_is_refused_with_the_difference(
    changes: dict[str, Any], difference: str, finished: tuple[Path, Path]
) -> None:
    text, out = finished
    before = (out / "config.toml").read_text()
    with pytest.raises(ElmoError) as error:
        run(text, out, changes)
    assert difference in str(error.value)
    assert (out / "config.toml").read_text() == before


def test_changed_text_is_refused(finished: tuple[Path, Path], tmp_path: Path) -> None:
    source = finished[1]
    other = write_text(tmp_path / "text.txt", seed=1)
    before = (source / "metrics.jsonl").read_bytes()
    with pytest.raises(ElmoError, match=r"text\.txt"):
        run(other, source)
    assert (source / "metrics.jsonl").read_bytes() == before


def test_changed_learning_rate_is_allowed_and_printed(finished: tuple[Path, Path], tmp_path: Path) -> None:
    text, source = finished
    out = tmp_path / "run"
    shutil.copytree(source, out)
    status_lines: list[str] = []
    run(text, out, train_settings(max_steps=45), {"optim": {"lr": 0.001}}, say=status_lines.append)
    assert any("optim.lr 0.004 -> 0.001" in line for line in status_lines)
    assert "lr = 0.001" in (out / "config.toml").read_text()
    assert [r["step"] for r in records(out) if "forward" in r] == list(range(1, 46))


def test_finished_run_is_not_changed(finished: tuple[Path, Path], tmp_path: Path) -> None:
    text, source = finished
    out = tmp_path / "run"
    shutil.copytree(source, out)
    assert run(text, out).train.step == 40
    assert digest(out) == digest(source)


def test_precision_may_change(finished: tuple[Path, Path], tmp_path: Path) -> None:
    text, source = finished
    out = tmp_path / "run"
    shutil.copytree(source, out)
    assert run(text, out, train_settings(max_steps=42, precision="bfloat16")).train.step == 42
    assert run(text, out, train_settings(max_steps=44)).train.step == 44


# ---- limits ----


def test_run_saves_and_exports_at_its_time_limit_and_resumes(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    first = run(text, tmp_path / "run", train_settings(max_steps=5000, stop_after=0.2))
    assert first.train.reason == "time is up"
    assert first.model is not None
    assert 0 < first.train.step < 5000
    second = run(text, tmp_path / "run", train_settings(max_steps=5000, stop_after=0.2))
    assert second.train.step > first.train.step


def test_max_tokens_and_patience_stop_the_run(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    result = run(text, tmp_path / "tokens", train_settings(max_tokens=201))
    assert (result.train.step, result.train.reason) == (11, "max tokens")  # 20 tokens per step
    settings = train_settings(patience=2, validate_every=5, max_steps=500), {"optim": {"lr": 1e-12}}
    stopped = run(text, tmp_path / "patience", *settings)
    assert stopped.train.reason == "early stop"
    assert stopped.train.best is not None
    assert stopped.train.step == stopped.train.best["step"] + 10


def test_only_the_best_weights_are_stored_and_exported(tmp_path: Path) -> None:
    """The learning rate makes the model worse towards the end; the exported model is that of the best validation."""
    text, out = write_text(tmp_path / "text.txt"), tmp_path / "run"
    high_rate = {"optim": {"lr": 3.0, "warmup": 0.9, "decay": "none", "clip_norm": 1000.0}}
    result = run(text, out, train_settings(validate_every=5, max_steps=60), high_rate)
    assert result.report is not None
    validations = [r["validation"]["reset"]["mean"] for r in records(out) if "validation" in r]
    assert result.report["perplexity"]["reset"]["mean"] == pytest.approx(min(validations), rel=1e-5)
    assert validations[-1] > min(validations)
    assert [path.name for path in (out / "best").iterdir()] == [f"step-{result.train.best['step']:08d}.safetensors"]


# ---- one process per run folder ----


def test_second_process_gets_an_error_that_names_the_first(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    with lock_run_folder(tmp_path / "run"):
        with pytest.raises(OutputError, match=f"process {os.getpid()} on "):
            run(text, tmp_path / "run")


def test_lock_of_a_dead_process_is_ignored(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").write_text("process 999999 on elsewhere")
    assert run(text, tmp_path / "run", train_settings(max_steps=2)).train.step == 2


def test_folder_that_cannot_be_written_is_an_output_error() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = write_text(folder / "text.txt")
        (folder / "run").mkdir()
        (folder / "run").chmod(0o555)
        folder.chmod(0o755)
        with as_unprivileged_user(), pytest.raises(OutputError, match="cannot be written"):
            run(text, folder / "run")
