"""`elmo bench`: how fast embedding is here, every path side by side, and how its cost grows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmo.errors import ConfigError

if TYPE_CHECKING:
    from elmo.bench.growth import Growth

EXAMPLE = "elmo bench --size small,original --text sentences.txt"


def run(
    size: Annotated[str, typer.Option(help="Presets with random weights: tiny, small, medium, original.")] = "",
    model: Annotated[str, typer.Option(help="A model of yours instead: name, folder or file.")] = "",
    text: Annotated[Path | None, typer.Option(help="A sentence a line; else prose that Python carries.")] = None,
    tokenizer: Annotated[str, typer.Option(help="How --text is split: default, whitespace, ...")] = "default",
    dtype: Annotated[str, typer.Option(help="Of float32, bfloat16, int8.")] = "float32,bfloat16,int8",
    path: Annotated[str, typer.Option(help="Only these paths, by name, as in: loop,native int8")] = "",
    feed: Annotated[str, typer.Option(help="Of bulk (all sentences at once), single (one a call).")] = "bulk,single",
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; else as many as torch takes.")] = None,
    sentences: Annotated[int | None, typer.Option(min=1, help="How many; else enough for the size.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Turns of every path after the first: 3, full 5.")] = None,
    full: Annotated[bool, typer.Option("--full", help="small and original, more sentences, peak memory.")] = False,
    growth: Annotated[bool, typer.Option("--growth", help="Instead: how cost grows, on the fastest path.")] = False,
    seconds: Annotated[float, typer.Option(min=1, help="Of --growth, about.")] = 60.0,
    pictures: Annotated[Path | None, typer.Option(help="Draw --growth as SVG files in this folder.")] = None,
    cpu_time: Annotated[bool, typer.Option("--cpu-time", help="Of one thread: on a machine that does more.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """Measure every path from token lists to all layers on this machine: others', plain, fast, and the limit.

    Words a second, medians of rounds in turn, the word memory empty at the start of every call. About a minute.
    """
    if size and model:
        raise ConfigError("Both --size and --model were given.", "Measure one after the other.")
    if pictures is not None and not growth:
        raise ConfigError("--pictures draws what --growth measures.", "Add --growth.")
    import torch

    from elmo.bench.run import BenchConfig, growth_report, run_comparison, run_growth
    from elmo.bench.table import comparison_table, growth_tables
    from elmo.records import format_record, make_record

    if threads is not None:
        torch.set_num_threads(threads)
    config = BenchConfig(
        sizes=_words(size) or (["small", "original"] if full else ["small"]),
        model=model,
        text=text,
        tokenizer=tokenizer,
        dtypes=_words(dtype),
        paths=_words(path),
        feeds=_words(feed),
        sentences=sentences,
        rounds=rounds or (5 if full else 3),
        quick=not full,
        memory=full,
        cpu_time=cpu_time,
    )
    if growth:
        grown = run_growth(config, seconds=seconds, show=True)
        if pictures is not None:
            _draw(grown, f"{model or config.sizes[0]}, {config.dtypes[0]}", pictures)
        record = make_record("bench", growth_report(config, grown))
        typer.echo(format_record(record) if as_json else growth_tables(grown))
        return
    done = run_comparison(config, show=True)
    record = make_record("bench", done.as_dict())
    typer.echo(format_record(record) if as_json else comparison_table(done.results, done.peaks))


def _draw(grown: dict[str, Growth], what: str, folder: Path) -> None:
    from elmo.charts.line import Line, line_chart
    from elmo.files import atomic_file

    folder.mkdir(parents=True, exist_ok=True)
    for name, one in grown.items():
        line = Line(label=what, points=[(float(p.at), p.words_per_second, None) for p in one.points])
        title = f"{what}: words a second by {one.says}"
        drawn = line_chart(
            f"growth-{name}", [line], title=title, x_label=one.says, y_label="words/s", log_x=True, from_zero=True
        )
        with atomic_file(folder / f"growth_{name}.svg") as partial:
            partial.write_text(drawn, encoding="utf-8")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
