"""`elmo task`: trains, evaluates and applies the six task models, and makes the paper's tables from their runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.cli.options import (
    AsJson,
    Assignments,
    ConfigFile,
    DevFile,
    Encoding,
    OptionalDevice,
    Seed,
    TaskName,
    Tokenizer,
    TrainFile,
    drop_unset,
    known_tokenizer,
    optional_str,
    print_status,
    warn_of_file_names,
)
from elmo.cli.task_sets import curve, sweep
from elmo.errors import ConfigError, DataError
from elmo.settings import parse_assignment, read_toml

EXAMPLE = "elmo task train ner --train train.iob2 --dev dev.iob2 --elmo default"
COLORS = (36, 33, 35, 32, 34, 31)  # terminal colour codes, assigned to labels in order of appearance

RunName = Annotated[str, typer.Argument(help="Folder of a run, or a task name, which stands for the folder NAME-run.")]
MovedModel = Annotated[
    str | None, typer.Option(help="Current location of the ELMo model, if it has moved since the training.")
]


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
    finetune_bilm: Annotated[
        bool,
        typer.Option(
            "--finetune-bilm",
            help="First fine-tune the biLM on the training text without labels; the tuned model is OUT/bilm.",
        ),
    ] = False,
    finetune_epochs: Annotated[
        float | None, typer.Option(help="Passes over the training text with --finetune-bilm. Default: 1.")
    ] = None,
    place: Annotated[
        str | None, typer.Option(help="Where ELMo vectors are added to the task model: input, output, both.")
    ] = None,
    vectors: Annotated[Path | None, typer.Option(help="Static word vectors in word2vec's text format.")] = None,
    config: ConfigFile = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            callback=known_tokenizer,
            help="Tokenizer of raw text in the files of sst (.tsv), snli and squad, and later in `elmo task predict`: "
            "default (English), unicode (any language), spacy:LANG, moses:LANG, whitespace. Default: default.",
        ),
    ] = None,
    seed: Seed = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of runs with consecutive seeds, each in its own folder OUT/seed-N.")
    ] = 1,
    cache: Annotated[
        str | None, typer.Option(help="Where the layers of a frozen biLM are cached: memory, disk, off.")
    ] = None,
    device: OptionalDevice = None,
    set_: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Train a task model; the same command resumes an interrupted run."""
    from elmo.settings import merge
    from elmo.tasks.config import make_config
    from elmo.tasks.task import load_task
    from elmo.tasks.train import train as train_run

    task = load_task(name)
    if tune and elmo is None and config is None:
        raise ConfigError("--tune needs a biLM.", "Add --elmo MODEL.")
    mode = "tuned" if tune else "frozen" if elmo else None
    flags = drop_unset(
        data={
            "train": optional_str(train),
            "dev": optional_str(dev),
            "test": optional_str(test),
            "tokenizer": tokenizer,
        },
        words={"vectors": optional_str(vectors)},
        elmo={"mode": mode, "model": elmo, "place": place, "cache": cache},
        train={"seed": seed, "device": device},
    )
    sources: dict[str, Any] = {}
    finetune_flags = drop_unset(finetune={"epochs": finetune_epochs})
    for tables in (read_toml(config) if config else {}, flags, finetune_flags, *map(parse_assignment, set_ or ())):
        sources = merge(sources, tables)
    finetuning = sources.pop("finetune", None)
    if finetuning is not None and not finetune_bilm:
        raise ConfigError("The settings under 'finetune' have no effect.", "Add --finetune-bilm.")
    out = Path(f"{name}-run") if out is None else out
    first = make_config(task, sources)
    records = []
    for run_seed in range(first.train.seed, first.train.seed + seeds):
        settings = make_config(task, sources, {"train": {"seed": run_seed}})
        folder = out if seeds == 1 else out / f"seed-{run_seed}"
        if finetune_bilm:
            from elmo.settings import parse_settings
            from elmo.tasks.finetune import FinetuneConfig, finetune_and_train
            from elmo.tasks.run import BILM

            tuning = parse_settings(FinetuneConfig, finetuning or {}, section="finetune")
            record = finetune_and_train(settings, folder, tuning, bilm=out / BILM, say=print_status, show=True)
        else:
            record = train_run(settings, folder, say=print_status, show=True)
        records.append(record)
    if as_json:
        print(json.dumps(records[0] if seeds == 1 else records))


def evaluate(
    name: RunName,
    file: Annotated[Path, typer.Argument(help="Labelled examples in the format of the task.")],
    elmo: MovedModel = None,
    device: OptionalDevice = None,
    as_json: AsJson = False,
) -> None:
    """Score a trained model on labelled examples."""
    from elmo.tasks.predict import evaluate as evaluate_run
    from elmo.tasks.run import open_run
    from elmo.tasks.task import read_labelled_file

    trained_run = open_run(find_run_folder(name), device=device, elmo_model=elmo)
    task = trained_run.task
    examples = read_labelled_file(task, file, trained_run.config.data.tokenizer)
    scores = evaluate_run(trained_run, examples, show=None)
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
    tokenizer: Tokenizer = None,
    encoding: Encoding = "utf-8",
    elmo: MovedModel = None,
    device: OptionalDevice = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per example; with --file, line is its line from 0.")
    ] = False,
) -> None:
    """Print predictions for raw text or a file of examples."""
    from elmo.tasks.predict import predict as predict_run
    from elmo.tasks.raw_text import read_raw, read_raw_lines
    from elmo.tasks.run import open_run
    from elmo.tasks.task import read_file
    from elmo.text.lines import read_lines
    from elmo.text.tokenizer_function import choose_tokenizer

    if (texts is not None) + (file is not None) + (examples is not None) != 1:
        raise ConfigError("Expected exactly one source of text.", "Give one of: text, --file FILE, --examples FILE.")
    if examples is not None and tokenizer is not None:
        raise ConfigError(
            "--tokenizer was given, but the examples are read as in the training.", "It is for raw text; leave it out."
        )
    warn_of_file_names(texts or [])
    trained_run = open_run(find_run_folder(name), device=device, elmo_model=elmo)
    task = trained_run.task
    line_numbers: list[int] = []  # of each example of a file of raw text
    if examples is not None:
        inputs = read_file(task, examples, trained_run.config.data.tokenizer)
    else:
        own = trained_run.tokenizer_name
        chosen = str(choose_tokenizer(None if own == "default" else own, tokenizer) or "default")
        if file is None:
            inputs = read_raw(task, [texts or []], chosen)
        else:
            numbered = read_raw_lines(task, read_lines(file, encoding=encoding), file, chosen)
            line_numbers, inputs = [number for number, _ in numbered], [example for _, example in numbered]
            if not inputs:
                print_status(f"{file}: the file has no text, so there are no predictions.")
    colors = LabelColors()
    for index, (example, prediction) in enumerate(zip(inputs, predict_run(trained_run, inputs), strict=True)):
        if as_json:
            line = {"line": line_numbers[index]} if line_numbers else {}
            print(json.dumps({**line, **task.as_json(example, prediction)}, ensure_ascii=False))
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
    from elmo.report.run_groups import without_finetuned
    from elmo.report.table1 import make_table
    from elmo.report.table1_formats import as_markdown, as_svg, as_text, as_values
    from elmo.tasks.record import find_records

    records = find_records(runs)
    rows = make_table(without_finetuned(records))
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
