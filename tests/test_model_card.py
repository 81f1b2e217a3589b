"""The model card is written from records: every number comes from its file, and missing values are listed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from in_process_cli import run_in_process
from models_with_head import tiny_with_head

from elmo.weights.store import save_store

ROOT = Path(__file__).resolve().parent.parent
RUN_CONFIG = """
recipe = "modern"
[data]
files = ["text/novels100.txt.xz", "text/scotus_legal.txt.xz"]
max_vocab = 11
min_count = 2
[data.reading]
tokenize = "default"
[objective]
softmax = "sampled"
dropout = 0.1
[optim]
name = "adamw"
lr = 0.004
decay = "cosine"
warmup = 0.02
clip_norm = 1.0
[train]
seed = 7
rows = 1000
steps = 20
accumulate = 1
precision = "bfloat16"
reset = 1.0
"""


def means(mean: float) -> dict[str, float]:
    return {"forward": mean - 1, "backward": mean + 1, "mean": mean, "predictions": 50}


@pytest.fixture
def run_folder(tmp_path) -> Path:
    """A folder with a run, its stored model and an empty folder for records."""
    save_store(tmp_path / "model", tiny_with_head(), storage="int8")
    (tmp_path / "run").mkdir()
    (tmp_path / "records").mkdir()
    (tmp_path / "run" / "config.toml").write_text(RUN_CONFIG)
    report = {"definition": "perplexity = of <S>", "perplexity": {"reset": means(88), "by_source": {}}}
    (tmp_path / "run" / "report.json").write_text(json.dumps(report))
    lines = [{"step": step, "validation": {"reset": means(3000 / step)}} for step in range(10, 310, 10)]
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def write_card(run_folder: Path, *words: str) -> tuple[str, subprocess.CompletedProcess[str]]:
    command = [sys.executable, str(ROOT / "runs" / "model_card.py"), "run", "--model", "model", "--records", "records"]
    given = ["--recipe", "runs/this/recipe.toml", "--out", "card.md", *words]
    done = subprocess.run([*command, *given], cwd=run_folder, capture_output=True, text=True)
    return (run_folder / "card.md").read_text(encoding="utf-8"), done


def test_missing_values_are_listed_and_can_fail(run_folder):
    card, done = write_card(run_folder)
    assert done.returncode == 0, done.stderr
    for what in ("--minutes", "lm1b", "probe pos", "probe ner", "probe wsd", "probe wic", "elmo demo"):
        assert what in done.stderr
    assert card.count("not measured") >= 7
    assert "A domain variant" not in card
    assert "Measured on the run's weights before rounding." in card
    assert write_card(run_folder, "--strict")[1].returncode == 1


def test_speed_has_a_row_for_each_system_and_a_column_for_each_number_type(run_folder):
    assert "## Speed" not in write_card(run_folder)[0]
    rates = {"MiniLM float32": [4000, 5104, 6000], "english float32": [4884], "english int8": [15000, 15156, 15300]}
    record = {"machine": "a machine", "sentences": 1024, "threads": 2, "words_per_second": rates}
    (run_folder / "records" / "speed.json").write_text(json.dumps(record))
    card, _ = write_card(run_folder)
    assert "1,024 sentences, a machine" in card
    assert "| MiniLM | 5,104 |  |  |" in card
    assert "| english | 4,884 |  | 15,156 |" in card


def test_other_vectors_are_compared_by_their_probes_alone(run_folder):
    other = run_folder / "other"
    other.mkdir()
    views = {f"{n}": {"plain": {"dev": 55.0 + n}} for n in range(3)}
    for folder, name in (("records", "small"), ("other", "large")):
        record = {"probe": "wic", "vectors": {"name": name}, "scores": {"views": views}}
        (run_folder / folder / "wic.json").write_text(json.dumps(record))
    (other / "heldout.json").write_text(json.dumps({"definition": "d", "reset": means(3), "by_source": {}}))
    card, _ = write_card(run_folder, "--compare", "other", "--note", "One more sentence.")
    assert card.index("| small | 55.0 |") < card.index("| large | 55.0 |")
    assert "Measured on the run's weights before rounding." in card
    assert card.endswith("give the same\nmodel up to rounding differences in the sums of a GPU. One more sentence.\n")
    assert (
        "--recipe runs/this/recipe.toml --hardware 'one GPU' --compare other --note 'One more sentence.' \\\n" in card
    )
    card, _ = write_card(run_folder, "--hardware", "two cores", "--cpu")
    assert "and a CPU\n" in card
    assert card.endswith("give the same\nmodel.\n")


def test_every_number_comes_from_its_record(run_folder):
    heldout = {"definition": "d", "reset": means(71.5), "carried": means(91.2), "words": 1000, "unknown": 0.0123}
    heldout["by_source"] = {"novels100.heldout.txt.xz": {"reset": means(64.2), "words": 600, "unknown": 0.02}}
    finetuned = {"before": {"reset": means(400)}, "after": {"reset": means(82.5)}}
    layers = {f"{n}": {"dev": 90.0 + n, "test": 91.5 + n} for n in range(3)}
    pos = {
        "probe": "pos",
        "vectors": {"name": "english"},
        "scores": {"views": layers, "most_frequent_tag": {"test": 87.6}},
    }
    minilm = {
        "probe": "pos",
        "vectors": {"name": "MiniLM"},
        "scores": {"views": layers, "most_frequent_tag": {"test": 87.6}},
    }
    first = {"ALL": 65.2}
    views = {f"{n}": {"plain": {"ALL": 60.1 + n, "no_back_off": 50.1 + n}} for n in range(3)}
    wsd = {"probe": "wsd", "vectors": {"name": "english"}, "scores": {"views": views, "wordnet_first_sense": first}}
    records = {"heldout": heldout, "lm1b": heldout | {"reset": means(222.2)}, "law": finetuned, "wsd": wsd}
    for name, record in records.items():
        (run_folder / "records" / f"{name}.json").write_text(json.dumps(record, indent=1))
    (run_folder / "records" / "pos.jsonl").write_text("\n".join(map(json.dumps, (pos, minilm))))
    card, done = write_card(run_folder, "--minutes", "60")
    assert done.returncode == 0, done.stderr
    for line in (
        "| novels | novels100 | 600 | 2.0% | 63.2 | 65.2 | 64.2 |  |",
        "|  | all | 1,000 | 1.2% | 70.5 | 72.5 | 71.5 | 91.2 |",
        "| 1B Word, held-out shards 10 and 11 | 1,000 | 1.2% | 221.2 | 223.2 | 222.2 | 91.2 |",
        "| english | 91.5 | 92.5 | 93.5 | 93.5 (layer 2) |",
        "| MiniLM | 91.5 | 92.5 | 93.5 | 93.5 (layer 2) |",
        "| english | 60.1 (50.1) | 61.1 (51.1) | 62.1 (52.1) | 62.1 (layer 2) |",
        "| law | all | 400.0 | 82.5 |",
        "| 300 | 6.0 | 60.0 | 10.0 |  |",  # the last validation: 300 steps of 20,000 tokens
        "| all |  | 10.4 |  |  |",  # 6.8 and 3.6 million words
    ):
        assert line in card, line
    assert card.count("| most frequent tag of the word |") == 1
    assert "CC0 / US government works" in card
    manifest = json.loads((run_folder / "model" / "manifest.json").read_text())
    assert manifest["files"]["model.safetensors"]["sha256"] in card
    assert write_card(run_folder, "--minutes", "60")[0] == card


def test_text_without_a_known_licence_is_listed(run_folder):
    config = run_folder / "run" / "config.toml"
    config.write_text(config.read_text().replace("novels100", "mystery"))
    card, done = write_card(run_folder)
    assert "runs/sources.toml: mystery.txt.xz" in done.stderr
    assert "`mystery.txt.xz`" in card


def test_the_card_is_stored_with_the_model(capsys, run_folder):
    write_card(run_folder)
    words = ["convert", str(run_folder / "model"), "--out", str(run_folder / "again"), "--storage", "int8"]
    done = run_in_process(capsys, *words, "--card", str(run_folder / "card.md"))
    assert done.returncode == 0, done.stderr
    assert (run_folder / "again" / "README.md").read_bytes() == (run_folder / "card.md").read_bytes()
    for name in ("model.safetensors", "head.safetensors", "config.json"):
        assert (run_folder / "again" / name).read_bytes() == (run_folder / "model" / name).read_bytes()
