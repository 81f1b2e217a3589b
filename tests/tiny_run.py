"""Pretraining runs small enough for tests: synthetic text, a model of a few hundred weights, a few seconds per run."""

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
    """Writes sentences of 60 words with Zipf frequencies; half of the time a word has its fixed successor."""
    rng = random.Random(seed)
    words = [f"w{k}" for k in range(60)]
    weights = [1 / (k + 1) for k in range(60)]
    lines = []
    for _ in range(num_sentences):
        sentence = rng.choices(words, weights, k=1)
        for _ in range(rng.randint(2, 12)):
            successor = words[(words.index(sentence[-1]) * 7 + 3) % 60]
            sentence.append(successor if rng.random() < 0.5 else rng.choices(words, weights)[0])
        lines.append(" ".join(sentence))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def settings(text: Path | str, *layers: dict[str, Any]) -> RunConfig:
    """The config of a run on the text; later layers override earlier ones."""
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
            "checkpoint_minutes": "off",  # tests do not depend on the speed of the machine
            "validate_minutes": "off",
            "device": "cpu",
        },
    }
    return make_config(base, *layers)


def run(text: Path, out: Path, *layers: dict[str, Any], **options: Any) -> JobResult:
    """Starts or continues the run in this process."""
    return pretrain(settings(text, *layers), out, num_workers=1, **options)


def train_settings(**train: Any) -> dict[str, Any]:
    return {"train": train}


def command(text: Path, out: Path, *more: str) -> list[str]:
    """The same run as a command line, with `more` options."""
    sets = ["model.chars.filters=[[1,4],[2,8]]", "model.chars.char_dim=4", "model.chars.max_chars=10"]
    sets += ["model.chars.num_highways=1", "model.lstm.cell_dim=12", "model.lstm.proj_dim=6"]
    sets += ["objective.num_samples=16", "train.steps=5", "train.checkpoint_every=10", "train.validate_every=20"]
    sets += ["train.checkpoint_minutes=off", "train.validate_minutes=off"]
    set_options = [part for assignment in sets for part in ("--set", assignment)]
    return [
        *(sys.executable, "-m", "elmo", "pretrain", str(text), "--out", str(out), "--heldout", "0.05", "--rows", "4"),
        *("--device", "cpu", "--workers", "1", "--max-steps", "40", *set_options, *more),
    ]


def call(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command line and captures its output."""
    return subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, check=False, **options)


def digest(out: Path) -> str:
    """A hash of the weights and the metrics of a finished run; equal if two runs are identical bit for bit."""
    sha256 = hashlib.sha256()
    newest = max((out / "checkpoints").glob("step-*"))
    for path in (out / "model" / "model.safetensors", newest / "model.safetensors"):
        for name, tensor in sorted(load_file(path).items()):
            sha256.update(name.encode() + tensor.numpy().tobytes())
    sha256.update((out / "metrics.jsonl").read_bytes())
    return sha256.hexdigest()


def records(out: Path) -> list[dict[str, Any]]:
    """The records of the run's metrics log."""
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
