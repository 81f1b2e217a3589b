"""Pretraining runs small enough for tests: a little made-up text, a model of a few hundred weights, seconds a run."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from elmo.pretrain.config import RunConfig, make_config
from elmo.pretrain.job import JobResult, pretrain

MODEL = {
    "chars": {"filters": [[1, 4], [2, 8]], "char_dim": 4, "max_chars": 10, "num_highways": 1},
    "lstm": {"cell_dim": 12, "proj_dim": 6},
}
ROOT = Path(__file__).parent.parent
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}


def write_text(path: Path, num_sentences: int = 300, seed: int = 0) -> Path:
    """Sentences of words by Zipf's law over 60 words, each followed by its favourite successor half of the time."""
    chance = random.Random(seed)
    words = [f"w{k}" for k in range(60)]
    weights = [1 / (k + 1) for k in range(60)]
    lines = []
    for _ in range(num_sentences):
        sentence = chance.choices(words, weights, k=1)
        for _ in range(chance.randint(2, 12)):
            after = words[(words.index(sentence[-1]) * 7 + 3) % 60]
            sentence.append(after if chance.random() < 0.5 else chance.choices(words, weights)[0])
        lines.append(" ".join(sentence))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def settings(text: Path | str, *layers: dict[str, Any]) -> RunConfig:
    """A run on the text; later layers override."""
    base = {
        "data": {"files": [str(text)], "heldout": 0.05},
        "model": MODEL,
        "objective": {"num_samples": 16},
        "train": {
            "rows": 4,
            "steps": 5,
            "max_steps": 40,
            "checkpoint_every": 10,
            "validate_every": 20,
            "device": "cpu",
        },
    }
    return make_config(base, *layers)


def run(text: Path, out: Path, *layers: dict[str, Any], **options: Any) -> JobResult:
    """Runs or continues in this process."""
    return pretrain(settings(text, *layers), out, num_workers=1, **options)


def train_settings(**train: Any) -> dict[str, Any]:
    return {"train": train}


def command(text: Path, out: Path, *more: str) -> list[str]:
    """The same run as a command line."""
    sets = ["model.chars.filters=[[1,4],[2,8]]", "model.chars.char_dim=4", "model.chars.max_chars=10"]
    sets += ["model.chars.num_highways=1", "model.lstm.cell_dim=12", "model.lstm.proj_dim=6"]
    sets += ["objective.num_samples=16", "train.steps=5", "train.checkpoint_every=10", "train.validate_every=20"]
    given = [part for item in sets for part in ("--set", item)]
    return [
        *(sys.executable, "-m", "elmo", "pretrain", str(text), "--out", str(out), "--heldout", "0.05", "--rows", "4"),
        *("--device", "cpu", "--workers", "1", "--max-steps", "40", *given, *more),
    ]


def call(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, timeout=280, check=False, **options)


def digest(out: Path) -> str:
    """Of the finished model's tensors and of the metrics: equal where two runs went the same way to the last bit."""
    found = hashlib.sha256()
    newest = max((out / "checkpoints").glob("step-*"))
    for path in (out / "model" / "model.safetensors", newest / "model.safetensors"):
        for name, tensor in sorted(load_file(path).items()):
            found.update(name.encode() + tensor.numpy().tobytes())
    found.update((out / "metrics.jsonl").read_bytes())
    return found.hexdigest()


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
