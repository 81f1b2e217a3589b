"""`elmo task curve` and `elmo task sweep`: sets of task runs for the paper's Figure 1 and Tables 2 and 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.cli.options import (
    AsJson,
    Assignments,
    ConfigFile,
    DevFile,
    OptionalDevice,
    TaskName,
    TrainFile,
    drop_unset,
    optional_str,
    print_status,
)
from elmo.errors import ConfigError, DataError


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
    device: OptionalDevice = None,
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
    from elmo.tasks.learning_curve import learning_curve_cells, read_shares
    from elmo.tasks.sweep import make_plan, train_plan, with_elmo
    from elmo.tasks.task import load_task, read_file

    task, fractions = load_task(name), read_shares(shares)
    out = Path(f"{name}-curve") if out is None else out
    sources = with_elmo(sweep_settings(train, dev, test, elmo, config, device, set_), task, out)
    base = make_config(task, *sources)
    num_examples = len(read_file(task, training_file(base.data.train), base.data.tokenizer))
    cells = learning_curve_cells(base, num_examples, fractions, least_updates=updates)
    if len({cell.settings["data"]["fraction"] for cell in cells}) < 2:
        raise DataError(
            "A curve needs at least two different shares.", "Give more values in --shares, or more training examples."
        )
    records = train_plan(make_plan(task, sources, cells, seeds), out, say=print_status, show=True)
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
    device: OptionalDevice = None,
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
    sources = with_elmo(sweep_settings(train, dev, None, elmo, config, device, set_), task, out)
    cells = sweep_cells(make_config(task, *sources), layers=only != "places", places=only != "layers")
    records = train_plan(make_plan(task, sources, cells, seeds), out, say=print_status, show=True)
    kinds = [kind for kind, other in ((tables.LAYERS, "places"), (tables.PLACES, "layers")) if only != other]
    filled = [(kind, tables.make_rows(kind, records)) for kind in kinds]
    if as_json:
        print(json.dumps([tables.as_values(kind, rows) for kind, rows in filled]))
    else:
        as_lines = tables.as_markdown if markdown else tables.as_text
        print("\n".join(as_lines(kind, rows) for kind, rows in filled), end="")


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
    from elmo.settings import parse_assignment, read_toml

    data = {"train": optional_str(train), "dev": optional_str(dev), "test": optional_str(test)}
    flags = drop_unset(data=data, elmo={"model": elmo}, train={"device": device})
    return [read_toml(config) if config else {}, flags, *map(parse_assignment, assignments or ())]


def training_file(path: str) -> Path:
    """The path of the training file; an empty path is an error."""
    if not path:
        raise ConfigError("Training needs a train and a dev file.", "Give --train FILE --dev FILE.")
    return Path(path)
