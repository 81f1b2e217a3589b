"""Trains models of several sizes with AdamW and Muon for equal seconds on prepared text, and writes results.json.

    elmo prepare 'text/*.txt.xz' --heldout HELDOUT ... --tokenizer default --max-vocab 100352 --out data
    python runs/optimizers_h200/compare.py data results 2048x256/adamw/4e-3/80 2048x256/muon/4e-3/80
    python runs/optimizers_h200/compare.py data results small/adamw/4e-3/180 --rows 128 --precision bfloat16

A run is SIZE/OPTIMIZER/RATE/SECONDS, and SIZE is a preset or CELLSxPROJECTION with 1,024 filters. The number of steps
is the seconds times the steps per second that two short runs of the same size and optimizer reach, so that the learning
rate decays to its end within these seconds. Runs that results.json has with the same options, text and device are not
repeated.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
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

FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512]]
WARM_UP_STEPS = 20
TIMED_STEPS = {"cpu": (40, 160), "gpu": (100, 500)}  # of a short and a long run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="prepared text")
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", nargs="+", metavar="SIZE/OPTIMIZER/RATE/SECONDS")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--heldout-words", type=int, default=300_000)
    options = parser.parse_args()
    data = open_prepared(options.data)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "results.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    rates: dict[tuple[str, str], float] = {}
    for name in options.runs:
        settings = {
            "rows": options.rows,
            "precision": options.precision,
            "heldout_words": options.heldout_words,
            "device": choose_device("auto"),
            "text": data.fingerprint,
        }
        if any({"run": name, **settings}.items() <= result.items() for result in results):
            continue
        size, optimizer, lr, seconds = name.split("/")
        if (size, optimizer) not in rates:
            rates[size, optimizer] = steps_per_second(data, options, size, optimizer, float(lr))
        steps = max(1, round(float(seconds) * rates[size, optimizer]))
        result = run(data, options, size, optimizer, float(lr), steps, measures=True)
        results.append({"run": name, **settings, **result, "seconds": round(result["seconds"], 1)})
        print(json.dumps(results[-1]), flush=True)
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def steps_per_second(data: PreparedData, options: argparse.Namespace, size: str, optimizer: str, lr: float) -> float:
    """From the difference of two short runs, so that set-up and validation do not count."""
    run(data, options, size, optimizer, lr, WARM_UP_STEPS)  # compiles the kernels
    few, many = TIMED_STEPS["cpu" if choose_device("auto") == "cpu" else "gpu"]
    short, long = (run(data, options, size, optimizer, lr, steps)["seconds"] for steps in (few, many))
    return (many - few) / max(long - short, 1e-3)


def shape_of(size: str) -> dict[str, Any]:
    """The settings of a preset, or of CELLSxPROJECTION."""
    if "x" not in size:
        return {"preset": size}
    cell_dim, proj_dim = map(int, size.split("x"))
    lstm = {"cell_dim": cell_dim, "proj_dim": proj_dim}
    return {"preset": "medium", "model": {"chars": {"filters": FILTERS}, "lstm": lstm}}


def run(
    data: PreparedData,
    options: argparse.Namespace,
    size: str,
    optimizer: str,
    lr: float,
    steps: int,
    *,
    measures: bool = False,
) -> dict[str, Any]:
    """One run from random weights; with `measures` its held-out perplexity (every sentence from a zero state)."""
    device = choose_device("auto")
    train_settings = {"rows": options.rows, "seed": 1, "max_steps": steps, "validate_every": 0, "checkpoint_every": 0}
    limits = {"validate_minutes": "off", "checkpoint_minutes": "off", "validate_words": 1000}
    config = make_config(
        shape_of(size),
        {"data": {"files": ["prepared"]}, "optim": {"name": optimizer, "lr": lr}},
        {"train": {**train_settings, **limits, "device": device, "precision": options.precision}},
    )
    model_config = model_config_for(config, data)
    config = resolve_settings(replace(config, model=replace(model_config, head=None)), data, device)
    torch.manual_seed(step_seed(config.train.seed, 0, "weights"))
    model = BiLM(model_config).to(device)
    rows = input_rows(data, model_config).to(device)
    folder = options.out / f"{size}-{optimizer}-{lr:g}-{steps}-{time.monotonic_ns()}"
    folder.mkdir()
    start = time.monotonic()
    train(model, rows, data, config, folder, identity=identity(config, data))
    result: dict[str, Any] = {"steps": steps, "seconds": time.monotonic() - start}
    if measures:
        precision = torch.bfloat16 if config.train.precision == "bfloat16" else torch.float32
        evaluator = Evaluator(model, rows, precision=precision)
        result["perplexity"] = asdict(evaluator.reset(data, max_words=options.heldout_words))
    del model, rows
    gc.collect()
    shutil.rmtree(folder)
    return result


if __name__ == "__main__":
    main()
