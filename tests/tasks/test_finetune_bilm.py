"""Fine-tuning of a biLM on a task's text before the task is trained: perplexities, parts, reuse, resuming, errors."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import small_runs
import tiny_tasks
import torch
from in_process_cli import run_in_process
from safetensors.torch import load_file

import elmo
from elmo.embed.lm import LanguageModel
from elmo.errors import ConfigError
from elmo.model.config import HeadConfig
from elmo.tasks.config import make_config
from elmo.tasks.finetune import FinetuneConfig, finetune_and_train, finetune_on_task, rows_for, task_texts
from elmo.tasks.record import read_record
from elmo.tasks.run import open_run
from elmo.tasks.task import load_task
from elmo.text.vocab import BOS, EOS, UNK
from elmo.weights.lookup import tiny_random
from elmo.weights.store import save_store


def save_model(folder: Path, *texts: str) -> str:
    """Writes the model tiny-random with a softmax over the words of the texts; returns its folder."""
    parts = tiny_random()
    vocab = (BOS, EOS, UNK, *sorted({word for text in texts for word in text.split()}))
    rng = np.random.default_rng(0)
    weight = torch.from_numpy(rng.standard_normal((len(vocab), 64), dtype=np.float32) / 8)
    head = {"head.weight": weight, "head.bias": torch.zeros(len(vocab))}
    config = dataclasses.replace(parts.config, head=HeadConfig(vocab_size=len(vocab)))
    save_store(folder, dataclasses.replace(parts, config=config, tensors=parts.tensors | head, vocab=vocab))
    return str(folder)


def ner_settings(folder: Path, *overrides):
    model = save_model(folder / "model", tiny_tasks.NER) if not (folder / "model").exists() else str(folder / "model")
    elmo_settings = {"elmo": {"mode": "frozen", "model": model}, "train": {"epochs": 1}}
    return tiny_tasks.settings(folder, "ner", elmo_settings, *overrides)


def test_perplexities_are_those_of_both_models_on_the_dev_text(tmp_path):
    config = ner_settings(tmp_path)
    record = finetune_and_train(config, tmp_path / "run", FinetuneConfig(epochs=6, lr=0.03))
    perplexity = record["elmo"]["finetuning"]["perplexity"]
    sentences = [list(example.tokens) for example in load_task("ner").read(Path(config.data.dev))]
    for model, side in ((config.elmo.model, "before"), (tmp_path / "run" / "bilm", "after")):
        lm = LanguageModel(elmo.load(model, device="cpu"))
        assert perplexity[side]["reset"]["mean"] == pytest.approx(lm.perplexity(sentences).mean, rel=1e-5)
        assert perplexity[side]["by_part"]["sentences"]["reset"] == perplexity[side]["reset"]
    assert perplexity["after"]["reset"]["mean"] < 0.7 * perplexity["before"]["reset"]["mean"]
    assert "full softmax" in perplexity["definition"]


def test_the_task_is_trained_with_the_fine_tuned_model_and_the_run_can_be_moved(tmp_path):
    config = ner_settings(tmp_path)
    record = finetune_and_train(config, tmp_path / "run", FinetuneConfig(lr=0.01))
    assert record["elmo"]["model"] == str(tmp_path / "run" / "bilm")
    assert record["elmo"]["finetuning"]["initial"]["model"] == config.elmo.model
    assert record["elmo"]["sha256"] != record["elmo"]["finetuning"]["initial"]["sha256"]
    assert record["elmo"]["finetuning"]["task"] == "ner"
    assert record == read_record(tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run").iterdir() if p.is_dir()) == ["bilm", "checkpoint"]
    shutil.move(tmp_path / "run", tmp_path / "moved")
    assert open_run(tmp_path / "moved").elmo_sha256 == record["elmo"]["sha256"]


def test_contexts_and_questions_of_squad_are_measured_separately(tmp_path):
    texts = task_texts(load_task("squad"), small_runs.SQUAD)
    assert [len(texts[part]) for part in ("contexts", "questions")] == [3, 6]  # two passages of two and one sentences
    words = [" ".join(sentence) for sentences in texts.values() for sentence in sentences]
    model = save_model(tmp_path / "model", *words)
    config = small_runs.small_config(tmp_path, "squad", elmo={"mode": "frozen", "model": model})
    folder = finetune_on_task(config, tmp_path / "run" / "bilm", FinetuneConfig(lr=0.01))
    summary = json.loads((folder / "config.json").read_text())["about"]["finetuning"]
    lm = LanguageModel(elmo.load(model, device="cpu"))
    for part, sentences in texts.items():
        measured = summary["perplexity"]["before"]["by_part"][part]["reset"]["mean"]
        assert measured == pytest.approx(lm.perplexity([list(s) for s in sentences]).mean, rel=1e-5)
    assert summary["words"] == sum(len(s) for sentences in texts.values() for s in sentences)


@pytest.mark.parametrize(("task", "parts"), [("snli", {"premises": 2, "hypotheses": 6}), ("srl", {"sentences": 4})])
def test_a_text_that_several_examples_share_is_read_once(task, parts):
    texts = task_texts(load_task(task), small_runs.EXAMPLES[task])
    assert {part: len(sentences) for part, sentences in texts.items()} == parts


def test_documents_of_coref_keep_their_sentences_in_order():
    texts = task_texts(load_task("coref"), small_runs.COREF)
    assert texts == {"documents": [s for document in small_runs.COREF for s in document.sentences]}


def test_rows_leave_enough_updates_for_a_short_text():
    assert [rows_for(n) for n in (10, 5_000, 163_000, 10_000_000)] == [1, 1, 32, 128]


def interrupt_when(path: Path, lines: int) -> threading.Thread:
    """Sends SIGINT to this process once the file has so many lines."""

    def watch() -> None:
        while not path.exists() or path.read_bytes().count(b"\n") < lines:
            time.sleep(0.002)
            if stopped.is_set():
                return
        os.kill(os.getpid(), signal.SIGINT)

    stopped = threading.Event()
    thread = threading.Thread(target=watch, daemon=True)
    thread.stop = stopped.set  # type: ignore[attr-defined]
    thread.start()
    return thread


@pytest.mark.slow
def test_an_interrupted_fine_tuning_continues_to_the_same_model(tmp_path):
    config, settings = ner_settings(tmp_path), FinetuneConfig(epochs=24, lr=0.01, rows=1)
    finetune_on_task(config, tmp_path / "whole" / "bilm", settings)
    watcher = interrupt_when(tmp_path / "parts" / "bilm-finetuning" / "metrics.jsonl", 4)
    with pytest.raises(KeyboardInterrupt):
        finetune_on_task(config, tmp_path / "parts" / "bilm", settings)
    watcher.stop()  # type: ignore[attr-defined]
    assert not (tmp_path / "parts" / "bilm").exists()
    assert list((tmp_path / "parts" / "bilm-finetuning" / "checkpoints").iterdir())
    with pytest.raises(ConfigError, match=r"settings\.lr = 0\.01"):
        finetune_on_task(config, tmp_path / "parts" / "bilm", FinetuneConfig(epochs=24, lr=0.02, rows=1))
    finetune_on_task(config, tmp_path / "parts" / "bilm", settings)
    first, second = (load_file(tmp_path / name / "bilm" / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_fine_tuned_model_is_used_again_and_only_for_the_same_settings_and_files(tmp_path):
    config, lines = ner_settings(tmp_path), []
    folder = finetune_on_task(config, tmp_path / "bilm")
    stamp = (folder / "manifest.json").stat().st_mtime_ns
    (tmp_path / "bilm-finetuning").mkdir()  # as if the process had died before it removed it
    finetune_on_task(config, folder, say=lines.append)
    assert (folder / "manifest.json").stat().st_mtime_ns == stamp
    assert any("already" in line for line in lines)
    assert not (tmp_path / "bilm-finetuning").exists()
    with pytest.raises(ConfigError, match=r"settings\.epochs"):
        finetune_on_task(config, folder, FinetuneConfig(epochs=2))
    other = str(tiny_tasks.write_data(tmp_path, "ner", times=2))
    with pytest.raises(ConfigError, match=r"data\.train"):
        finetune_on_task(make_config(load_task("ner"), config.to_dict(), {"data": {"train": other}}), folder)
    with pytest.raises(ConfigError, match="not a biLM that was fine-tuned"):
        finetune_on_task(config, config.elmo.model)


def test_a_model_without_a_softmax_is_an_error_before_anything_is_written(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner", {"elmo": {"mode": "frozen", "model": "tiny-random"}})
    with pytest.raises(ConfigError, match="no softmax"):
        finetune_on_task(config, tmp_path / "run" / "bilm")
    assert not (tmp_path / "run" / "bilm-finetuning").exists()
    with pytest.raises(ConfigError, match="needs a biLM"):
        finetune_on_task(tiny_tasks.settings(tmp_path, "ner"), tmp_path / "run" / "bilm")


def test_one_command_fine_tunes_once_for_all_seeds_and_other_runs_can_use_the_model(tmp_path, capsys):
    config = ner_settings(tmp_path)
    small = ["words.dim=8", "words.min_count=1", "chars.num_filters=4", "model.hidden_dim=8", "train.epochs=1"]
    command = ["task", "train", "ner", "--train", config.data.train, "--dev", config.data.dev, "--device", "cpu"]
    command += [part for setting in small for part in ("--set", setting)]
    out = tmp_path / "out"
    tuning = ["--elmo", config.elmo.model, "--finetune-bilm", "--finetune-epochs", "2", "--set", "finetune.lr=0.01"]
    done = run_in_process(capsys, *command, *tuning, "--seeds", "2", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    assert {record["elmo"]["model"] for record in records} == {str(out / "bilm")}
    assert records[0]["elmo"] == records[1]["elmo"]
    assert records[0]["elmo"]["finetuning"]["settings"] == dataclasses.asdict(FinetuneConfig(epochs=2, lr=0.01))
    assert "--finetune-bilm --set finetune.epochs=2" in records[0]["elmo"]["finetuning"]["command"]
    again = run_in_process(capsys, *command, "--elmo", str(out / "bilm"), "--out", str(tmp_path / "third"), "--json")
    assert json.loads(again.stdout)["elmo"] == records[0]["elmo"]
    for wrong in (["--finetune-bilm"], ["--elmo", config.elmo.model, "--finetune-epochs", "2"]):
        done = run_in_process(capsys, *command, *wrong, "--out", str(tmp_path / "wrong"))
        assert (done.returncode, (tmp_path / "wrong").exists()) == (2, False), done.stderr
