"""Fine-tuning on text of a new domain: vocabulary, softmax rows, and perplexity before and after in both domains."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from in_process_cli import run_in_process
from tiny_run import settings, write_text

import elmo
from elmo.embed.lm import LanguageModel
from elmo.errors import ConfigError, OutputError
from elmo.model.config import HeadConfig
from elmo.model.head import AdaptiveHead, SoftmaxHead
from elmo.pretrain.adaptation import adapt_model, adapt_vocabulary
from elmo.pretrain.config import RunConfig, TrainConfig, head_only_steps
from elmo.pretrain.continued import continued_config
from elmo.pretrain.finetune import finetune
from elmo.pretrain.job import pretrain
from elmo.run_folder import lock_run_folder
from elmo.settings import parse_assignment, read_toml
from elmo.text.vocab import Vocabulary
from elmo.weights.convert import drop_head
from elmo.weights.model_parts import ModelParts, build
from elmo.weights.store import read_store, save_store


def write_domain(path: Path, num_sentences: int = 300) -> Path:
    """Writes text of a new domain: words of the old text with other frequencies, and frequent new words (v0 ... v5)."""
    rng = np.random.default_rng(1)
    lines = []
    for _ in range(num_sentences):
        words = [f"v{rng.integers(6)}" if rng.random() < 0.4 else f"w{50 + rng.integers(6)}" for _ in range(8)]
        lines.append(" ".join(words))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    """A folder with a trained model, text of its domain, and text of a new domain."""
    folder = tmp_path_factory.mktemp("finetune")
    pretrain(settings(write_text(folder / "old.txt")), folder / "run")
    write_text(folder / "old_test.txt", 40, seed=9)
    write_domain(folder / "new.txt")
    write_domain(folder / "new_test.txt", 40)
    return folder


def domain_run(workspace: Path, **train) -> RunConfig:
    data = {"heldout_files": [str(workspace / "new_test.txt")], "heldout": 0.0}
    return settings(
        workspace / "new.txt", {"data": data, "train": {"validate_every": 0, **train}, "optim": {"lr": 0.01}}
    )


def test_vocabulary_keeps_old_words_adds_frequent_new_ones_and_follows_the_domain(workspace: Path) -> None:
    parts = read_store(workspace / "run" / "model")
    vocab, coverage = adapt_vocabulary(parts, domain_run(workspace), 100, 5, 1)
    assert vocab[:3] == ["<S>", "</S>", "<UNK>"]
    assert set(parts.vocab) <= set(vocab)
    assert {f"v{k}" for k in range(6)} <= set(vocab)
    assert coverage.new_words == len(vocab) - len(parts.vocab)
    assert coverage.before < 0.7 < coverage.after == 1.0
    text = (workspace / "new.txt").read_text().split()
    counts = [text.count(word) for word in vocab[3:]]
    assert counts == sorted(counts, reverse=True)


def test_rows_of_old_words_are_copied_and_new_rows_are_means_of_them(workspace: Path) -> None:
    parts = read_store(workspace / "run" / "model")
    source = build(parts)
    vocab = [*parts.vocab[:3], "w7x", *parts.vocab[3:]]
    model = adapt_model(parts, vocab)
    assert isinstance(model.head, SoftmaxHead)
    assert isinstance(source.head, SoftmaxHead)
    old = Vocabulary(parts.vocab)
    for number, word in enumerate(vocab):
        if word in old:
            torch.testing.assert_close(model.head.weight[number], source.head.weight[old.id(word)])
            torch.testing.assert_close(model.head.bias[number], source.head.bias[old.id(word)])
    new, rows = model.head.weight[3], source.head.weight
    assert bool(
        ((new >= rows.min(dim=0).values) & (new <= rows.max(dim=0).values)).all()
    )  # a mean of rows of old words
    for name, tensor in source.state_dict().items():
        if not name.startswith("head."):
            torch.testing.assert_close(model.state_dict()[name], tensor)


def test_fine_tuning_lowers_perplexity_in_the_new_domain_and_reports_both(workspace: Path, tmp_path: Path) -> None:
    parts = read_store(workspace / "run" / "model")
    run = domain_run(workspace, max_steps=60)
    also, lines = (str(workspace / "old_test.txt"),), list[str]()
    result, report = finetune(parts, run, tmp_path, also=also, num_workers=1, say=lines.append)
    assert [line.partition(" ")[0] for line in lines if "for the run" in line] == ["estimate:"]  # and no presets
    before, after = report["before"]["by_source"], report["after"]["by_source"]
    assert set(before) == {"new_test.txt", "old_test.txt"}
    assert after["new_test.txt"]["reset"]["mean"] < 0.6 * before["new_test.txt"]["reset"]["mean"]
    assert report["coverage"]["new_words"] == 6
    assert json.loads((tmp_path / "finetune.json").read_text())["after"] == report["after"]
    assert result.model is not None
    tuned = elmo.load(result.model)
    assert "v3" in tuned.vocab
    stored = read_store(result.model)
    assert stored.about["finetuned_from"] == "run/model"
    assert "Fine-tuned from the model `run/model`" in stored.card
    assert "- Sources: new.txt; held out: new_test.txt." in stored.card


def test_word_counts_are_those_of_the_text_before_and_of_the_new_text(workspace: Path, tmp_path: Path) -> None:
    parts = read_store(workspace / "run" / "model")
    result, _ = finetune(parts, domain_run(workspace, max_steps=1), tmp_path, num_workers=1)
    assert result.model is not None
    tuned, text = read_store(result.model), (workspace / "new.txt").read_text().split()
    before = dict(zip(parts.vocab, parts.word_counts.tolist(), strict=True))
    after = dict(zip(tuned.vocab, tuned.word_counts.tolist(), strict=True))
    words = [word for word in tuned.vocab if word not in ("<S>", "</S>", "<UNK>")]
    assert {word: after[word] for word in words} == {word: before.get(word, 0) + text.count(word) for word in words}


@pytest.fixture(scope="module")
def adaptive_model(workspace: Path) -> Path:
    """A trained model with an adaptive softmax of two clusters."""
    changes = {"objective": {"softmax": "adaptive", "cutoffs": [20, 40]}, "model": {"lstm": {"proj_dim": 16}}}
    result = pretrain(settings(workspace / "old.txt", changes), workspace / "adaptive")
    assert result.model is not None
    return result.model


def test_an_adaptive_softmax_keeps_its_clusters_and_new_words_join_the_last(adaptive_model: Path) -> None:
    parts = read_store(adaptive_model)
    source, vocab = build(parts), [*parts.vocab, "w7x", "v1"]
    model = adapt_model(parts, vocab)
    assert isinstance(model.head, AdaptiveHead)
    last = "softmax.tail.1.1.weight"
    old, new = source.head.state_dict(), model.head.state_dict()
    assert new[last].shape == (len(vocab) - 40, 1)
    assert torch.equal(new[last][:-2], old[last])
    assert bool(((new[last][-2:] >= old[last].min()) & (new[last][-2:] <= old[last].max())).all())  # means of old rows
    assert all(torch.equal(new[name], old[name]) for name in old if name != last)
    hidden = torch.randn(5, 16)
    known = torch.arange(40)  # the frequent words and the first cluster are as likely as before
    torch.testing.assert_close(model.head.all_log_probs(hidden)[:, known], source.head.all_log_probs(hidden)[:, known])


def test_a_model_with_an_adaptive_softmax_is_fine_tuned(workspace: Path, adaptive_model: Path, tmp_path: Path) -> None:
    parts, run = read_store(adaptive_model), domain_run(workspace, max_steps=60)
    vocab, coverage = adapt_vocabulary(parts, run, 100, 5, 1)
    assert vocab[: len(parts.vocab)] == list(parts.vocab)
    assert coverage.new_words == len(vocab) - len(parts.vocab) == 6
    result, report = finetune(parts, run, tmp_path, num_workers=1)
    assert report["after"]["reset"]["mean"] < 0.8 * report["before"]["reset"]["mean"]
    assert result.model is not None
    head = read_store(result.model).config.head
    assert head == HeadConfig(vocab_size=len(vocab), kind="adaptive", cutoffs=(20, 40))
    continued = continued_config(tmp_path, {"train": {"max_steps": 62}}, finetuning=True)
    again, _ = finetune(parts, continued, tmp_path, continued=True, num_workers=1)
    assert again.train.step == 62


def test_another_kind_of_softmax_is_refused(workspace: Path, adaptive_model: Path, tmp_path: Path, capsys) -> None:
    for model, kind in ((adaptive_model, "full"), (workspace / "run" / "model", "adaptive")):
        command = ["finetune", str(model), str(workspace / "new.txt"), "--out", str(tmp_path / "run")]
        done = run_in_process(capsys, *command, "--set", f"objective.softmax={kind}")
        assert done.returncode == 2
        assert f"objective.softmax is '{kind}', but the softmax of the model to start from is" in done.stderr
        assert not (tmp_path / "run").exists()


def test_an_adaptive_softmax_is_refused_for_a_model_that_has_none(workspace: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    save_store(bare, drop_head(read_store(workspace / "run" / "model")))
    with pytest.raises(ConfigError, match="has no softmax, and its new one is not adaptive"):
        elmo.finetune_bilm(bare, workspace / "new.txt", out=tmp_path / "run", objective={"softmax": "adaptive"})


def test_a_sample_size_is_refused_for_an_adaptive_softmax(
    adaptive_model: Path, workspace: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"objective\.num_samples has no effect"):
        elmo.finetune_bilm(adaptive_model, workspace / "new.txt", out=tmp_path / "run", objective={"num_samples": 5})
    assert not (tmp_path / "run").exists()


def test_an_objective_that_is_no_table_is_a_clear_error(workspace: Path, tmp_path: Path, capsys) -> None:
    model, text = str(workspace / "run" / "model"), str(workspace / "new.txt")
    done = run_in_process(capsys, "finetune", model, text, "--out", str(tmp_path / "run"), "--set", "objective=3")
    assert done.returncode == 2
    assert "objective is 3" in done.stderr


def test_a_new_softmax_depends_on_the_seed_alone(workspace: Path) -> None:
    parts = drop_head(read_store(workspace / "run" / "model"))
    rows = []
    for global_seed, seed in ((1, 0), (2, 0), (2, 5)):
        torch.manual_seed(global_seed)
        head = adapt_model(parts, ["<S>", "</S>", "<UNK>", "w1"], seed=seed).head
        assert isinstance(head, SoftmaxHead)
        rows.append(head.weight.detach())
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])


def test_a_new_softmax_is_trained_alone_first(workspace: Path, tmp_path: Path) -> None:
    parts: ModelParts = drop_head(read_store(workspace / "run" / "model"))
    kernel = parts.tensors["stacks.0.layers.0.kernel"].clone()
    result, report = finetune(
        parts, domain_run(workspace, max_steps=4, head_only_steps=4), tmp_path / "a", num_workers=1
    )
    assert report["before"] is None
    assert result.model is not None
    tuned = read_store(result.model)
    torch.testing.assert_close(tuned.tensors["stacks.0.layers.0.kernel"], kernel, atol=0, rtol=0)


@pytest.mark.parametrize(
    ("train", "num_alone"),
    [
        ({"max_steps": 20}, 2),
        ({"max_steps": 0, "epochs": 0.2}, 2),  # 27 steps
        ({"max_steps": 400, "max_tokens": 20 * 20}, 2),  # 20 tokens per step
        ({"max_steps": 1}, 0),
        ({"max_steps": 20, "head_only_steps": 0}, 0),
    ],
    ids=str,
)
def test_a_new_softmax_is_trained_alone_for_a_tenth_of_the_run_unless_a_setting_says_otherwise(
    train: dict[str, Any], num_alone: int, workspace: Path, tmp_path: Path
) -> None:
    parts, lines = drop_head(read_store(workspace / "run" / "model")), list[str]()
    result, _ = finetune(parts, domain_run(workspace, **train), tmp_path, num_workers=1, say=lines.append)
    assert read_toml(tmp_path / "config.toml")["train"]["head_only_steps"] == num_alone
    alone = [line for line in lines if "train the softmax alone" in line]
    assert [line.startswith(f"the first {num_alone} of ") for line in alone] == ([True] if num_alone else [])
    assert result.model is not None
    kernel = "stacks.0.layers.0.kernel"
    assert not torch.equal(read_store(result.model).tensors[kernel], parts.tensors[kernel])


@pytest.mark.parametrize(("num_steps", "num_alone"), [(0, 0), (9, 0), (400, 40), (5000, 500), (100_000, 500)])
def test_at_most_500_steps_train_a_new_softmax_alone(num_steps: int, num_alone: int) -> None:
    assert head_only_steps(TrainConfig(), num_steps, new_softmax=True) == num_alone
    assert head_only_steps(TrainConfig(), num_steps, new_softmax=False) == 0
    for given in (0, 7):
        assert head_only_steps(TrainConfig(head_only_steps=given), num_steps, new_softmax=True) == given


def test_recorded_number_of_steps_for_the_softmax_alone_is_kept(workspace: Path, tmp_path: Path) -> None:
    """Also where an earlier version recorded more of them, and where the command is repeated for a longer run."""
    parts, lines = drop_head(read_store(workspace / "run" / "model")), list[str]()
    finetune(parts, domain_run(workspace, max_steps=10, head_only_steps=9), tmp_path, num_workers=1)
    finetune(parts, domain_run(workspace, max_steps=20), tmp_path, num_workers=1, say=lines.append)
    assert read_toml(tmp_path / "config.toml")["train"]["head_only_steps"] == 9
    assert not any("head_only_steps" in line for line in lines if "changed" in line)
    config = continued_config(tmp_path, {"train": {"max_steps": 30}}, finetuning=True)
    finetune(parts, config, tmp_path, num_workers=1, continued=True)
    assert read_toml(tmp_path / "config.toml")["train"]["head_only_steps"] == 9


@pytest.mark.parametrize(
    ("assignment", "key"),
    [
        ("model.lstm.cell_dim=14", "model.lstm.cell_dim"),
        ("preset=tiny", "preset"),
        ("data.vocab_path=words.txt", "data.vocab_path"),
        ("data.min_count=3", "data.min_count"),
        ("data.max_chars=50", "data.max_chars"),
    ],
)
def test_a_setting_without_effect_is_named(
    assignment: str, key: str, workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out, model, text = tmp_path / "run", str(workspace / "run" / "model"), str(workspace / "new.txt")
    done = run_in_process(capsys, "finetune", model, text, "--out", str(out), "--set", assignment)
    assert done.returncode == 2
    assert f"{key} cannot be set in fine-tuning" in done.stderr
    section = parse_assignment(assignment).get("data")
    if section is not None:
        with pytest.raises(ConfigError, match=key):
            elmo.finetune_bilm(model, text, out=out, data=section)
    assert not out.exists()


def test_only_the_first_process_prints(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [
        "finetune", str(workspace / "run" / "model"), str(workspace / "new.txt"), "--heldout",
        str(workspace / "new_test.txt"), "--rows", "4", "--set", "train.steps=5", "--set", "objective.num_samples=16",
        "--workers", "1", "--device", "cpu", "--max-steps", "2",
    ]  # fmt: skip
    for rank, prints in (("0", True), ("1", False)):
        monkeypatch.setenv("RANK", rank)
        for more in ((), ("--json",)):
            done = run_in_process(capsys, *arguments, "--out", str(tmp_path / rank), *more)
            assert done.returncode == 0, done.stderr
            assert bool(done.stdout) is prints


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_folder_with_another_start_is_refused_and_not_changed(workspace: Path, tmp_path: Path) -> None:
    out, other_model = tmp_path / "run", tmp_path / "model"
    parts, config = read_store(workspace / "run" / "model"), domain_run(workspace, max_steps=2)
    finetune(parts, config, out, num_workers=1)
    shutil.copytree(workspace / "run" / "model", other_model)
    before = contents(out)
    other_text = replace(config, data=replace(config.data, files=(str(workspace / "old.txt"),)))
    starts: list[tuple[ModelParts, RunConfig, dict[str, Any], str]] = [
        (parts, other_text, {}, "on other text: its vocabulary has 69 words, that of this text and model 63"),
        (parts, config, {"min_count": 3}, "started otherwise (min_count 5 -> 3)"),
        (read_store(other_model), config, {}, f"-> {other_model})"),
    ]
    for model, settings_of_run, options, message in starts:
        with pytest.raises(ConfigError, match=re.escape(message)) as error:
            finetune(model, settings_of_run, out, num_workers=1, **options)
        assert f"elmo finetune --out {out}" in error.value.hint
        assert contents(out) == before
    result, _ = finetune(parts, continued_config(out, finetuning=True), out, num_workers=1, continued=True)
    assert result.train.step == 2


def test_a_folder_of_pretraining_is_refused_and_not_changed(workspace: Path) -> None:
    before = contents(workspace / "run")
    with pytest.raises(ConfigError, match="is a run of `elmo pretrain`"):
        finetune(read_store(workspace / "run" / "model"), domain_run(workspace), workspace / "run", num_workers=1)
    assert contents(workspace / "run") == before


def test_a_folder_in_use_is_refused_and_not_changed(workspace: Path, tmp_path: Path) -> None:
    with lock_run_folder(tmp_path), pytest.raises(OutputError, match="is in use by"):
        finetune(read_store(workspace / "run" / "model"), domain_run(workspace), tmp_path, num_workers=1)
    assert not contents(tmp_path)


def test_perplexity_before_is_measured_again_for_other_files(workspace: Path, tmp_path: Path) -> None:
    parts, config, lines = read_store(workspace / "run" / "model"), domain_run(workspace, max_steps=2), list[str]()
    old_test = str(workspace / "old_test.txt")

    def tune(*also: str) -> tuple[dict[str, Any], list[str]]:
        lines.clear()
        report = finetune(parts, config, tmp_path, also=also, num_workers=1, say=lines.append)[1]
        return report, [line for line in lines if "measuring" in line and "new_test.txt" in line]

    alone, measured = tune()
    assert len(measured) == 2
    both, measured = tune(old_test)
    assert len(measured) == 2
    for side in ("before", "after"):
        assert set(both[side]["by_source"]) == {"new_test.txt", "old_test.txt"}
        assert both[side]["by_source"]["new_test.txt"]["reset"] == alone[side]["reset"]
    assert json.loads((tmp_path / "initial.json").read_text())["also"] == [old_test]
    again, measured = tune(old_test)
    assert not measured
    assert again["before"] == both["before"]
    del again["files"]  # as an earlier version recorded it, in both files
    (tmp_path / "finetune.json").write_text(json.dumps(again))
    (tmp_path / "before.json").write_text(json.dumps(alone["before"]))
    assert tune(old_test)[0]["before"] == both["before"]
    assert json.loads((tmp_path / "before.json").read_text())["files"] == [str(workspace / "new_test.txt"), old_test]


def test_the_commands_finetune_and_perplexity(workspace: Path, tmp_path: Path, capsys) -> None:
    text, model = str(workspace / "new.txt"), str(workspace / "run" / "model")
    done = run_in_process(
        capsys, "finetune", model, text, "--heldout", str(workspace / "new_test.txt"), "--max-steps", "5",
        "--rows", "4", "--set", "train.steps=5", "--set", "objective.num_samples=16", "--workers", "1",
        "--device", "cpu", "--out", str(tmp_path / "out"), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    evaluation = run_in_process(
        capsys, "perplexity", str(tmp_path / "out" / "model"), str(workspace / "new_test.txt"), "--json",
        "--workers", "1", "--scores", str(tmp_path / "scores.jsonl"), "--device", "cpu",
    )  # fmt: skip
    perplexity = json.loads(evaluation.stdout)
    assert perplexity["reset"]["mean"] == pytest.approx(report["after"]["reset"]["mean"], rel=1e-5)
    assert "full softmax" in perplexity["definition"]
    scores = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    mean = np.mean([value for row in scores for value in row["forward"]])
    assert perplexity["reset"]["forward"] == pytest.approx(float(np.exp(-mean)), rel=1e-5)


def test_file_perplexity_agrees_with_the_embedders_language_model(workspace: Path, capsys) -> None:
    """The two implementations of perplexity share no code, so their numbers check each other."""
    model, text = str(workspace / "run" / "model"), workspace / "old_test.txt"
    lm = LanguageModel(elmo.load(model, tokenizer="whitespace", device="cpu"))
    expected = lm.perplexity(text.read_text().splitlines())
    done = run_in_process(capsys, "perplexity", model, str(text), "--json", "--workers", "1", "--device", "cpu")
    perplexity = json.loads(done.stdout)["reset"]
    assert perplexity["forward"] == pytest.approx(expected.forward, rel=1e-5)
    assert perplexity["backward"] == pytest.approx(expected.backward, rel=1e-5)
    assert perplexity["mean"] == pytest.approx(expected.mean, rel=1e-5)
    assert perplexity["predictions"] == expected.num_predictions


def test_a_report_shows_the_perplexity_of_files(workspace: Path, tmp_path: Path, capsys) -> None:
    model, texts = (
        str(workspace / "run" / "model"),
        [str(workspace / name) for name in ("old_test.txt", "new_test.txt")],
    )
    done = run_in_process(capsys, "perplexity", model, *texts, "--json", "--workers", "1", "--device", "cpu")
    perplexity = json.loads(done.stdout)
    (tmp_path / "perplexity.json").write_text(done.stdout)
    assert (
        run_in_process(capsys, "report", str(tmp_path / "perplexity.json"), "-o", str(tmp_path / "page")).returncode
        == 0
    )
    page = (tmp_path / "page" / "README.md").read_text()
    for figures in (perplexity, *perplexity["by_source"].values()):
        assert f"{figures['reset']['mean']:.1f}" in page
    assert "elmo perplexity" in page
    assert str(workspace) not in page  # the report does not show the folders of the machine


def test_a_model_that_reads_words_is_refused(workspace: Path, tmp_path: Path) -> None:
    pretrain(
        settings(workspace / "old.txt", {"model": {"chars": None, "words": {"num_words": 1, "word_dim": 6}}}), tmp_path
    )
    with pytest.raises(ConfigError, match="reads words"):
        finetune(read_store(tmp_path / "model"), domain_run(workspace), tmp_path / "out")


def test_finetuning_on_several_languages_orders_the_vocabulary_as_they_are_read(workspace: Path) -> None:
    parts = read_store(workspace / "run" / "model")
    languages = {"aa": [str(workspace / "old.txt")], "bb": [str(workspace / "new_test.txt")]}

    def vocabulary(temperature: float) -> list[str]:
        text = {"data": {"files": [], "languages": languages, "temperature": temperature}}
        return adapt_vocabulary(parts, settings("", text), 100, 5, 1)[0]

    plain, balanced = vocabulary(1.0), vocabulary(1000.0)
    assert set(plain) == set(balanced)  # the minimum count is of the text itself
    new_words = [word for word in plain if word.startswith("v")]
    assert sum(map(balanced.index, new_words)) < sum(map(plain.index, new_words))


def test_finetune_command_takes_languages_and_reports_each(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    result = run_in_process(
        capsys, "finetune", str(workspace / "run" / "model"), "--language", f"aa={workspace / 'old.txt'}",
        "--language", f"bb={workspace / 'new.txt'}", "--temperature", "2",
        "--heldout", f"aa={workspace / 'old_test.txt'},bb={workspace / 'new_test.txt'}", "--out", str(tmp_path / "run"),
        "--max-steps", "4", "--rows", "4", "--device", "cpu", "--workers", "1", "--json",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert set(json.loads(result.stdout)["after"]["by_source"]) == {"old_test.txt", "new_test.txt"}
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert set(report["perplexity"]["by_language"]) == {"aa", "bb"}


def test_finetune_command_reads_settings_from_a_file_and_flags_override_them(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    config, out, model = tmp_path / "domain.toml", tmp_path / "run", str(workspace / "run" / "model")
    config.write_text(
        f"""
        [data.languages]
        aa = ['{workspace / "old.txt"}']
        bb = ['{workspace / "new.txt"}']
        [data.reading]
        tokenize = "unicode"
        [optim]
        name = "muon"
        lr = 0.001
        [train]
        rows = 4
        max_steps = 9
        """
    )
    fixed = ["--config", str(config), "--out", str(out), "--device", "cpu", "--workers", "1"]
    done = run_in_process(capsys, "finetune", model, *fixed, "--max-steps", "3", "--lr", "0.002")
    assert done.returncode == 0, done.stderr
    recorded = read_toml(out / "config.toml")
    assert recorded["data"]["reading"]["tokenize"] == "unicode"
    assert set(recorded["data"]["languages"]) == {"aa", "bb"}
    assert recorded["optim"]["name"] == "muon"
    assert recorded["optim"]["lr"] == 0.002
    assert recorded["train"]["max_steps"] == 3
    assert read_store(out / "model").tokenizer == "unicode"

    other = tmp_path / "tokenised"
    fixed[3] = str(other)
    done = run_in_process(capsys, "finetune", model, *fixed, "--max-steps", "1", "--tokenizer", "none")
    assert done.returncode == 0, done.stderr
    assert read_toml(other / "config.toml")["data"]["reading"]["tokenize"] == "off"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[data]\nfiles = []\n", "No text files were given"),
        ("preset = 'tiny'\n[data]\nfiles = ['TEXT']\n", "preset cannot be set in fine-tuning"),
        ("[model.lstm]\ncell_dim = 14\n[data]\nfiles = ['TEXT']\n", "model.lstm.cell_dim cannot be set"),
        ("[data]\nfile = ['TEXT']\n", "data.file"),
        ("data = 3\n", "data"),
    ],
)
def test_a_wrong_file_of_settings_is_a_clear_error(
    text: str, words: str, workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    config, out, model = tmp_path / "domain.toml", tmp_path / "run", str(workspace / "run" / "model")
    config.write_text(text.replace("TEXT", str(workspace / "new.txt")))
    done = run_in_process(capsys, "finetune", model, "--config", str(config), "--out", str(out))
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert not out.exists()


def test_a_file_of_settings_needs_a_model(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    done = run_in_process(capsys, "finetune", "--config", "domain.toml", "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert "--config was given without a model" in done.stderr


def test_fine_tuning_refuses_text_that_is_also_held_out_before_it_reads_it(workspace: Path, tmp_path: Path) -> None:
    text, lines = str(workspace / "new.txt"), list[str]()
    config = settings(text, {"data": {"heldout_files": [text], "heldout": 0.0}})
    with pytest.raises(ConfigError, match="both training and held-out text"):
        finetune(read_store(workspace / "run" / "model"), config, tmp_path / "out", num_workers=1, say=lines.append)
    assert not lines
    assert not (tmp_path / "out").exists()


def test_another_temperature_is_not_called_another_text(workspace: Path, tmp_path: Path) -> None:
    parts = read_store(workspace / "run" / "model")

    def tune(temperature: float, **languages: str) -> None:
        text = {name: [str(workspace / file)] for name, file in languages.items()}
        data = {"files": [], "languages": text, "temperature": temperature, "heldout": 0.0}
        finetune(parts, settings("", {"data": data, "train": {"max_steps": 1}}), tmp_path, num_workers=1)

    tune(2.0, aa="old.txt", bb="new.txt")
    with pytest.raises(ConfigError, match=r"with other settings \(data\.temperature 2\.0 -> 3\.0\)"):
        tune(3.0, aa="old.txt", bb="new.txt")
    with pytest.raises(ConfigError, match=r"with other settings \(data\.languages aa, bb -> aa, cc\)"):
        tune(2.0, aa="old.txt", cc="new.txt")
    tune(2.0, aa="old.txt", bb="new.txt")
