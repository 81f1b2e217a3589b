"""`elmo task`: trains, evaluates and applies the six task models, and makes the paper's tables from their runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.cli.pretrain import drop_unset, parse_assignment, print_status
from elmo.errors import ConfigError, DataError

EXAMPLE = "elmo task train ner --train train.iob2 --dev dev.iob2 --elmo default"
NAMES = "squad, snli, srl, coref, ner, sst"
COLORS = (36, 33, 35, 32, 34, 31)  # terminal colour codes, assigned to labels in order of appearance

TaskName = Annotated[str, typer.Argument(help=f"Task: {NAMES}.")]
RunName = Annotated[str, typer.Argument(help="Folder of a run, or a task name, which stands for the folder NAME-run.")]
TrainFile = Annotated[
    Path | None, typer.Option(help="Training examples in the format of the task (.gz .bz2 .xz .zst too).")
]
DevFile = Annotated[
    Path | None, typer.Option(help="Development examples in the format of the task (.gz .bz2 .xz .zst too).")
]
ConfigFile = Annotated[Path | None, typer.Option(help="TOML file with settings; flags override it.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", help="Any other setting as section.key=value; may be repeated.")
]
MovedModel = Annotated[
    str | None, typer.Option(help="Current location of the ELMo model, if it has moved since the training.")
]
Device = Annotated[str | None, typer.Option(help="Device: auto, cpu, cuda.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def run() -> None:
    """Train, evaluate and apply the six task models of the paper, with and without ELMo."""


def train(
    name: TaskName,
    train: TrainFile = None,
    dev: DevFile = None,
    test: Annotated[Path | None, typer.Option(help="Test examples, scored once, after training.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; the same command resumes it. Default: NAME-run.")
    ] = None,
    elmo: Annotated[str | None, typer.Option(help="Add ELMo vectors of this model: name, folder or file.")] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Train the weights of the biLM together with the task model.")
    ] = False,
    place: Annotated[
        str | None, typer.Option(help="Where ELMo vectors are added to the task model: input, output, both.")
    ] = None,
    vectors: Annotated[Path | None, typer.Option(help="Static word vectors in word2vec's text format.")] = None,
    config: ConfigFile = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.")] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of runs with consecutive seeds, each in its own folder OUT/seed-N.")
    ] = 1,
    cache: Annotated[
        str | None, typer.Option(help="Where the layers of a frozen biLM are cached: memory, disk, off.")
    ] = None,
    device: Device = None,
    set_: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Train a task model; the same command resumes an interrupted run."""
    from elmo.pretrain.config import read_toml
    from elmo.tasks.config import make_config
    from elmo.tasks.task import load_task
    from elmo.tasks.train import train as train_run

    task = load_task(name)
    if tune and elmo is None and config is None:
        raise ConfigError("--tune needs a biLM.", "Add --elmo MODEL.")
    mode = "tuned" if tune else "frozen" if elmo else None
    flags = drop_unset(
        data={"train": optional_str(train), "dev": optional_str(dev), "test": optional_str(test)},
        words={"vectors": optional_str(vectors)},
        elmo={"mode": mode, "model": elmo, "place": place, "cache": cache},
        train={"seed": seed, "device": device},
    )
    layers = [read_toml(config) if config else {}, flags, *map(parse_assignment, set_ or ())]
    out = Path(f"{name}-run") if out is None else out
    first_seed = make_config(task, *layers).train.seed
    records = []
    for run_seed in range(first_seed, first_seed + seeds):
        settings = make_config(task, *layers, {"train": {"seed": run_seed}})
        folder = out if seeds == 1 else out / f"seed-{run_seed}"
        records.append(train_run(settings, folder, say=print_status, show=True))
    if as_json:
        print(json.dumps(records[0] if seeds == 1 else records))


def evaluate(
    name: RunName,
    file: Annotated[Path, typer.Argument(help="Labelled examples in the format of the task.")],
    elmo: MovedModel = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Score a trained model on labelled examples."""
    from elmo.tasks.predict import evaluate as evaluate_run
    from elmo.tasks.run import open_run

    trained_run = open_run(find_run_folder(name), device=device, elmo_model=elmo)
    task = trained_run.task
    scores = evaluate_run(trained_run, task.read(file), show=None)
    if as_json:
        print(json.dumps({"task": task.name, "metric": task.metric, "scores": scores}))
        return
    for metric, value in scores.items():
        print(f"{metric:<20} {value:6.2f}" + ("  *" if metric == task.metric else ""))


def predict(
    name: RunName,
    texts: Annotated[
        list[str] | None, typer.Argument(help="Raw text; two arguments for a task that reads two texts.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="File with one raw text per line; a tab separates two texts of one example; - is stdin."),
    ] = None,
    examples: Annotated[
        Path | None, typer.Option(help="Tokenised examples in the format of the task; their labels are not used.")
    ] = None,
    tokenizer: Annotated[
        str, typer.Option(help="Tokenizer of raw text: default, whitespace, spacy:LANG, moses:LANG.")
    ] = "default",
    elmo: MovedModel = None,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per example, one per line.")] = False,
) -> None:
    """Print predictions for raw text or a file of examples."""
    from elmo.tasks.predict import predict as predict_run
    from elmo.tasks.raw_text import read_raw
    from elmo.tasks.run import open_run
    from elmo.text.lines import read_lines

    if (texts is not None) + (file is not None) + (examples is not None) != 1:
        raise ConfigError("Expected exactly one source of text.", "Give one of: text, --file FILE, --examples FILE.")
    trained_run = open_run(find_run_folder(name), device=device, elmo_model=elmo)
    task = trained_run.task
    if examples is not None:
        inputs = task.read(examples)
    else:
        lines = [texts or []] if file is None else [line.split("\t") for line in read_lines(file) if line.strip()]
        inputs = read_raw(task, lines, tokenizer)
    colors = LabelColors()
    for example, prediction in zip(inputs, predict_run(trained_run, inputs), strict=True):
        if as_json:
            print(json.dumps(task.as_json(example, prediction), ensure_ascii=False))
        else:
            print(" ".join(colors.mark(piece.text, piece.label) for piece in task.render(example, prediction)))


def table(
    runs: Annotated[list[Path], typer.Argument(help="Folders that contain runs at any depth.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Also draw the table as a chart in this SVG file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make the paper's Table 1 from finished runs.

    Columns are the published scores, our baseline, + ELMo and the relative error reductions.
    """
    from elmo.files import atomic_file
    from elmo.report.table1 import make_table
    from elmo.report.table1_chart import as_svg
    from elmo.report.table1_text import as_markdown, as_text, as_values
    from elmo.tasks.record import find_records

    records = find_records(runs)
    rows = make_table(records)
    if not rows:
        raise DataError(
            f"None of the {len(records)} runs used its complete training file.", "Train with data.fraction=1."
        )
    if picture is not None:
        with atomic_file(picture) as partial:
            partial.write_text(as_svg(rows), encoding="utf-8")
    if as_json:
        print(json.dumps(as_values(rows), ensure_ascii=False))
    else:
        print(as_markdown(rows) if markdown else as_text(rows), end="")


def curve(
    name: TaskName,
    train: TrainFile = None,
    dev: DevFile = None,
    test: Annotated[
        Path | None, typer.Option(help="Test examples, scored after each run; the curve then shows test scores.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; the same command resumes them. Default: NAME-curve.")
    ] = None,
    elmo: Annotated[str | None, typer.Option(help="Model that is added as ELMo: name, folder or file.")] = None,
    shares: Annotated[
        str, typer.Option(help="Shares of the training file in percent, separated by commas.")
    ] = "0.1,0.3,1,3,10,30,100",
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs per point; each run draws its own share.")] = 3,
    updates: Annotated[
        int, typer.Option(min=1, help="Minimum number of updates per run; small shares get more epochs.")
    ] = 300,
    config: ConfigFile = None,
    device: Device = None,
    set_: Assignments = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure sample efficiency (the paper's Figure 1).

    Trains on shares of the training file with and without ELMo and draws OUT/curve.svg.
    """
    from elmo.files import atomic_file
    from elmo.report import sample_efficiency as efficiency
    from elmo.tasks.config import make_config
    from elmo.tasks.learning_curve import curve_cells, read_shares
    from elmo.tasks.sweep import make_plan, train_plan, with_elmo
    from elmo.tasks.task import load_task

    task, fractions = load_task(name), read_shares(shares)
    out = Path(f"{name}-curve") if out is None else out
    layers = with_elmo(sweep_settings(train, dev, test, elmo, config, device, set_), task, out)
    base = make_config(task, *layers)
    cells = curve_cells(base, len(task.read(training_file(base.data.train))), fractions, least_updates=updates)
    if len({cell.settings["data"]["fraction"] for cell in cells}) < 2:
        raise DataError(
            "A curve needs at least two different shares.", "Give more values in --shares, or more training examples."
        )
    records = train_plan(make_plan(task, layers, cells, seeds), out, say=print_status, show=True)
    task_efficiency = efficiency.sample_efficiency(records)[0]
    with atomic_file(out / "curve.svg") as partial:
        partial.write_text(efficiency.as_svg(task_efficiency), encoding="utf-8", newline="\n")
    print_status(f"chart written to {out / 'curve.svg'}")
    if as_json:
        print(json.dumps(efficiency.as_values(task_efficiency)))
    else:
        print(efficiency.as_markdown(task_efficiency) if markdown else efficiency.as_text(task_efficiency), end="")


def sweep(
    name: TaskName,
    train: TrainFile = None,
    dev: DevFile = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; the same command resumes them. Default: NAME-sweep.")
    ] = None,
    elmo: Annotated[str | None, typer.Option(help="Model that is added as ELMo: name, folder or file.")] = None,
    only: Annotated[
        str | None, typer.Option(help="Run only one comparison: layers (Table 2) or places (Table 3).")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs per setting.")] = 3,
    config: ConfigFile = None,
    device: Device = None,
    set_: Assignments = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare layers and places of ELMo (Tables 2 and 3).

    Table 2 has the baseline, the last layer, and all layers with lambda 1 and 0.001. Table 3 has ELMo at the input, at
    the output and at both.
    """
    from elmo.report import layer_tables as tables
    from elmo.tasks.config import make_config
    from elmo.tasks.sweep import make_plan, sweep_cells, train_plan, with_elmo
    from elmo.tasks.task import load_task

    if only not in (None, "layers", "places"):
        raise ConfigError(f"--only is {only!r}.", "Expected layers or places.")
    task = load_task(name)
    out = Path(f"{name}-sweep") if out is None else out
    layers = with_elmo(sweep_settings(train, dev, None, elmo, config, device, set_), task, out)
    cells = sweep_cells(make_config(task, *layers), layers=only != "places", places=only != "layers")
    records = train_plan(make_plan(task, layers, cells, seeds), out, say=print_status, show=True)
    kinds = [kind for kind, other in ((tables.LAYERS, "places"), (tables.PLACES, "layers")) if only != other]
    filled = [(kind, tables.make_rows(kind, records)) for kind in kinds]
    if as_json:
        print(json.dumps([tables.as_values(kind, rows) for kind, rows in filled]))
    else:
        as_lines = tables.as_markdown if markdown else tables.as_text
        print("\n".join(as_lines(kind, rows) for kind, rows in filled), end="")


COMMANDS = {
    "train": (train, EXAMPLE),
    "evaluate": (evaluate, "elmo task evaluate ner-run test.iob2"),
    "predict": (predict, 'elmo task predict ner-run "Ada Lovelace lived in London ."'),
    "table": (table, "elmo task table runs/ --picture table1.svg"),
    "curve": (curve, "elmo task curve ner --train train.iob2 --dev dev.iob2 --shares 1,10,100 --seeds 2"),
    "sweep": (sweep, "elmo task sweep ner --train train.iob2 --dev dev.iob2 --only layers"),
}


class LabelColors:
    """Marks labelled text: with one colour per label on a terminal, as [text]LABEL elsewhere."""

    def __init__(self) -> None:
        self._enabled = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._colors: dict[str, int] = {}

    def mark(self, text: str, label: str) -> str:
        """The text with its label; text without a label is returned unchanged."""
        if not label:
            return text
        if not self._enabled:
            return f"[{text}]" if text == label else f"[{text}]{label}"
        color = self._colors.setdefault(label, COLORS[len(self._colors) % len(COLORS)])
        suffix = "" if text == label else f" \x1b[2;{color}m{label}"
        return f"\x1b[1;{color}m{text}{suffix}\x1b[0m"


def find_run_folder(name: str) -> Path:
    """The folder of a run; the name of a task stands for NAME-run, the default of `elmo task train NAME`."""
    from elmo.tasks.task import TASKS

    return Path(f"{name}-run") if name in TASKS and not Path(name, "record.json").exists() else Path(name)


def sweep_settings(
    train: Path | None,
    dev: Path | None,
    test: Path | None,
    elmo: str | None,
    config: Path | None,
    device: str | None,
    assignments: list[str] | None,
) -> list[dict[str, Any]]:
    """The settings of a curve or sweep in rising precedence: configuration file, flags, --set assignments."""
    from elmo.pretrain.config import read_toml

    data = {"train": optional_str(train), "dev": optional_str(dev), "test": optional_str(test)}
    flags = drop_unset(data=data, elmo={"model": elmo}, train={"device": device})
    return [read_toml(config) if config else {}, flags, *map(parse_assignment, assignments or ())]


def training_file(path: str) -> Path:
    """The path of the training file; an empty path is an error."""
    if not path:
        raise ConfigError("Training needs a train and a dev file.", "Give --train FILE --dev FILE.")
    return Path(path)


def optional_str(value: Path | None) -> Any:
    return None if value is None else str(value)
