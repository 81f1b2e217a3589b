"""`elmo pretrain`: the exported model, the printed output, and errors."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from in_process_cli import run_in_process
from tiny_run import command, records, write_text

import elmo
from elmo.pretrain.config import make_config
from elmo.pretrain.data.prepared import open_prepared
from elmo.settings import read_toml

SENTENCES = [["w1", "w10", "unheard-of"], ["w3"]]


def arguments(text: Path, out: Path, *more: str) -> list[str]:
    """The command line after `python -m elmo`."""
    return command(text, out, *more)[3:]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text.txt")


def test_model_and_published_pair_load_and_agree(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "run"
    done = run_in_process(capsys, *arguments(text, out, "--json"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["step"], result["stopped"]) == (40, "finished")
    assert result["report"]["perplexity"]["reset"]["mean"] > 1
    assert "perplexity = exp(" in done.stderr
    assert {p.name for p in out.iterdir()} >= {"model", "published", "curve.svg", "report.json", "config.toml", "data"}
    ours = elmo.load(str(out / "model"), device="cpu").embed(SENTENCES)
    published = elmo.load(str(out / "published"), device="cpu").embed(SENTENCES)
    for a, b in zip(ours, published, strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert (out / "curve.svg").read_text().startswith("<svg")
    assert json.loads((out / "report.json").read_text())["step"] == 40


def test_a_run_that_stops_for_its_time_limit_prints_what_the_slurm_job_of_the_guide_looks_for(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "pretraining.md").read_text(encoding="utf-8")
    (wanted,) = re.findall(r"^grep -q '(.+)' stopped.json && scontrol requeue", guide, re.M)
    for limit, is_unfinished in (("0.01s", True), ("9h", False)):
        done = run_in_process(capsys, *arguments(text, tmp_path / limit, "--stop-after", limit, "--json"))
        assert done.returncode == 0, done.stderr  # the exit code does not tell, because torchrun would restart the run
        assert (wanted in done.stdout) == is_unfinished


def test_the_saved_config_repeats_the_run(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert run_in_process(capsys, *arguments(text, first, "--lr", "0.01", "--max-steps", "6")).returncode == 0
    settings = read_toml(first / "config.toml")
    assert make_config(settings).optim.lr == 0.01
    done = run_in_process(capsys, "pretrain", "--config", str(first / "config.toml"), "--out", str(second))
    assert done.returncode == 0, done.stderr
    assert records(first) == records(second)
    assert (first / "config.toml").read_text() == (second / "config.toml").read_text()


def test_number_of_characters_that_the_model_reads(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run_settings = ("--preset", "tiny", "--rows", "2", "--max-steps", "1", "--max-chars", "23", "--device", "cpu")
    done = run_in_process(capsys, "pretrain", str(text), "--out", str(tmp_path / "run"), *run_settings)
    assert done.returncode == 0, done.stderr
    chars = elmo.load(str(tmp_path / "run"), device="cpu").model.config.chars
    assert chars is not None
    assert chars.max_chars == 23
    assert open_prepared(tmp_path / "run" / "data").max_chars == 23


def test_words_and_a_tied_softmax(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "run"
    more = ["--words", "--set", "objective.tied=true", "--set", "objective.softmax=full", "--max-steps", "4"]
    done = run_in_process(capsys, *arguments(text, out, *more))
    assert done.returncode == 0, done.stderr
    vectors = elmo.load(str(out / "model"), device="cpu").embed(SENTENCES)
    assert np.isfinite(vectors[0]).all()


def test_dry_run_prints_an_estimate_and_writes_nothing(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    done = run_in_process(capsys, *arguments(text, tmp_path / "run", "--dry-run"))
    assert done.returncode == 0, done.stderr
    parts = ("tokens per epoch", "about 63 words", "parameters", "memory", "tokens/s", "GB free", "40 steps")
    for part in (*parts, " for the run", "this run about", "original about", "within an hour: ", "within a night: "):
        assert part in done.stdout, done.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--preset", "huge"], "'huge'"),
        (["--stop-after", "soon"], "'soon' is not a duration"),
        (["--set", "train.row=3"], "train.rows"),
        (["--set", "nothing"], "section.key=value"),
        (["--rows", "0"], "train.rows is 0"),
        (["--device", "abacus"], "abacus"),
        (["--set", "objective.tied=true"], "tied"),
        (["--words", "--max-chars", "60"], "--max-chars cannot be given with --words"),
        (["--dry-run", "--json"], "--dry-run prints its plan as text and not as --json"),
        (["--config", "missing.toml"], "missing.toml"),
    ],
)
def test_wrong_flags_are_errors_before_the_text_is_prepared(
    more: list[str], message: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    done = run_in_process(capsys, *arguments(text, tmp_path / "run", *more))
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "internal error" not in done.stderr
    assert not (tmp_path / "run" / "data").exists()


def test_a_run_on_standard_input_continues_without_it(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for steps in ("3", "6"):
        stdin = io.TextIOWrapper(io.BytesIO(text.read_bytes() if steps == "3" else b""))
        monkeypatch.setattr("sys.stdin", stdin)
        done = run_in_process(capsys, *arguments(Path("-"), tmp_path / "run", "--max-steps", steps))
        assert done.returncode == 0, done.stderr
    assert "continuing from step 3" in done.stderr


def test_no_text_and_missing_text_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    done = run_in_process(capsys, "pretrain", "--tokenize", "default", "--out", str(tmp_path / "run"))
    assert (done.returncode, "No text files were given" in done.stderr) == (2, True)
    done = run_in_process(capsys, "pretrain", str(tmp_path / "nothing*.txt"), "--out", str(tmp_path / "run"))
    assert done.returncode in (1, 2)
    assert "nothing*.txt" in done.stderr


def test_perplexity_of_heldout_files_by_source(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    heldout = [write_text(tmp_path / f"held{seed}.txt", 20, seed) for seed in (5, 6)]
    given = arguments(text, tmp_path / "run", "--max-steps", "3", "--json")
    given[given.index("--heldout") + 1] = ",".join(map(str, heldout))
    done = run_in_process(capsys, *given)
    assert done.returncode == 0, done.stderr
    perplexity = json.loads(done.stdout)["report"]["perplexity"]
    assert set(perplexity["by_source"]) == set(map(str, heldout))
    assert sum(p["predictions"] for p in perplexity["by_source"].values()) == perplexity["reset"]["predictions"]
