"""Measurements of perplexity: each file once, with progress; at the end of a run bounded, announced, interruptible."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from in_process_cli import run_in_process
from tiny_run import digest, run, train_settings, write_text

import elmo
from elmo.model.head import SoftmaxHead


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the text of a run, the run, and two other texts with the same name."""
    folder = tmp_path_factory.mktemp("measuring")
    run(write_text(folder / "text.txt"), folder / "run", train_settings(max_steps=5))
    for number in (1, 2):
        (folder / str(number)).mkdir()
        write_text(folder / str(number) / "text.txt", 30 * number, seed=number)
    return folder


def measure(capsys: pytest.CaptureFixture, trained: Path, *files: Path) -> tuple[dict[str, Any], str]:
    names = [str(path) for path in files]
    done = run_in_process(capsys, "perplexity", str(trained / "run" / "model"), *names, "--json", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_several_files_are_measured_once_and_combined_from_their_sums(
    trained: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file was measured twice: by itself, and with all others."""
    scored = []
    log_probs = SoftmaxHead.log_probs

    def counting(head: SoftmaxHead, hidden: Any, words: Any, **options: Any) -> Any:
        scored.append(len(words))
        return log_probs(head, hidden, words, **options)

    monkeypatch.setattr(SoftmaxHead, "log_probs", counting)
    files = [trained / "1" / "text.txt", trained / "2" / "text.txt"]
    together, _ = measure(capsys, trained, *files)
    predictions = [together[kind]["predictions"] for kind in ("reset", "carried")]
    assert sum(scored) == 2 * sum(predictions), "two directions of each"
    monkeypatch.undo()
    separate = [measure(capsys, trained, path)[0] for path in files]
    assert [together["by_source"][str(path)]["reset"] for path in files] == [one["reset"] for one in separate]
    for kind in ("reset", "carried"):
        counts = [one[kind]["predictions"] for one in separate]
        assert together[kind]["predictions"] == sum(counts)
        for direction in ("forward", "backward"):
            nats = sum(n * math.log(one[kind][direction]) for n, one in zip(counts, separate, strict=True))
            assert together[kind][direction] == pytest.approx(math.exp(nats / sum(counts)))
        both = together[kind]["forward"] * together[kind]["backward"]
        assert together[kind]["mean"] == pytest.approx(math.sqrt(both))
    assert together["words"] == sum(one["words"] for one in separate)
    unknown = sum(one["unknown"] * one["words"] for one in separate)
    assert together["unknown"] == pytest.approx(unknown / together["words"])


def test_perplexity_shows_its_progress(
    trained: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count(step=10)
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    report, stderr = measure(capsys, trained, trained / "1" / "text.txt", trained / "2" / "text.txt")
    total = 2 * report["reset"]["predictions"]
    assert f"of {total:,} predictions" in stderr
    assert "s left" in stderr or ":" in stderr.split(" left")[0][-6:]


def test_end_of_a_run_measures_a_bounded_number_of_words_and_says_so(tmp_path: Path) -> None:
    text, lines = write_text(tmp_path / "text.txt"), []
    held = {"data": {"heldout": 0.5}}
    bounded = run(text, tmp_path / "run", held, train_settings(max_steps=2, report_words=100), say=lines.append)
    assert bounded.report is not None
    announced = next(line for line in lines if "measuring its perplexity on about" in line)
    assert "Ctrl-C loses this measurement alone" in announced
    few = bounded.report["perplexity"]["reset"]["predictions"]
    assert 50 <= few <= 250
    again = run(text, tmp_path / "run", held, train_settings(max_steps=2, report_words=100), say=lines.append)
    assert again.report == bounded.report
    full = run(text, tmp_path / "run", held, train_settings(max_steps=2, report_words=None))
    assert full.report is not None
    assert full.report["perplexity"]["reset"]["predictions"] > 4 * few
    sources = full.report["perplexity"]["by_source"].values()
    assert sum(one["predictions"] for one in sources) == full.report["perplexity"]["reset"]["predictions"]
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "Held-out perplexity, reset" in card


def test_model_is_complete_before_it_is_measured(tmp_path: Path) -> None:
    text, out = write_text(tmp_path / "text.txt"), tmp_path / "run"
    run(text, tmp_path / "whole")

    def interrupt(line: str) -> None:
        if "measuring its perplexity" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(text, out, say=interrupt)
    assert not (out / "report.json").exists()
    assert digest(out) == digest(tmp_path / "whole")
    vectors = elmo.load(str(out / "model"), device="cpu").embed([["w1", "w2"]])
    assert vectors[0].shape[0] == 2
    result = run(text, out)  # the same command measures it
    assert result.report is not None
    assert result.report["perplexity"]["reset"]["mean"] > 1
