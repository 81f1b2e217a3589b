"""The card of a model of several languages is written from records, and its comparison uses one vocabulary."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from models_with_head import tiny_with_head

from elmo.weights.model_parts import build
from elmo.weights.store import save_store

ROOT = Path(__file__).resolve().parent.parent
CONFIG = """
[data]
temperature = 2.0
[data.languages]
de = ["text/de.txt"]
en = ["en/wikinews.txt"]
[objective]
softmax = "sampled"
num_samples = 4096
dropout = 0.0
[optim]
name = "muon"
lr = 0.004
decay = "cosine"
[train]
rows = 100
steps = 20
seed = 3
precision = "bfloat16"
"""


def probe(name: str, languages: dict[str, float], static: float | None = None) -> dict:
    scores = {}
    for code, first in languages.items():
        views = {str(n): {"dev": 50.0 + first * (n == 1), "test": first + n} for n in range(3)}
        scores[code] = {
            "views": views | {"concat": {"dev": 1.0, "test": first + 5}},
            "most_frequent_tag": {"test": 44.4},
        }
        if static is not None and code == "de":
            scores[code]["static"] = {"test": static}
    return {"probe": "languages", "vectors": {"name": name}, "scores": {"languages": scores}}


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with a run, its stored model and records."""
    save_store(tmp_path / "model", dataclasses.replace(tiny_with_head(), about={"name": "two"}), storage="int8")
    for name in ("run", "records"):
        (tmp_path / name).mkdir()
    (tmp_path / "run" / "config.toml").write_text(CONFIG)
    languages = {
        "de": {"words": 1_000_000, "positions": 1_100_000, "share": 0.25, "unknown_share": 0.12},
        "en": {"words": 3_000_000, "positions": 3_200_000, "share": 0.75, "unknown_share": None},
    }
    measured = {"by_language": {"de": {"mean": 77.71}, "en": {"mean": 88.81}}}
    report = {"step": 4000, "languages": languages, "definition": "perplexity of <S>", "perplexity": measured}
    (tmp_path / "run" / "report.json").write_text(json.dumps(report))
    senses = {"Bank": [{"nearest": share} for share in (0.4, 0.5, 0.75)]}
    records = {
        "two": probe("two", {"de": 80.0, "hr": 60.0}, static=55.5),
        "english": probe("english", {"de": 70.0}),
        "a_single": probe("x/de/alone/model", {"de": 81.0}),
        "finetuned": probe("x/de/finetuned/model", {"de": 99.0}),
        "demo": {"senses": senses, "neighbours": [], "language": "de", "model": "two"},
        "demo_english": {"senses": senses, "neighbours": [], "language": "de", "model": "english"},
        "stored": {"stored_perplexity": {"de": {"mean": 79.21}}},
        "bits": {"every": 4, "results": [{"softmax": "6 bits", "file": "h", "words": 9, "perplexity": 5, "head": 2e6}]},
    }
    for name, record in records.items():
        (tmp_path / "records" / f"{name}.json").write_text(json.dumps(record))
    return tmp_path


def test_every_number_comes_from_its_record(folder):
    command = [sys.executable, str(ROOT / "runs" / "languages_card.py"), "run", "--model", "model"]
    done = subprocess.run(
        [*command, "--records", "records", "--out", "card.md"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    card = (folder / "card.md").read_text(encoding="utf-8")
    for line in (
        "| de | German | 1.00 | 25.0% | 1.8 | 12% | 77.7 | 79.2 |",  # a quarter of 8M tokens
        "| en | English | 3.00 | 75.0% | 1.9 | - | 88.8 | - |",
        "| de | 81.0 | 85.0 | 82.0 | 86.0 | 71.0 | 75.0 | 55.5 | 44.4 |",
        "| hr (not learned) | 61.0 | 65.0 | - | - | - | - | - | 44.4 |",
        "| mean | 81.0 (1) | 85.0 (1) | 82.0 (1) | 86.0 (1) | 71.0 (1) | 75.0 (1) | 55.5 (1) | 44.4 (1) |",
        "| German | `two` | 1 | 40% | 50% | 75% |",
        "| German | `english` | 1 | 40% | 50% | 75% |",
        "| 6 bits | h | 9 | 5.00 | 2.0 |",
        "perplexity of &lt;S&gt;.",
    ):
        assert line in card, line
    assert "COST-ELTeC/ELTeC-deu@d1eed48" in card
    assert "`wikinews`" in card
    assert "those with a model alone" not in card, "every language has one"


def test_restricted_softmax_gives_renormalised_probabilities():
    spec = importlib.util.spec_from_file_location("alone", ROOT / "runs" / "many_cpu" / "alone.py")
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    parts = tiny_with_head()
    words = [parts.vocab[row] for row in (1, 0, 2, 7, 5, 3)]
    smaller = alone.restricted(parts, words)
    hidden = torch.randn(5, 64)
    whole, kept = (build(model).head.all_log_probs(hidden) for model in (parts, smaller))
    chosen = whole[:, [parts.vocab.index(word) for word in words]]
    torch.testing.assert_close(kept, chosen.log_softmax(dim=-1))
