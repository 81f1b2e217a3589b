"""The smoke test of the reference implementation: every kind of model learns 134 tokens to a perplexity below 20."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from elmo.errors import ConfigError
from elmo.pretrain.config import make_config
from elmo.pretrain.job import pretrain

FIXTURE = Path(__file__).parent.parent / "fixtures" / "bilm-tf" / "train"
FILTERS = [[1, 8], [2, 8], [3, 16], [4, 32], [5, 64]]
CHARS = {"filters": FILTERS, "char_dim": 4, "max_chars": 10, "activation": "tanh", "num_highways": 1}
LSTM = {"cell_dim": 16, "proj_dim": 8, "num_layers": 2, "cell_clip": 3.0, "proj_clip": 3.0, "skip": False}
WORDS: dict[str, Any] = {"chars": None, "words": {"num_words": 32, "word_dim": 8}}
SLOW = pytest.mark.slow


def smoke_settings(model: dict[str, Any], objective: dict[str, Any], heldout: str) -> dict[str, Any]:
    """The reference implementation's test options: batch 2, unroll 10, 300 steps, 16 negatives, clip 1, Adagrad 0.2."""
    return {
        "recipe": "paper",
        "data": {
            "files": [str(FIXTURE / "data.txt")],
            "heldout_files": [heldout],
            "vocab_path": str(FIXTURE / "vocab.txt"),
        },
        "model": {"lstm": LSTM, **model},
        "objective": {"num_samples": 16, "dropout": 0.1, **objective},
        "optim": {"clip_norm": 1.0},
        "train": {"rows": 2, "steps": 10, "max_steps": 300, "device": "cpu", "validate_every": 0},
    }


@pytest.mark.parametrize(
    ("model", "objective"),
    [
        pytest.param({**WORDS, "bidirectional": False}, {}, id="words, one direction"),
        pytest.param({"chars": CHARS}, {}, id="characters"),
        pytest.param(WORDS, {"tied": True}, id="words, tied softmax"),
        pytest.param({**WORDS, "lstm": {**LSTM, "skip": True}}, {}, id="words, skips"),
        pytest.param({"chars": CHARS, "lstm": {**LSTM, "skip": True}}, {}, id="characters, skips", marks=SLOW),
        pytest.param({"chars": CHARS}, {"softmax": "full"}, id="characters, full softmax", marks=SLOW),
        pytest.param(WORDS, {"softmax": "adaptive"}, id="words, adaptive softmax", marks=SLOW),
    ],
)
def test_smoke_run_reaches_perplexity_20(model: dict[str, Any], objective: dict[str, Any], tmp_path: Path) -> None:
    copy = shutil.copy(FIXTURE / "data.txt", tmp_path / "same.txt")
    start = time.process_time()
    result = pretrain(make_config(smoke_settings(model, objective, str(copy))), tmp_path / "run", num_workers=1)
    assert time.process_time() - start < 60  # CPU time, because the machine may be busy
    assert result.report is not None
    assert result.train.step == 300
    perplexity = result.report["perplexity"]["carried"]  # the state is carried in training and in the reference
    assert perplexity["mean"] < 20
    assert max(perplexity["forward"], perplexity["backward"] or 0.0) < 25  # None: the model has one direction


def test_tied_softmax_of_a_character_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tied"):
        make_config(smoke_settings({"chars": CHARS}, {"tied": True}, "none.txt"))
