"""Trains models of several sizes with AdamW and Muon for equal seconds on prepared text, and writes results.json.

    elmo prepare 'text/*.txt.xz' --heldout HELDOUT ... --tokenizer default --max-vocab 100352 --out data
    python runs/optimizers_h200/compare.py data results medium/adamw/4e-3/80 medium/muon/4e-3/80

A run is SIZE/OPTIMIZER/RATE/SECONDS. The number of steps is the seconds times the steps per second that two short runs
of the same size and optimizer reach, so that the learning rate decays to its end within these seconds.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from elmo.devices import choose_device
from elmo.model.bilm import BiLM
from elmo.pretrain.config import make_config
from elmo.pretrain.data.prepared import PreparedData, open_prepared
from elmo.pretrain.job import identity, model_config_for, resolve_settings
from elmo.pretrain.train.loop import train
from elmo.pretrain.train.perplexity import Evaluator
from elmo.pretrain.train.step_inputs import step_seed
from elmo.pretrain.train.type_inputs import input_rows

SIZES = {"tiny": (64, 16), "small": (1024, 128), "medium": (2048, 256), "large": (3072, 384), "original": (4096, 512)}
FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512]]
HELDOUT_WORDS = 300_000
WARM_UP_STEPS, SHORT_STEPS, LONG_STEPS = 60, 100, 400


def main() -> None:
    data, out = open_prepared(Path(sys.argv[1])), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    rates: dict[tuple[str, str], float] = {}
    results = []
    for argument in sys.argv[3:]:
        size, optimizer, lr, seconds = argument.split("/")
        if (size, optimizer) not in rates:
            rates[size, optimizer] = steps_per_second(data, out, size, optimizer, float(lr))
        steps = round(float(seconds) * rates[size, optimizer])
        results.append({"run": argument, **run(data, out, size, optimizer, float(lr), steps)})
        print(json.dumps(results[-1]), flush=True)
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def steps_per_second(data: PreparedData, out: Path, size: str, optimizer: str, lr: float) -> float:
    """From the difference of two short runs, so that set-up and validation do not count."""
    run(data, out, size, optimizer, lr, WARM_UP_STEPS)  # compiles the kernels
    short, long = (run(data, out, size, optimizer, lr, steps)["seconds"] for steps in (SHORT_STEPS, LONG_STEPS))
    return (LONG_STEPS - SHORT_STEPS) / max(long - short, 1e-3)


def run(data: PreparedData, out: Path, size: str, optimizer: str, lr: float, steps: int) -> dict[str, Any]:
    """One run from random weights, with its held-out perplexity (every sentence from a zero state)."""
    cell_dim, proj_dim = SIZES[size]
    device = choose_device("auto")
    settings = {
        "preset": "medium",
        "data": {"files": ["prepared"]},
        "model": {"chars": {"filters": FILTERS}, "lstm": {"cell_dim": cell_dim, "proj_dim": proj_dim}},
        "optim": {"name": optimizer, "lr": lr},
        "train": {"rows": 1024 if device == "cuda" else 16, "seed": 1, "max_steps": steps, "validate_every": 0},
    }
    settings["train"] |= {"checkpoint_every": 0, "device": device}  # type: ignore[operator]
    config = make_config(settings)
    model_config = model_config_for(config, data)
    config = resolve_settings(replace(config, model=replace(model_config, head=None)), data, device)
    torch.manual_seed(step_seed(config.train.seed, 0, "weights"))
    model = BiLM(model_config).to(device)
    rows = input_rows(data, model_config).to(device)
    folder = out / f"{size}-{optimizer}-{lr:g}-{steps}-{time.monotonic_ns()}"
    folder.mkdir()
    start = time.monotonic()
    train(model, rows, data, config, folder, identity=identity(config, data))
    seconds = time.monotonic() - start
    precision = torch.bfloat16 if device == "cuda" else torch.float32
    perplexity = Evaluator(model, rows, precision=precision).reset(data, max_words=HELDOUT_WORDS)
    del model, rows
    gc.collect()
    return {"steps": steps, "seconds": round(seconds, 1), "perplexity": asdict(perplexity)}


if __name__ == "__main__":
    main()
