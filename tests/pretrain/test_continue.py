"""`elmo pretrain --out RUN` and `elmo finetune --out RUN` without other arguments continue the run in that folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from in_process_cli import Done, run_in_process
from tiny_run import command, digest, records, run, train_settings, write_text

from elmo.pretrain.continued import continued_config
from elmo.pretrain.data.prepared import open_prepared
from elmo.pretrain.data.sentence_order import SHUFFLE_WINDOW
from elmo.pretrain.finetune import REPORT_FILE
from elmo.pretrain.train.checkpoint import list_checkpoints


def pretrain(capsys: pytest.CaptureFixture, *arguments: str) -> Done:
    return run_in_process(capsys, "pretrain", *arguments)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the text and a finished run of 40 steps that keeps its checkpoints of every ten."""
    folder = tmp_path_factory.mktemp("continue")
    run(write_text(folder / "text.txt"), folder / "run", train_settings(keep=9))
    return folder


def interrupted(started: Path, out: Path) -> Path:
    """A copy of the run as it was after a kill at step 20, before validation, export and later checkpoints."""
    shutil.copytree(started / "run", out)
    for name in ("model", "published"):
        shutil.rmtree(out / name)
    for path in list_checkpoints(out / "checkpoints")[2:]:
        shutil.rmtree(path)
    (out / "report.json").unlink()
    return out


def test_out_alone_continues_an_interrupted_run_to_the_same_bits(
    started: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = interrupted(started, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    done = pretrain(capsys, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "continuing from step 20" in done.stderr
    assert digest(out) == digest(started / "run")


def test_out_alone_needs_no_text_files(started: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    text = write_text(tmp_path / "text.txt")
    run(text, tmp_path / "run", train_settings(max_steps=5))
    text.unlink()
    done = pretrain(capsys, "--out", str(tmp_path / "run"), "--max-steps", "7")
    assert done.returncode == 0, done.stderr
    assert records(tmp_path / "run")[-1]["step"] == 7


def test_dry_run_of_a_continued_run_counts_its_prepared_text(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    text = write_text(tmp_path / "text.txt")
    run(text, tmp_path / "run", train_settings(max_steps=2))
    text.unlink()
    done = pretrain(capsys, "--out", str(tmp_path / "run"), "--dry-run", "--epochs", "2")
    assert done.returncode == 0, done.stderr
    num_tokens = open_prepared(tmp_path / "run" / "data").train.num_positions
    assert f"1 files, 0.0 MB, about {num_tokens:,} tokens per epoch" in done.stdout
    assert "2.0 epochs" in done.stdout


def test_a_run_that_was_killed_while_its_text_was_prepared_continues(
    started: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    bad = tmp_path / "text.txt"
    bad.write_bytes(b"caf\xe9 .\n")
    command_line = command(bad, tmp_path / "run")[3:]
    assert run_in_process(capsys, *command_line).returncode == 1  # ends while the text is read
    write_text(bad)
    done = pretrain(capsys, "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert records(tmp_path / "run")[-1]["step"] == 40


def test_a_finished_run_says_so_and_is_not_changed(
    started: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "run"
    shutil.copytree(started / "run", out)
    times = {path: path.stat().st_mtime_ns for path in (out / "model").iterdir()}
    done = pretrain(capsys, "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    assert f"{out} is finished (finished, step 40)" in done.stderr
    assert json.loads(done.stdout)["report"]["perplexity"]["reset"]["mean"] > 1
    assert times == {path: path.stat().st_mtime_ns for path in (out / "model").iterdir()}


@pytest.mark.parametrize("flags", [["--max-steps", "60"], ["--epochs", "0.6"]])
def test_more_steps_continue_a_finished_run_and_the_learning_rate_is_stated(
    flags: list[str], started: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "run"
    shutil.copytree(started / "run", out)
    done = pretrain(capsys, "--out", str(out), *flags)
    assert done.returncode == 0, done.stderr
    last = records(out)[-1]["step"]
    assert last > 40
    assert f"a run of {last} steps, not of 40: at this step it changes from 8.00e-05 to " in done.stderr
    assert json.loads((out / "report.json").read_text())["step"] == last


def test_a_longer_run_without_decay_keeps_its_learning_rate(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    constant = {"optim": {"warmup": 0.0, "decay": "none"}}
    text = write_text(tmp_path / "text.txt")
    run(text, tmp_path / "short", constant, train_settings(max_steps=20))
    run(text, tmp_path / "long", constant)
    done = pretrain(capsys, "--out", str(tmp_path / "short"), "--max-steps", "40")
    assert "learning rate follows" not in done.stderr
    losses = [[r["forward"] for r in records(tmp_path / name) if "forward" in r] for name in ("short", "long")]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--heldout", "0.2"], "data.heldout 0.05 -> 0.2"),
        (["--preset", "tiny"], "preset small -> tiny"),
        (["--set", "model.lstm.cell_dim=14"], "model.lstm.cell_dim 12 -> 14"),
        (["--words"], "--words"),
        (["--seed", "3"], "seed 0 -> 3"),
    ],
)
def test_text_and_model_of_a_continued_run_cannot_change(
    flags: list[str], message: str, started: Path, capsys: pytest.CaptureFixture
) -> None:
    before = (started / "run" / "config.toml").read_bytes()
    done = pretrain(capsys, "--out", str(started / "run"), *flags)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert (started / "run" / "config.toml").read_bytes() == before


def test_a_folder_that_is_not_a_run_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for verb in ("pretrain", "finetune"):
        for folder, reason in ((tmp_path, "it has no config.toml"), (tmp_path / "none", "it does not exist")):
            done = run_in_process(capsys, verb, "--out", str(folder))
            assert done.returncode == 2
            assert f"{folder} is not the folder of a run: {reason}" in done.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("with_files", [False, True])
def test_a_run_of_an_earlier_version_continues(
    with_files: bool, started: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Its settings, its prepared text and its checkpoints do not have the keys that were added later."""
    out = interrupted(started, tmp_path / "run")
    added = ("validate_minutes", "checkpoint_minutes", "report_words")
    lines = (out / "config.toml").read_text().splitlines()
    kept = [line for line in lines if line.split(" = ")[0] not in (*added, "encoding")]
    assert len(kept) == len(lines) - 4
    (out / "config.toml").write_text("\n".join(kept) + "\n")
    manifest = json.loads((out / "data" / "manifest.json").read_text())
    del manifest["options"]["encoding"]
    (out / "data" / "manifest.json").write_text(json.dumps(manifest))
    for path in list_checkpoints(out / "checkpoints"):
        manifest = json.loads((path / "manifest.json").read_text())
        for name in added:
            del manifest["settings"]["train"][name]
        (path / "manifest.json").write_text(json.dumps(manifest))
    arguments = command(started / "text.txt", out)[4:] if with_files else ["--out", str(out)]
    done = pretrain(capsys, *arguments)
    assert done.returncode == 0, done.stderr
    assert "continuing from step 20 (step-00000020)" in done.stderr
    assert "minutes" not in done.stderr
    assert digest(out) == digest(started / "run")


def test_a_run_that_does_not_record_its_shuffle_window_is_read_shard_by_shard(started: Path, tmp_path: Path) -> None:
    out = interrupted(started, tmp_path / "run")
    assert continued_config(out).train.shuffle_window == SHUFFLE_WINDOW
    lines = (out / "config.toml").read_text().splitlines()
    (out / "config.toml").write_text("\n".join(line for line in lines if not line.startswith("shuffle_window")) + "\n")
    assert continued_config(out).train.shuffle_window == 0


def test_time_limit_of_an_earlier_call_is_not_taken_over(
    started: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = interrupted(started, tmp_path / "run")
    settings = (out / "config.toml").read_text()
    (out / "config.toml").write_text(settings.replace('stop_after = "off"', "stop_after = 1e-9"))
    done = pretrain(capsys, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert records(out)[-1]["step"] == 40


def test_finetuning_continues_with_its_recorded_model_and_options(
    started: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    text, out = write_text(tmp_path / "new.txt", 200, seed=5), tmp_path / "run"
    heldout = write_text(tmp_path / "held.txt", 20, seed=6)
    model = str(started / "run" / "model")
    options = ["--heldout", str(heldout), "--new-words", "3", "--rows", "4", "--device", "cpu", "--workers", "1"]
    small = ["--set", "train.steps=5", "--set", "objective.num_samples=16", "--max-steps", "6"]
    whole = run_in_process(capsys, "finetune", model, str(text), "--out", str(out), *options, *small)
    assert whole.returncode == 0, whole.stderr
    reference = digest(out)
    (out / REPORT_FILE).unlink()
    (out / "report.json").unlink()
    shutil.rmtree(out / "model")
    shutil.rmtree(out / "checkpoints")  # as if it had been killed before the first one
    text.unlink()
    done = run_in_process(capsys, "finetune", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    assert digest(out) == reference
    report = json.loads(done.stdout)
    assert report["after"]["reset"]["mean"] > 1
    again = run_in_process(capsys, "finetune", "--out", str(out), "--json")
    assert f"{out} is finished" in again.stderr
    assert json.loads(again.stdout)["after"] == report["after"]


def test_each_verb_names_the_other_for_its_runs(started: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    done = run_in_process(capsys, "finetune", "--out", str(started / "run"))
    assert (done.returncode, "elmo pretrain --out" in done.stderr) == (2, True)
    out = tmp_path / "run"
    shutil.copytree(started / "run", out)
    shutil.copy(out / "data" / "vocab.txt", out)  # `elmo finetune` writes it
    done = pretrain(capsys, "--out", str(out))
    assert (done.returncode, "elmo finetune --out" in done.stderr) == (2, True)
    done = run_in_process(capsys, "finetune", "--out", str(out))
    assert (done.returncode, "does not record its initial model" in done.stderr) == (2, True)
