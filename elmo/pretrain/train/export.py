"""Export at the end of a run: the best weights are written as a model and measured, with a report and curves.

run/
  model/       the trained model, for elmo.load
  published/   options.json and weights.hdf5, the format of the published models
  curve.svg    training loss and held-out perplexity over steps
  languages.svg  held-out perplexity of each language over steps, if there are several
  report.json  the results, with the definition of perplexity
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from elmo.charts.line import Line, line_chart
from elmo.charts.small_multiples import small_multiples
from elmo.files import atomic_file
from elmo.model.bilm import BiLM
from elmo.pretrain.config import RunConfig
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.data.splits import SPLIT_NAMES
from elmo.pretrain.train.best_weights import load_best, stored_weights
from elmo.pretrain.train.loop import TrainResult
from elmo.pretrain.train.metrics_log import read_metrics
from elmo.pretrain.train.perplexity import DEFINITION, Evaluator, add_losses
from elmo.progress import Progress
from elmo.records import make_record, write_record
from elmo.schema import COUNT, NUMBER, Number, find_problem
from elmo.weights.model_parts import ModelParts
from elmo.weights.published import write_published
from elmo.weights.store import save_store

_STEP = {"step": COUNT, "forward": Number(0, 700), "backward": Number(0, 700), "skipped": bool}
_BY_LANGUAGE = {"step": COUNT, "validation": {"by_language": {"*": NUMBER}}}
_VALIDATION = {"step": COUNT, "validation": {"reset": {"mean": NUMBER}, "carried": {"mean": NUMBER}}}


def export(
    model: BiLM,
    rows: Tensor,
    data: PreparedData,
    config: RunConfig,
    out: Path,
    result: TrainResult,
    word_counts: np.ndarray,
    about: dict[str, Any],
    print_status: Callable[[str], None],
    *,
    show_progress: bool | None = None,
) -> dict[str, Any]:
    """Writes the model, which has its best weights, measures it on held-out text, and writes the report.

    Returns the report. `word_counts` are those of the vocabulary in all text that the model was trained on, (V,).
    `about` is added to the description in the model folder. The model is complete before it is measured: an
    interruption loses the measurement alone, and the next call of the run makes it again.
    """
    report: dict[str, Any] = {"step": result.step, "stopped": result.reason, "best": result.best}
    if data.languages:
        about = {**about, "languages": [language.name for language in data.languages]}
        report["languages"] = _language_facts(data)
    if config.data.reading.tokenize is not None:
        about = {**about, "tokenizer": config.data.reading.tokenize}  # `elmo.load` uses it by default
    parts = ModelParts(
        config=model.config,
        tensors={name: tensor.cpu() for name, tensor in stored_weights(model).items()},
        vocab=tuple(data.vocab.words),
        word_counts=word_counts,
        about={"format": "elmo", "trained": True, "step": result.step, "text": data.fingerprint, **about},
        card=_model_card(config, data, report, about),
    )
    save_store(out / "model", parts, overwrite=True)
    if model.config.head is None or model.config.head.kind == "softmax":
        write_published(out / "published", parts, overwrite=True)
    _draw_curves(out)
    if data.heldout.num_sentences:
        report |= _measure(model, rows, data, config, out, print_status, show_progress)
        save_store(out / "model", replace(parts, card=_model_card(config, data, report, about)), overwrite=True)
    record = make_record("training", report)
    write_record(out / "report.json", record)
    print_status(f"model: {out / 'model'}")
    return record


def _measure(
    model: BiLM,
    rows: Tensor,
    data: PreparedData,
    config: RunConfig,
    out: Path,
    print_status: Callable[[str], None],
    show_progress: bool | None,
) -> dict[str, Any]:
    """Held-out perplexity, of all sources together and of each, on at most `train.report_words` words."""
    max_words, heldout = config.train.report_words, data.heldout
    samples = data.heldout_samples(max_words)
    num_measured = sum(len(span) for span in samples.values())
    measured_share = num_measured / heldout.num_sentences
    share = "all" if measured_share == 1 else f"about {int(heldout.num_tokens * measured_share):,} of"
    print_status(
        f"the model is in {out / 'model'}; measuring its perplexity on {share} {heldout.num_tokens:,} held-out words, "
        "with reset and with carried state. Ctrl-C loses this measurement alone."
    )
    num_carried = heldout.num_positions if max_words is None else min(heldout.num_positions, max_words)
    total = int(heldout.num_positions * measured_share) + num_carried
    with Progress("measuring", total, unit="predictions", show=show_progress) as progress:
        evaluator = Evaluator(model, rows, progress=progress)
        by_source = {source: evaluator.reset_sum(data, sentences=span) for source, span in samples.items()}
        carried = evaluator.carried(data, max_words=max_words)
    by_source = {source: losses for source, losses in by_source.items() if losses.predictions}
    reset = add_losses(by_source.values()).perplexity()
    by_language = {
        name: add_losses(losses).perplexity().to_dict() for name, losses in data.by_language(by_source).items()
    }
    print_status(DEFINITION)
    print_status(f"held-out perplexity of the exported model: reset {reset.mean:,.2f}, carried {carried.mean:,.2f}")
    perplexity: dict[str, Any] = {
        "reset": reset.to_dict(),
        "carried": carried.to_dict(),
        "by_source": {source: losses.perplexity().to_dict() for source, losses in by_source.items()},
    }
    if by_language:
        perplexity["by_language"] = by_language
        values = ", ".join(f"{name} {row['mean']:,.2f}" for name, row in by_language.items())
        print_status(f"by language, reset: {values}")
    return {"definition": DEFINITION, "report_words": max_words, "perplexity": perplexity}


def _language_facts(data: PreparedData) -> dict[str, Any]:
    """For each language: words and predictions of its text, share of an epoch, repetitions, held-out unknown words."""
    words = data.by_language({source["path"]: source["tokens"] for source in data.manifest["sources"]})
    unknown = data.unknown_shares()
    return {
        language.name: {
            "words": sum(words[language.name]),
            "positions": language.positions,
            "share": language.share,
            "repetitions": language.repetitions,
            "unknown_share": unknown.get(language.name),
        }
        for language in data.languages
    }


def load_best_weights(model: BiLM, out: Path, result: TrainResult) -> None:
    """Loads the weights of the best validation into `model`; without a validation, the last weights stay."""
    best = load_best(out, result.best)
    if best is not None:
        model.load_state_dict(best, strict=not (model.config.head and model.config.head.tied))


def _draw_curves(out: Path) -> None:
    """Writes curve.svg from metrics.jsonl, with about 400 points of the training loss."""
    records = read_metrics(out / "metrics.jsonl")
    # a loss above 700, whose exponential would overflow, is not drawn
    steps = [r for r in records if find_problem(r, _STEP) is None and not r["skipped"]]
    shown_steps = steps[:: max(1, len(steps) // 400)]
    loss = [(r["step"], math.exp((r["forward"] + r["backward"]) / 2)) for r in shown_steps]
    validations = {
        kind: [(r["step"], r["validation"][kind]["mean"]) for r in records if find_problem(r, _VALIDATION) is None]
        for kind in ("reset", "carried")
    }
    curves = {
        "exp(training loss)": loss,
        "held out, reset": validations["reset"],
        "held out, carried": validations["carried"],
    }
    draw_curves(out / "curve.svg", curves, x_label="step", y_label="perplexity")
    by_language: dict[str, list[tuple[float, float, None]]] = {}
    for record in records:
        for language, mean in (
            record["validation"]["by_language"].items() if find_problem(record, _BY_LANGUAGE) is None else ()
        ):
            by_language.setdefault(language, []).append((record["step"], mean, None))
    if by_language:
        lines = [Line(label=language, points=points) for language, points in by_language.items()]
        title = "held-out perplexity of each language"
        chart = small_multiples("languages", lines, title=title, x_label="step", y_label="held-out perplexity")
        _write_chart(out / "languages.svg", chart)


def _model_card(config: RunConfig, data: PreparedData, report: dict[str, Any], about: dict[str, Any]) -> str:
    """The model card in Markdown."""
    lstm = config.model.lstm
    named = {
        split: [Path(s["path"]).name for s in data.manifest["sources"] if s["split"] == split] for split in SPLIT_NAMES
    }
    heldout_files = f"; held out: {', '.join(named['heldout'])}" if named["heldout"] else ""
    initial = about.get("finetuned_from")
    lines = [
        "# A biLM\n",
        f"- {lstm.num_layers} layers, {lstm.cell_dim} cells, projection {lstm.proj_dim}; vectors of {config.model.dim}",
        f"- Trained on {data.train.num_tokens:,} tokens in {data.train.num_sentences:,} sentences, "
        f"{data.vocab_size:,} words in the softmax; recipe {config.recipe}, {report['step']:,} steps, state reset "
        f"with probability {config.train.reset:g} at sentence starts.",
        f"- Sources: {', '.join(named['train'])}{heldout_files}.",
    ]
    if initial:
        lines.append(f"- Fine-tuned from the model `{initial}`, whose text and licence count for this model too.")
    if "perplexity" in report:
        for kind in ("reset", "carried"):
            perplexity = report["perplexity"][kind]
            backward = "" if perplexity["backward"] is None else f", backward {perplexity['backward']:.2f}"
            lines.append(
                f"- Held-out perplexity, {kind}: {perplexity['mean']:.2f} "
                f"(forward {perplexity['forward']:.2f}{backward})."
            )
        lines.append(f"\n{DEFINITION}\n")
    if "languages" in report:
        lines.append(
            "\n| language | words | share of training | times read per epoch | unknown held out | perplexity |"
        )
        lines.append("|---|---|---|---|---|---|")
        for name, row in report["languages"].items():
            perplexity = report.get("perplexity", {}).get("by_language", {}).get(name)
            lines.append(
                f"| {name} | {row['words']:,} | {row['share']:.1%} | {row['repetitions']:.2f} | "
                f"{'' if row['unknown_share'] is None else format(row['unknown_share'], '.1%')} | "
                f"{'' if perplexity is None else format(perplexity['mean'], '.2f')} |"
            )
        lines.append(f"\nLanguages are sampled with temperature {config.data.temperature:g}.\n")
    lines.append(
        "- Licence of the text, intended use, limits: not recorded. Fill this in before you pass the model on."
    )
    return "\n".join(lines) + "\n"


def draw_curves(path: Path, curves: Mapping[str, Sequence[tuple[float, float]]], *, x_label: str, y_label: str) -> None:
    """Writes a chart of at most three curves, label -> (x, y) points, with a logarithmic y axis.

    Curves without points are left out; no file is written if none has points.
    """
    lines = [Line(label=label, points=[(x, y, None) for x, y in points]) for label, points in curves.items() if points]
    if not lines:
        return
    title = f"{y_label} by {x_label}"
    chart = line_chart("training-curve", lines, title=title, x_label=x_label, y_label=y_label, log_y=True)
    _write_chart(path, chart)


def _write_chart(path: Path, chart: str) -> None:
    with atomic_file(path) as partial:
        partial.write_text(chart, encoding="utf-8", newline="\n")
