"""Pretraining on several languages: sampling, vocabulary, held-out text and perplexity of each, and exact resuming."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_process_cli import run_in_process
from tiny_run import MODEL, call, command, digest, records, settings, write_text

from elmo.errors import ConfigError, DataError, OutputError
from elmo.pretrain.bilm_training import train_bilm
from elmo.pretrain.config import RunConfig, make_config, to_toml
from elmo.pretrain.data.languages import count_occurrences, heldout_samples, sample_languages
from elmo.pretrain.data.prepare import prepare
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.data.stream import ContinuousStream
from elmo.pretrain.job import JobResult, pretrain
from elmo.settings import read_toml
from elmo.weights.store import read_store


def write_languages(folder: Path) -> dict[str, str]:
    """300 sentences of one language and 60 of another, whose words end in -x; returns their files."""
    large = write_text(folder / "large.txt", 300)
    small = write_text(folder / "small.txt", 60, seed=1)
    small.write_text("\n".join(" ".join(f"{w}x" for w in line.split()) for line in small.read_text().splitlines()))
    return {"aa": str(large), "bb": str(small)}


def prepared(folder: Path, **options: Any) -> PreparedData:
    config = {"files": (), "languages": write_languages(folder), "heldout": 0.1, **options}
    return prepare(PrepareConfig(**config), folder / "prepared", num_workers=1)


def language_run(folder: Path, out: str, *layers: dict[str, Any], **options: Any) -> JobResult:
    return pretrain(language_settings(folder, *layers), folder / out, num_workers=1, **options)


def language_settings(folder: Path, *layers: dict[str, Any]) -> RunConfig:
    text = {"data": {"files": [], "languages": write_languages(folder), "temperature": 3.0, "heldout": 0.1}}
    return settings("", text, *layers)


# ---- sampling


def test_shares_follow_the_temperature() -> None:
    large, small = sample_languages({"aa": 900, "bb": 100}, 2.0)
    # square roots 30 and 10: shares 3/4 and 1/4 of 1000 predictions
    assert (large.share, small.share) == pytest.approx((0.75, 0.25))
    assert (large.repetitions, small.repetitions) == pytest.approx((750 / 900, 250 / 100))
    assert [language.share for language in sample_languages({"aa": 900, "bb": 100}, 1e9)] == pytest.approx([0.5, 0.5])


def test_temperature_one_and_a_single_language_change_nothing() -> None:
    assert [language.repetitions for language in sample_languages({"aa": 7, "bb": 3}, 1.0)] == [1.0, 1.0]
    assert [language.repetitions for language in sample_languages({"aa": 7}, 5.0)] == [1.0]


def test_language_without_training_text_is_an_error() -> None:
    with pytest.raises(DataError, match="bb"):
        sample_languages({"aa": 7, "bb": 0}, 1.0)


@given(st.lists(st.floats(0.001, 50), min_size=1, max_size=4), st.integers(0, 2**64 - 1), st.integers(1, 30))
def test_sentences_are_read_as_often_as_expected_after_any_number_of_epochs(
    repetitions: list[float], key: int, num_epochs: int
) -> None:
    languages = np.arange(40) % len(repetitions)
    total = sum(count_occurrences(languages, repetitions, epoch, key) for epoch in range(num_epochs))
    expected = num_epochs * np.array(repetitions)[languages]
    assert (np.abs(total - expected) < 1 + 1e-6).all()


def test_an_epoch_reads_another_part_of_a_large_language_each_time(tmp_path: Path) -> None:
    data = prepared(tmp_path, temperature=4.0)
    large, small = data.languages
    assert large.repetitions < 1 < small.repetitions
    languages = np.asarray(data.train.shard_languages(0))
    epochs = [count_occurrences(languages, data.train.repetitions, epoch, 7) for epoch in range(2)]
    of_large = [set(np.flatnonzero((languages == 0) & (counts > 0))) for counts in epochs]
    assert of_large[0] != of_large[1]
    assert len(of_large[0] | of_large[1]) > len(of_large[0])


def word_share(batches: list[Any], data: PreparedData) -> float:
    """The share of predictions of the small language, whose words end in x, among words."""
    words = data.type_words(np.concatenate([batch.forward.inputs.ravel() for batch in batches]))
    counts = Counter(word.endswith("x") for word in words if word not in ("<S>", "</S>"))
    return counts[True] / sum(counts.values())


def test_stream_reads_languages_in_their_shares(tmp_path: Path) -> None:
    data = prepared(tmp_path, temperature=100.0)
    stream = ContinuousStream(data, 4, 10, seed=3)
    num_batches = round(6 * stream.positions_per_epoch / 40)  # six epochs
    assert word_share([next(stream) for _ in range(num_batches)], data) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("shuffle", [True, False])
def test_stream_of_sampled_languages_resumes_exactly(tmp_path: Path, shuffle: bool) -> None:
    data = prepared(tmp_path, temperature=5.0)
    stream, resumed = (ContinuousStream(data, 4, 10, seed=3, shuffle=shuffle, reset=0.5) for _ in range(2))
    for _ in range(150):  # past the first epoch
        next(stream)
    resumed.restore(stream.state())
    for _ in range(100):
        one, other = next(stream), next(resumed)
        for name in ("inputs", "targets", "resets"):
            assert (getattr(one.forward, name) == getattr(other.forward, name)).all()
            assert (getattr(one.backward, name) == getattr(other.backward, name)).all()


def test_position_of_another_temperature_is_refused(tmp_path: Path) -> None:
    state = ContinuousStream(prepared(tmp_path, temperature=5.0), 4, 10).state()
    data = prepare(
        PrepareConfig(files=(), languages=write_languages(tmp_path), heldout=0.1, temperature=2.0),
        tmp_path / "other",
        num_workers=1,
    )
    with pytest.raises(ConfigError, match="repetitions"):
        ContinuousStream(data, 4, 10).restore(state)


# ---- prepared text


def test_text_without_languages_is_prepared_as_before(tmp_path: Path) -> None:
    text = str(write_text(tmp_path / "text.txt"))
    data = prepare(PrepareConfig(files=(text,), heldout=0.1), tmp_path / "prepared", num_workers=1)
    # of the version before there were languages
    assert data.fingerprint == "7aaa45750e848d49a1ddee1bb954b40727ed3caa1c28424ff725467309603ea9"


def test_small_language_gets_words_of_a_limited_vocabulary(tmp_path: Path) -> None:
    def num_small_words(folder: Path, temperature: float) -> int:
        folder.mkdir()
        data = prepared(folder, temperature=temperature, max_vocab=63)
        assert data.order_score == pytest.approx(1.0)  # sorted by the weighted counts
        return sum(word.endswith("x") for word in data.vocab.words)

    plain, balanced = num_small_words(tmp_path / "1", 1.0), num_small_words(tmp_path / "2", 1000.0)
    assert plain < 15
    assert 25 <= balanced <= 35  # of 60 words


def test_every_language_has_held_out_text(tmp_path: Path) -> None:
    data = prepared(tmp_path, heldout=0.001)
    held = {source["language"]: source["heldout_sentences"] for source in data.manifest["sources"]}
    assert held == {"aa": 1, "bb": 1}


def test_a_language_without_held_out_text_and_one_with_far_too_much_give_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {"aa": ["one two three .\n"] * 30, "bb": ["one two .\n"] * 20 + ["two one .\n"] * 20}
    for name, lines in texts.items():
        (tmp_path / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    languages = {name: [str(tmp_path / f"{name}.txt")] for name in texts}
    data = prepare(PrepareConfig(files=(), languages=languages, heldout=0.1), tmp_path / "prepared", num_workers=1)
    held = {source["language"]: source["heldout_sentences"] for source in data.manifest["sources"]}
    assert held == {"aa": 0, "bb": 20}, "never all sentences of a language"
    assert "No sentence of aa is held out of 30, so that no perplexity is measured." in caplog.text
    assert (
        "20 of 40 sentences of bb are held out, not 10%, because equal sentences are held out together." in caplog.text
    )


def test_held_out_files_belong_to_languages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    test = write_text(tmp_path / "test.txt", 10, seed=5)
    data = prepared(tmp_path, heldout_languages={"bb": [str(test)]}, heldout=0.0)
    assert data.heldout.num_sentences == 10
    assert data.by_language({str(test): 1}) == {"bb": [1]}
    assert "held out" not in caplog.text, "the preflight warns of aa"
    assert data.unknown_shares() == {"bb": pytest.approx(0.0, abs=0.05)}  # words of the large language


def test_prepared_text_is_not_reused_for_other_languages_or_another_temperature(tmp_path: Path) -> None:
    prepared(tmp_path)
    files = write_languages(tmp_path)
    swapped = PrepareConfig(files=(), languages={"aa": files["bb"], "cc": files["aa"]}, heldout=0.1)
    with pytest.raises(OutputError):
        prepare(swapped, tmp_path / "prepared", num_workers=1)
    with pytest.raises(OutputError, match=r"temperature: 1\.0 then, 2\.0 now"):
        prepared(tmp_path, temperature=2.0)
    renamed = PrepareConfig(files=(), languages={"aa": files["aa"], "cc": files["bb"]}, heldout=0.1)
    with pytest.raises(OutputError, match="language bb then, cc now"):
        prepare(renamed, tmp_path / "prepared", num_workers=1)


def test_result_does_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    one = prepared(tmp_path, temperature=2.0)
    config = PrepareConfig(files=(), languages=write_languages(tmp_path), heldout=0.1, temperature=2.0)
    assert prepare(config, tmp_path / "two", num_workers=2).fingerprint == one.fingerprint


def test_samples_of_held_out_text_give_languages_equal_parts() -> None:
    sources = [
        {"path": "a", "language": "aa", "heldout_sentences": 100, "heldout_tokens": 1000},
        {"path": "b", "language": "bb", "heldout_sentences": 10, "heldout_tokens": 100},
        {"path": "c", "language": "aa", "heldout_sentences": 100, "heldout_tokens": 1000},
    ]
    # 100 words each: every 20th sentence of aa, all of bb
    assert heldout_samples(sources, 200) == {"a": range(0, 100, 20), "b": range(100, 110), "c": range(120, 210, 20)}
    assert heldout_samples(sources, None) == {"a": range(100), "b": range(100, 110), "c": range(110, 210)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"files": ("x.txt",), "languages": {"aa": "a.txt"}}, "have none"),
        ({"files": (), "languages": {"aa": "a.txt"}, "heldout_files": ("h.txt",)}, "have none"),
        ({"files": (), "languages": {"aa": "a.txt"}, "heldout_languages": {"bb": "h.txt"}}, "bb has held-out text"),
        ({"files": ("x.txt",), "temperature": 2.0}, "no languages"),
        ({"files": (), "languages": {"aa": "a.txt"}, "temperature": 0.5}, "at least 1"),
        ({"files": (), "languages": {"aa": "a.txt"}, "temperature": float("inf")}, "finite number"),
        ({"files": (), "languages": {"de": "a.txt", "DE": "b.txt"}}, "de and DE would be two languages"),
    ],
)
def test_contradictory_languages_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PrepareConfig(**options)


def test_file_of_two_languages_is_an_error(tmp_path: Path) -> None:
    text = str(write_text(tmp_path / "a.txt"))
    with pytest.raises(ConfigError, match="text of aa and of bb"):
        prepare(PrepareConfig(files=(), languages={"aa": text, "bb": text}), tmp_path / "prepared", num_workers=1)


def test_table_of_languages_in_toml(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[data]\ntemperature = 2\n[data.languages]\nde = "de.txt"\nfr = ["a", "b"]\n')
    config = make_config(read_toml(tmp_path / "run.toml"))
    assert config.data.languages == {"de": ("de.txt",), "fr": ("a", "b")}
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert make_config(read_toml(tmp_path / "again.toml")) == config
    with pytest.raises(ConfigError, match=r"data.temperature is inf; expected a finite number of at least 1\."):
        make_config({"data": {"languages": {"de": "de.txt"}, "temperature": float("inf")}})
    with pytest.raises(ConfigError, match=r"data.languages.de is 3"):
        make_config({"data": {"languages": {"de": 3}}})
    for table in ("languages", "heldout_languages"):
        with pytest.raises(ConfigError, match=rf"{table}\.fr names no files; expected at least one\."):
            make_config({"data": {"languages": {"de": "de.txt"}, table: {"de": "de.txt", "fr": []}}})
    with pytest.raises(ConfigError, match="expected letters"):
        make_config({"data": {"languages": {"de fr": "a"}}})


# ---- runs


def test_one_language_trains_exactly_as_text_without_languages(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    pretrain(settings(text), tmp_path / "plain", num_workers=1)
    named = {"data": {"files": [], "languages": {"aa": str(text)}, "temperature": 3.0}}
    pretrain(settings(text, named), tmp_path / "named", num_workers=1)
    assert digest(tmp_path / "plain") == digest(tmp_path / "named")


def test_run_reports_each_language(tmp_path: Path) -> None:
    lines: list[str] = []
    result = language_run(tmp_path, "run", say=lines.append)
    assert result.report is not None
    by_language = result.report["perplexity"]["by_language"]
    assert set(by_language) == {"aa", "bb"}
    total = result.report["perplexity"]["reset"]["predictions"]
    assert sum(row["predictions"] for row in by_language.values()) == total
    assert result.report["languages"]["bb"]["repetitions"] > 1
    assert sum(row["share"] for row in result.report["languages"].values()) == pytest.approx(1)
    assert any("perplexity by language, reset: aa " in line for line in lines)
    validations = [record["validation"] for record in records(tmp_path / "run") if "validation" in record]
    assert [set(validation["by_language"]) for validation in validations] == [{"aa", "bb"}] * 2
    means = validations[-1]["by_language"]
    assert min(means.values()) <= validations[-1]["reset"]["mean"] <= max(means.values())
    assert "bb" in (tmp_path / "run" / "languages.svg").read_text()
    model = read_store(tmp_path / "run" / "model")
    assert model.about["languages"] == ["aa", "bb"]
    assert model.card is not None
    assert "| bb |" in model.card


def test_interrupted_run_of_languages_continues_bit_for_bit(tmp_path: Path) -> None:
    language_run(tmp_path, "whole")
    stopped = language_run(tmp_path, "parts", {"train": {"max_tokens": 23 * 4 * 5}})
    assert (stopped.train.step, stopped.train.reason) == (23, "max tokens")
    finished = call(*command(Path(), Path())[:4], "--out", str(tmp_path / "parts"), "--set", "train.max_tokens=off")
    assert finished.returncode == 0, finished.stderr
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    weights = [(out / "checkpoints" / "step-00000040" / "model.safetensors").read_bytes() for out in (whole, parts)]
    assert weights[0] == weights[1]
    losses = [[record["forward"] for record in records(out) if "forward" in record] for out in (whole, parts)]
    assert losses[0] == losses[1]


def test_changed_languages_of_a_continued_run_are_refused(tmp_path: Path) -> None:
    language_run(tmp_path, "run", {"train": {"max_steps": 10}})
    out = tmp_path / "run"
    refused = call(*command(Path(), Path())[:4], "--out", str(out), "--temperature", "2", "--max-steps", "20")
    assert refused.returncode == 2
    assert "data.temperature 3.0 -> 2.0" in refused.stderr


def test_python_function_takes_files_by_language(tmp_path: Path) -> None:
    files = write_languages(tmp_path)
    result = train_bilm(
        {"aa": files["aa"], "bb": [files["bb"]]},
        out=tmp_path / "run",
        data={"temperature": 2.0, "heldout": 0.1},
        model=MODEL,
        train={"max_steps": 4, "rows": 4, "steps": 5, "device": "cpu"},
        num_workers=1,
    )
    assert result.report is not None
    assert set(result.report["perplexity"]["by_language"]) == {"aa", "bb"}


def test_command_line_prepares_and_estimates_languages(tmp_path: Path) -> None:
    files = write_languages(tmp_path)
    test = write_text(tmp_path / "test.txt", 10, seed=5)
    options = ["--language", f"aa={files['aa']}", "--language", f"bb={files['bb']}", "--temperature", "2"]
    plan = call(*command(Path(), Path())[:4], *options, "--preset", "tiny", "--dry-run", "--device", "cpu")
    assert plan.returncode == 0, plan.stderr
    assert "languages   2, temperature 2" in plan.stdout
    shown = call(
        *command(Path(), Path())[:3], "prepare", *options, "--heldout", f"bb={test}", "--json", "--out",
        str(tmp_path / "prepared"),
    )  # fmt: skip
    facts = json.loads(shown.stdout)
    assert facts["heldout_sentences"] == 10
    assert facts["share_of_aa"] + facts["share_of_bb"] == pytest.approx(1, abs=1e-3)
    wrong = call(*command(Path(), Path())[:4], "--language", "de.txt")
    assert wrong.returncode == 2
    assert "expected LANGUAGE=FILES" in wrong.stderr


@pytest.mark.parametrize(
    ("heldout", "message"),
    [
        ("aa={folder}/test.txt,bb=nofile.txt", "nofile.txt: no such file"),
        ("aa={folder}/large.txt,bb={folder}/small.txt", "large.txt is both training and held-out text"),
        ("aa=0.1,bb=0.2", "The held-out text of aa is 0.1; expected a file."),
    ],
)
def test_wrong_held_out_files_are_refused_by_a_dry_run_and_before_anything_is_written(
    heldout: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    files = write_languages(tmp_path)
    write_text(tmp_path / "test.txt", 10, seed=5)
    options = ["--language", f"aa={files['aa']}", "--language", f"bb={files['bb']}"]
    options += ["--heldout", heldout.format(folder=tmp_path)]
    run = ["pretrain", *options, "--out", str(tmp_path / "run"), "--preset", "tiny", "--device", "cpu"]
    for command_line in ([*run, "--dry-run"], run, ["prepare", *options, "--check"]):
        refused = run_in_process(capsys, *command_line)
        assert refused.returncode in (1, 2), refused.stderr
        assert message in refused.stderr
        assert ("--heldout 0.1" in refused.stderr) == ("0.1" in heldout)
        assert not (tmp_path / "run").exists()


def test_a_share_beside_held_out_files_is_refused_and_a_language_without_a_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    files, test = write_languages(tmp_path), write_text(tmp_path / "test.txt", 10, seed=5)
    table = "".join(f"{name} = ['{path}']\n" for name, path in files.items())
    heldout_table = f"[data.heldout_languages]\nbb = ['{test}']\n"
    run = ["pretrain", "--out", str(tmp_path / "run"), "--preset", "tiny", "--device", "cpu", "--max-steps", "1"]
    run += ["--workers", "1", "--rows", "4", "--config", str(tmp_path / "run.toml")]
    (tmp_path / "run.toml").write_text(f"[data]\nheldout = 0.3\n[data.languages]\n{table}{heldout_table}")
    for more in (["--dry-run"], []):
        refused = run_in_process(capsys, *run, *more)
        assert (refused.returncode, (tmp_path / "run").exists()) == (2, False)
        assert "data.heldout is 0.3 and held-out files are named; expected one of them." in refused.stderr
    (tmp_path / "run.toml").write_text(f"[data.languages]\n{table}{heldout_table}")
    warning = "warning: aa has no held-out file, so that its perplexity is not measured."
    planned = run_in_process(capsys, *run, "--dry-run")
    assert (planned.returncode, warning in planned.stdout) == (0, True)
    done = run_in_process(capsys, *run)
    assert (done.returncode, done.stderr.count(warning)) == (0, 1)
    assert "No sentence of" not in done.stderr


def test_the_held_out_option_replaces_what_a_file_of_settings_holds_out(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    text, test = write_text(tmp_path / "text.txt"), write_text(tmp_path / "test.txt", 10, seed=5)
    for setting, option in (("heldout = 0.3", str(test)), (f"heldout_files = ['{test}']", "0.3")):
        (tmp_path / "run.toml").write_text(f"[data]\nfiles = ['{text}']\n{setting}\n")
        planned = run_in_process(
            capsys, "pretrain", "--config", str(tmp_path / "run.toml"), "--heldout", option, "--dry-run", "--preset",
            "tiny", "--device", "cpu", "--out", str(tmp_path / "run"),
        )  # fmt: skip
        assert planned.returncode == 0, planned.stderr


@pytest.mark.parametrize("share", ["0.01", "0.3"])
@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_a_held_out_share_beside_held_out_files_of_languages_is_refused(
    verb: str, share: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    files, test = write_languages(tmp_path), write_text(tmp_path / "test.txt", 10, seed=5)
    table = "".join(f"{name} = ['{path}']\n" for name, path in files.items())
    (tmp_path / "run.toml").write_text(f"[data.languages]\n{table}[data.heldout_languages]\nbb = ['{test}']\n")
    arguments = [verb, *(["default"] if verb == "finetune" else []), "--config", str(tmp_path / "run.toml")]
    refused = run_in_process(capsys, *arguments, "--heldout", share, "--out", str(tmp_path / "run"))
    assert refused.returncode == 2
    message = f"--heldout {share} is a share of the text, and data.heldout_languages names held-out files."
    assert message in refused.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", ["prepare", "pretrain", "finetune"])
def test_a_held_out_share_that_is_also_a_file_is_refused_in_every_verb(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    write_text(tmp_path / "0.1", 10, seed=5)
    arguments = [verb, *(["default"] if verb == "finetune" else []), "text.txt", "--out", "out", "--heldout", "0.1"]
    refused = run_in_process(capsys, *arguments)
    assert refused.returncode == 2
    assert "--heldout 0.1: a file has this name, which is also a share of the text." in refused.stderr
    assert "Write ./0.1 for the file, or +0.1 for the share." in refused.stderr
    assert not (tmp_path / "out").exists()


def test_held_out_files_and_shares_of_elmo_prepare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt", 200)
    for number, name in enumerate(("0.01", "test.txt", "a,b.txt")):
        write_text(tmp_path / name, 10, seed=5 + number)

    def num_heldout(*values: str) -> int:
        more = [word for value in values for word in ("--heldout", value)]
        out = str(tmp_path / f"out{len(list(tmp_path.iterdir()))}")
        done = run_in_process(capsys, "prepare", "text.txt", *more, "--out", out, "--workers", "1", "--json")
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["heldout_sentences"])

    assert num_heldout("./0.01") == num_heldout("a,b.txt") == 10
    assert num_heldout("test.txt,./0.01") == num_heldout("test.txt", "./0.01") == 20
    assert num_heldout("+0.01") == num_heldout() < 10, "the default is a share, also beside a file named 0.01"


def test_a_language_without_a_measured_sentence_is_left_out_of_a_validation(tmp_path: Path) -> None:
    lines: list[str] = []
    language_run(tmp_path, "run", {"train": {"validate_words": 1, "max_steps": 20}}, say=lines.append)
    (validation,) = [record["validation"] for record in records(tmp_path / "run") if "validation" in record]
    assert set(validation["by_language"]) == {"aa"}
    assert validation["carried"]["predictions"] > 0, "one batch at least"
    (line,) = [line for line in lines if "perplexity by language" in line]
    assert "bb" not in line


def test_files_of_a_language_separated_by_commas_are_refused_with_a_hint_that_works(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    files = write_languages(tmp_path)
    refused = run_in_process(capsys, "prepare", "--language", f"aa={files['aa']},{files['bb']}", "--check")
    assert refused.returncode == 2
    hint = f"--language aa={files['aa']} --language aa={files['bb']}"
    assert f"Repeat the option for more files: {hint}" in refused.stderr
    checked = run_in_process(capsys, "prepare", *hint.split(), "--check", "--json")
    assert json.loads(checked.stdout)["num_files"] == 2
    odd = write_text(tmp_path / "a,b.txt", 30)
    assert run_in_process(capsys, "prepare", "--language", f"aa={odd}", "--check").returncode == 0


def test_languages_of_the_command_line_are_added_to_those_of_a_file_of_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    files, other = write_languages(tmp_path), write_text(tmp_path / "other.txt", 100, seed=2)
    (tmp_path / "run.toml").write_text("[data.languages]\n" + "".join(f"{n} = ['{p}']\n" for n, p in files.items()))
    planned = run_in_process(
        capsys, "pretrain", "--config", str(tmp_path / "run.toml"), "--language", f"cc={other}",
        "--dry-run", "--preset", "tiny", "--device", "cpu", "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert "languages   3" in planned.stdout
    for flags in (["pretrain"], ["finetune"], ["prepare"]):
        shown = " ".join(run_in_process(capsys, *flags, "--help").stdout.replace("│", " ").split())
        assert "other languages in the file of --config stay" in shown
