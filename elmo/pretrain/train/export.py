"""The end of a run: the best weights measured and written as a model people can load, with the course of the run.

run/
  model/       the finished model, for elmo.load
  published/   options.json + weights.hdf5, for old tools
  curve.svg    the course of the run
  report.json  what came out, with the definition of its numbers
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from elmo.model.bilm import BiLM
from elmo.pretrain.config import RunConfig
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.train.best_weights import load_best, stored_weights
from elmo.pretrain.train.loop import TrainResult
from elmo.pretrain.train.metrics_log import read_log
from elmo.pretrain.train.perplexity import DEFINITION, Evaluator
from elmo.pretrain.train.training_curve import draw_curves
from elmo.records import make_record, write_record
from elmo.weights.model_parts import ModelParts
from elmo.weights.published import write_published
from elmo.weights.store import save_store


def export(
    model: BiLM,
    rows: Tensor,
    data: PreparedData,
    config: RunConfig,
    out: Path,
    result: TrainResult,
    about: dict[str, Any],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Takes the best weights, measures them on all held-out text, and writes it all; gives the report."""
    best = load_best(out, result.best)
    if best is not None:
        model.load_state_dict(best, strict=not (model.config.head and model.config.head.tied))
    report: dict[str, Any] = {"step": result.step, "stopped": result.reason, "best": result.best}
    if data.heldout.num_sentences:
        evaluator = Evaluator(model, rows)
        report["definition"] = DEFINITION
        report["perplexity"] = {
            "reset": evaluator.reset(data).to_dict(),
            "carried": evaluator.carried(data).to_dict(),
            "by_source": {
                source: evaluator.reset(data, sentences=span).to_dict()
                for source, span in data.heldout_sources().items()
            },
        }
        say(DEFINITION)
        say(
            f"held-out perplexity of the exported model: reset {report['perplexity']['reset']['mean']:,.2f}, "
            f"carried {report['perplexity']['carried']['mean']:,.2f}"
        )
    parts = ModelParts(
        config=model.config,
        tensors={name: tensor.cpu() for name, tensor in stored_weights(model).items()},
        vocab=tuple(data.vocab.words),
        about={"format": "elmo", "trained": True, "step": result.step, "text": data.fingerprint, **about},
        card=_card(config, data, report),
    )
    save_store(out / "model", parts, overwrite=True)
    if model.config.head is None or model.config.head.kind == "softmax":
        write_published(out / "published", parts, overwrite=True)
    _draw(out)
    record = make_record("training", report)
    write_record(out / "report.json", record)
    say(f"model: {out / 'model'}")
    return record


def _draw(out: Path) -> None:
    records = read_log(out / "metrics.jsonl")
    steps = [r for r in records if "forward" in r and not r["skipped"]]
    thinned = steps[:: max(1, len(steps) // 400)]
    loss = [(r["step"], math.exp((r["forward"] + r["backward"]) / 2)) for r in thinned]
    held = {
        kind: [(r["step"], r["validation"][kind]["mean"]) for r in records if "validation" in r]
        for kind in ("reset", "carried")
    }
    curves = {
        "exp(training loss)": loss,
        "held out, reset": held["reset"],
        "held out, carried": held["carried"],
    }
    draw_curves(out / "curve.svg", curves, x_label="step", y_label="perplexity")


def _card(config: RunConfig, data: PreparedData, report: dict[str, Any]) -> str:
    lstm = config.model.lstm
    lines = [
        "# A biLM\n",
        f"- {lstm.num_layers} layers, {lstm.cell_dim} cells, projection {lstm.proj_dim}; vectors of {config.model.dim}",
        f"- Trained on {data.train.num_tokens:,} tokens in {data.train.num_sentences:,} sentences, "
        f"{data.vocab_size:,} words in the softmax; recipe {config.recipe}, {report['step']:,} steps, state reset "
        f"with probability {config.train.reset:g} at sentence starts.",
        "- Sources: " + ", ".join(Path(s["path"]).name for s in data.manifest["sources"]) + ".",
    ]
    if "perplexity" in report:
        for kind in ("reset", "carried"):
            p = report["perplexity"][kind]
            backward = "" if p["backward"] is None else f", backward {p['backward']:.2f}"
            lines.append(f"- Held-out perplexity, {kind}: {p['mean']:.2f} (forward {p['forward']:.2f}{backward}).")
        lines.append(f"\n{DEFINITION}\n")
    lines.append(
        "- Licence of the text, intended use, limits: not recorded. Fill this in before you pass the model on."
    )
    return "\n".join(lines) + "\n"
