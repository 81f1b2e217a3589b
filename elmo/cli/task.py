"""`elmo task`: train, evaluate and use the six task models, one run or a set; gather them into the paper's tables."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.cli.pretrain import assignment, given, say
from elmo.errors import ConfigError, DataError

EXAMPLE = "elmo task train ner --train train.iob2 --dev dev.iob2 --elmo default"
NAMES = "squad, snli, srl, coref, ner, sst"
COLORS = (36, 33, 35, 32, 34, 31)  # of a terminal, by the order in which labels appear

File = Annotated[Path | None, typer.Option(help="Examples in the task's format, compressed by suffix.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


def run() -> None:
    """The six tasks of the paper, with and without ELMo: train, evaluate, predict, table, curve, sweep."""


def train(
    name: Annotated[str, typer.Argument(help=NAMES)],
    train: File = None,
    dev: File = None,
    test: Annotated[Path | None, typer.Option(help="Scored once, at the end.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run (NAME-run); run again to continue.")] = None,
    elmo: Annotated[str | None, typer.Option(help="Add ELMo: name, folder or file of the model.")] = None,
    tune: Annotated[bool, typer.Option("--tune", help="The biLM learns with the task.")] = False,
    place: Annotated[str | None, typer.Option(help="Where ELMo enters: input, output, both.")] = None,
    vectors: Annotated[Path | None, typer.Option(help="Static word vectors, word2vec text format.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with settings; flags override it.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything left to chance.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="So many runs, OUT/seed-N each, with seeds one after another.")] = 1,
    cache: Annotated[str | None, typer.Option(help="Of frozen layers: memory, disk, off.")] = None,
    device: Device = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any other setting: section.key=value.")] = None,
    as_json: Json = False,
) -> None:
    """Train a task model; the same command continues a run that was cut off."""
    from elmo.pretrain.config import read_toml
    from elmo.tasks.config import make_config
    from elmo.tasks.task import load_task
    from elmo.tasks.train import train as train_run

    task = load_task(name)
    if tune and elmo is None and config is None:
        raise ConfigError("--tune needs a biLM to tune.", "Name one: --elmo MODEL.")
    mode = "tuned" if tune else "frozen" if elmo else None
    flags = given(
        data={"train": text_of(train), "dev": text_of(dev), "test": text_of(test)},
        words={"vectors": text_of(vectors)},
        elmo={"mode": mode, "model": elmo, "place": place, "cache": cache},
        train={"seed": seed, "device": device},
    )
    layers = [read_toml(config) if config else {}, flags, *map(assignment, set_ or ())]
    out = Path(f"{name}-run") if out is None else out
    first = make_config(task, *layers).train.seed
    records = []
    for number in range(first, first + seeds):
        settings = make_config(task, *layers, {"train": {"seed": number}})
        folder = out if seeds == 1 else out / f"seed-{number}"
        records.append(train_run(settings, folder, say=say, show=True))
    if as_json:
        print(json.dumps(records[0] if seeds == 1 else records))


def evaluate(
    name: Annotated[str, typer.Argument(help="A run's folder, or a task's name for its folder NAME-run.")],
    file: Annotated[Path, typer.Argument(help="Examples in the task's format.")],
    elmo: Annotated[str | None, typer.Option(help="Where the biLM lies now, if not where it lay.")] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Score a trained model on labelled examples."""
    from elmo.tasks.predict import evaluate as evaluate_run
    from elmo.tasks.run import open_run

    opened = open_run(run_folder(name), device=device, elmo_model=elmo)
    scores = evaluate_run(opened, opened.task.read(file), show=None)
    if as_json:
        print(json.dumps({"task": opened.task.name, "metric": opened.task.metric, "scores": scores}))
        return
    for metric, value in scores.items():
        print(f"{metric:<20} {value:6.2f}" + ("  *" if metric == opened.task.metric else ""))


def predict(
    name: Annotated[str, typer.Argument(help="A run's folder, or a task's name for its folder NAME-run.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Raw text, or its parts where a task has two.")] = None,
    file: Annotated[Path | None, typer.Option(help="Raw text, a line each, tabs between parts; - is stdin.")] = None,
    examples: Annotated[Path | None, typer.Option(help="Examples in the task's format, tokenised already.")] = None,
    tokenizer: Annotated[str, typer.Option(help="default, whitespace, spacy:LANG, moses:LANG.")] = "default",
    elmo: Annotated[str | None, typer.Option(help="Where the biLM lies now, if not where it lay.")] = None,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show what a trained model makes of raw text or of a file."""
    from elmo.tasks.predict import predict as predict_run
    from elmo.tasks.raw_text import read_raw
    from elmo.tasks.run import open_run
    from elmo.text.lines import read_lines

    if (texts is not None) + (file is not None) + (examples is not None) != 1:
        raise ConfigError("Nothing to predict, or too much.", "Give one of: text, --file FILE, --examples FILE.")
    opened = open_run(run_folder(name), device=device, elmo_model=elmo)
    task = opened.task
    if examples is not None:
        found = task.read(examples)
    else:
        lines = [texts or []] if file is None else [line.split("\t") for line in read_lines(file) if line.strip()]
        found = read_raw(task, lines, tokenizer)
    colors = Colors()
    for example, prediction in zip(found, predict_run(opened, found), strict=True):
        if as_json:
            print(json.dumps(task.as_json(example, prediction), ensure_ascii=False))
        else:
            print(" ".join(colors.shown(piece.text, piece.label) for piece in task.render(example, prediction)))


def table(
    runs: Annotated[list[Path], typer.Argument(help="Folders with runs, however deep.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="A Markdown table.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Also draw it: a file.svg.")] = None,
    as_json: Json = False,
) -> None:
    """Gather runs into the paper's Table 1: the paper's figures, our baseline, +ELMo, error reductions."""
    from elmo.files import atomic_file
    from elmo.report.table1 import make_table
    from elmo.report.table1_chart import as_svg
    from elmo.report.table1_text import as_markdown, as_text, as_values
    from elmo.tasks.record import find_records

    records = find_records(runs)
    rows = make_table(records)
    if not rows:
        raise DataError(
            f"None of the {len(records)} runs was on its whole training file.", "Train with data.fraction 1."
        )
    if picture is not None:
        with atomic_file(picture) as partial:
            partial.write_text(as_svg(rows), encoding="utf-8")
    if as_json:
        print(json.dumps(as_values(rows), ensure_ascii=False))
    else:
        print(as_markdown(rows) if markdown else as_text(rows), end="")


def curve(
    name: Annotated[str, typer.Argument(help=NAMES)],
    train: File = None,
    dev: File = None,
    test: Annotated[Path | None, typer.Option(help="Scored at the end of each run; the curve is then of test.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs (NAME-curve); run again to continue.")] = None,
    elmo: Annotated[str | None, typer.Option(help="The biLM: name, folder or file of the model.")] = None,
    shares: Annotated[str, typer.Option(help="Percents of the training file.")] = "0.1,0.3,1,3,10,30,100",
    seeds: Annotated[int, typer.Option(min=1, help="Runs a point; each draws its own share.")] = 3,
    updates: Annotated[int, typer.Option(min=1, help="That a small share is given at least: epochs are raised.")] = 300,
    config: Annotated[Path | None, typer.Option(help="A TOML file with settings; flags override it.")] = None,
    device: Device = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any other setting: section.key=value.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="A Markdown table.")] = False,
    as_json: Json = False,
) -> None:
    """Sample efficiency (Figure 1): train on shares of the data with and without ELMo; draws OUT/curve.svg."""
    from elmo.files import atomic_file
    from elmo.report import sample_efficiency as efficiency
    from elmo.tasks.config import make_config
    from elmo.tasks.learning_curve import learning_curve_cells, read_shares
    from elmo.tasks.sweep import make_plan, train_plan, with_elmo
    from elmo.tasks.task import load_task

    task, wanted = load_task(name), read_shares(shares)
    out = Path(f"{name}-curve") if out is None else out
    layers = with_elmo(set_layers(train, dev, test, elmo, config, device, set_), task, out)
    base = make_config(task, *layers)
    cells = learning_curve_cells(base, len(task.read(needed(base.data.train))), wanted, least_updates=updates)
    if len({cell.settings["data"]["fraction"] for cell in cells}) < 2:
        raise DataError("A curve needs two shares or more.", "Name more percents in --shares, or give more examples.")
    found = efficiency.sample_efficiency(train_plan(make_plan(task, layers, cells, seeds), out, say=say, show=True))
    with atomic_file(out / "curve.svg") as partial:
        partial.write_text(efficiency.as_svg(found[0]), encoding="utf-8", newline="\n")
    say(f"drawn: {out / 'curve.svg'}")
    if as_json:
        print(json.dumps(efficiency.as_values(found[0])))
    else:
        print(efficiency.as_markdown(found[0]) if markdown else efficiency.as_text(found[0]), end="")


def sweep(
    name: Annotated[str, typer.Argument(help=NAMES)],
    train: File = None,
    dev: File = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs (NAME-sweep); run again to continue.")] = None,
    elmo: Annotated[str | None, typer.Option(help="The biLM: name, folder or file of the model.")] = None,
    only: Annotated[str | None, typer.Option(help="layers (Table 2) or places (Table 3); without, both.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs a setting.")] = 3,
    config: Annotated[Path | None, typer.Option(help="A TOML file with settings; flags override it.")] = None,
    device: Device = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any other setting: section.key=value.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown tables.")] = False,
    as_json: Json = False,
) -> None:
    """Which layers, and where (Tables 2 and 3): baseline, last layer, all layers with lambda 1 and 0.001; places."""
    from elmo.report import layer_tables as tables
    from elmo.tasks.config import make_config
    from elmo.tasks.sweep import make_plan, sweep_cells, train_plan, with_elmo
    from elmo.tasks.task import load_task

    if only not in (None, "layers", "places"):
        raise ConfigError(f"--only is {only!r}.", "Expected layers or places.")
    task = load_task(name)
    out = Path(f"{name}-sweep") if out is None else out
    layers = with_elmo(set_layers(train, dev, None, elmo, config, device, set_), task, out)
    cells = sweep_cells(make_config(task, *layers), layers=only != "places", places=only != "layers")
    records = train_plan(make_plan(task, layers, cells, seeds), out, say=say, show=True)
    kinds = [kind for kind, is_out in ((tables.LAYERS, "places"), (tables.PLACES, "layers")) if only != is_out]
    made = [(kind, tables.make_rows(kind, records)) for kind in kinds]
    if as_json:
        print(json.dumps([tables.as_values(kind, rows) for kind, rows in made]))
    else:
        write = tables.as_markdown if markdown else tables.as_text
        print("\n".join(write(kind, rows) for kind, rows in made), end="")


COMMANDS = {
    "train": (train, EXAMPLE),
    "evaluate": (evaluate, "elmo task evaluate ner-run test.iob2"),
    "predict": (predict, 'elmo task predict ner-run "Ada Lovelace lived in London ."'),
    "table": (table, "elmo task table runs/ --picture table1.svg"),
    "curve": (curve, "elmo task curve ner --train train.iob2 --dev dev.iob2 --shares 1,10,100 --seeds 2"),
    "sweep": (sweep, "elmo task sweep ner --train train.iob2 --dev dev.iob2 --only layers"),
}


class Colors:
    """Marks labelled text: coloured on a terminal, [text]LABEL elsewhere."""

    def __init__(self) -> None:
        self._on = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._colors: dict[str, int] = {}

    def shown(self, text: str, label: str) -> str:
        if not label:
            return text
        if not self._on:
            return f"[{text}]" if text == label else f"[{text}]{label}"
        color = self._colors.setdefault(label, COLORS[len(self._colors) % len(COLORS)])
        suffix = "" if text == label else f" \x1b[2;{color}m{label}"
        return f"\x1b[1;{color}m{text}{suffix}\x1b[0m"


def run_folder(name: str) -> Path:
    """The folder itself, or where `elmo task train NAME` writes."""
    from elmo.tasks.task import TASKS

    return Path(f"{name}-run") if name in TASKS and not Path(name, "record.json").exists() else Path(name)


def set_layers(
    train: Path | None,
    dev: Path | None,
    test: Path | None,
    elmo: str | None,
    config: Path | None,
    device: str | None,
    assignments: list[str] | None,
) -> list[dict[str, Any]]:
    """What the flags of a set of runs ask for, weakest first."""
    from elmo.pretrain.config import read_toml

    data = {"train": text_of(train), "dev": text_of(dev), "test": text_of(test)}
    flags = given(data=data, elmo={"model": elmo}, train={"device": device})
    return [read_toml(config) if config else {}, flags, *map(assignment, assignments or ())]


def needed(path: str) -> Path:
    if not path:
        raise ConfigError("Training needs a train and a dev file.", "Give --train FILE --dev FILE.")
    return Path(path)


def text_of(value: Path | None) -> Any:
    return None if value is None else str(value)
