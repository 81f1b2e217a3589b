"""Faults during training: full disks, non-finite gradients and unusual texts; and the stored loss curve."""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_run import digest, records, run, train_settings, write_text

from elmo.errors import DataError, ElmoError, OutputError
from elmo.pretrain.train.checkpoint import list_checkpoints, load_checkpoint
from elmo.pretrain.train.step import Trainer

sys.path.insert(0, str(Path(__file__).parent.parent / "fixtures"))
from make_loss_curve import loss_curve

CURVE = Path(__file__).parent.parent / "fixtures" / "loss_curve.json"


@contextmanager
def before_every_step(monkeypatch: pytest.MonkeyPatch, callback: Any) -> Iterator[None]:
    """Calls callback(step, trainer) before each step."""
    update = Trainer.update

    def update_with_callback(self: Trainer, inputs: Any, step: int) -> Any:
        callback(step, self)
        return update(self, inputs, step)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", update_with_callback)
        yield


# ---- disk full ----


@pytest.mark.parametrize("limit", [600, 6000])  # maximum bytes per file: too few for the log, too few for a checkpoint
def test_full_disk_ends_the_run_and_damages_no_checkpoint(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_text(tmp_path / "text.txt")
    run(text, tmp_path / "uninterrupted")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit_file_size(step: int, trainer: Trainer) -> None:
        if step == 25:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))

    out = tmp_path / "run"
    with before_every_step(monkeypatch, limit_file_size):
        try:
            with pytest.raises(OutputError, match="disk is full or a size limit") as error:
                run(text, out)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert error.value.exit_code == 1
    checkpoints = list_checkpoints(out / "checkpoints")
    assert [path.name for path in checkpoints] == ["step-00000010", "step-00000020"]
    for path in checkpoints:
        load_checkpoint(path)
    assert [path.name for path in (out / "checkpoints").iterdir() if path not in checkpoints] == []
    run(text, out)
    assert digest(out) == digest(tmp_path / "uninterrupted")


# ---- non-finite gradients ----


def multiply_next_loss(trainer: Trainer, value: float) -> None:
    """Multiplies the losses of the next step by `value` (NaN or infinity)."""
    losses = type(trainer).losses.__get__(trainer)

    def bad_losses(*args: Any) -> Any:
        good_losses, state = losses(*args)
        del trainer.losses
        return [loss * value for loss in good_losses], state

    trainer.losses = bad_losses


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_bad_steps_are_skipped_and_their_batches_saved(
    value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, out = write_text(tmp_path / "text.txt"), tmp_path / "run"
    with before_every_step(
        monkeypatch, lambda step, trainer: multiply_next_loss(trainer, value) if step in (5, 6, 12) else None
    ):
        result = run(text, out)
    assert result.train.step == 40
    assert [r["step"] for r in strict_records(out) if r.get("skipped")] == [6, 7, 13]
    saved = np.load(out / "bad_steps" / "step-00000006.npz")
    assert saved["forward"].shape == saved["backward"].shape == (4, 5)
    for path in list_checkpoints(out / "checkpoints"):
        assert all(bool(t.isfinite().all()) for t in load_checkpoint(path)[0].values())


def strict_records(out: Path) -> list[dict[str, Any]]:
    """The records of metrics.jsonl, which must not contain NaN or Infinity, because these are not valid JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in metrics.jsonl")

    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def test_too_many_bad_steps_end_the_run_with_an_undamaged_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, out = write_text(tmp_path / "text.txt"), tmp_path / "run"
    with before_every_step(
        monkeypatch, lambda step, trainer: multiply_next_loss(trainer, math.nan) if step >= 24 else None
    ):
        with pytest.raises(ElmoError, match="3 steps in a row") as error:
            run(text, out, train_settings(max_bad_steps=3))
    assert error.value.exit_code == 1
    assert len(list((out / "bad_steps").iterdir())) == 3
    newest = list_checkpoints(out / "checkpoints")[-1]
    weights, training, _ = load_checkpoint(newest)
    assert newest.name == "step-00000020"
    assert all(bool(t.isfinite().all()) for t in (*weights.values(), training["h"], training["c"]))
    assert run(text, out, train_settings(max_bad_steps=3)).train.step == 40


# ---- unusual texts ----


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        pytest.param(["word"], 1, id="one token"),
        pytest.param(["a b c"], 1, id="a sentence shorter than the unroll"),
        pytest.param(["a b c"] * 3, 4, id="few sentences"),
        pytest.param(["a " * 500], 4, id="one long sentence"),
        pytest.param(["", "a b", "", "", "c", ""], 2, id="blank lines"),
    ],
)
def test_small_texts_train_to_a_finite_perplexity(lines: list[str], rows: int, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    heldout = tmp_path / "heldout.txt"
    heldout.write_text("a\n", encoding="utf-8")
    data = {"data": {"heldout_files": [str(heldout)], "heldout": 0.0, "min_count": 1}}
    result = run(text, tmp_path / "run", data, train_settings(rows=rows, steps=20, max_steps=5, epochs=1.0))
    assert result.report is not None
    for kind in ("reset", "carried"):
        assert 0 < result.report["perplexity"][kind]["mean"] < 1e6


def test_run_without_heldout_text_exports_the_last_weights(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    result = run(text, tmp_path / "run", {"data": {"heldout": 0.0}})
    assert result.model is not None
    assert result.train.best is None
    assert "perplexity" not in (result.report or {})


def test_error_for_more_rows_than_text_names_the_option(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b\n", encoding="utf-8")
    with pytest.raises(DataError, match="3 positions for 128 rows") as error:
        run(text, tmp_path / "run", train_settings(rows=128))
    assert "--rows" in error.value.hint


@pytest.mark.parametrize("num_tokens", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_one_line_of_many_tokens(num_tokens: int, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c d e f g h i j " * (num_tokens // 10) + "\n", encoding="utf-8")
    result = run(text, tmp_path / "run", {"data": {"heldout": 0.0}}, train_settings(max_steps=3))
    assert result.train.step == 3
    assert all(math.isfinite(r["forward"]) for r in records(tmp_path / "run"))


# ---- stable numbers, memory and files ----


def test_loss_curve_equals_the_stored_one() -> None:
    stored = json.loads(CURVE.read_text())
    if stored["torch"] != torch.__version__.split("+")[0]:
        pytest.skip(f"the curve was computed with torch {stored['torch']}")
    curve = loss_curve()
    for kind in ("forward", "backward"):
        np.testing.assert_allclose(curve[kind], stored[kind], rtol=1e-6, err_msg=kind)


@pytest.mark.slow("soak")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_and_open_files_do_not_grow_over_2000_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples: list[tuple[int, int, int]] = []  # step, memory pages, open files

    def sample(step: int, trainer: Trainer) -> None:
        if step % 100 == 99:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            samples.append((step, pages, len(os.listdir("/proc/self/fd"))))

    text = write_text(tmp_path / "text.txt", 2000)
    with before_every_step(monkeypatch, sample):
        run(text, tmp_path / "run", train_settings(max_steps=2000, checkpoint_every=50, validate_every=100))
    after_warmup = [entry for entry in samples if entry[0] > 200]
    memory, files = [entry[1] for entry in after_warmup], [entry[2] for entry in after_warmup]
    assert max(memory) <= 1.03 * memory[0]
    assert max(files) <= files[0] + 1
