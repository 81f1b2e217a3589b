"""`elmo bench`: compares the speed of the embedding implementations and measures how the cost grows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmo.cli.command_line import command_line
from elmo.cli.options import Tokenizer
from elmo.errors import ConfigError

if TYPE_CHECKING:
    from elmo.bench.growth import Growth

EXAMPLE = "elmo bench --size small,original --text sentences.txt"


def run(
    size: Annotated[
        str,
        typer.Option(
            help="Presets to measure with random weights, separated by commas: tiny, small, medium, original."
        ),
    ] = "",
    model: Annotated[str, typer.Option(help="Measure this model instead: name, folder or file.")] = "",
    text: Annotated[
        Path | None,
        typer.Option(help="Text to embed, one sentence per line. Default: prose from Python's standard library."),
    ] = None,
    tokenizer: Tokenizer = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Number types to measure, separated by commas: float32, bfloat16, int8. Default: all; with --growth "
            "float32."
        ),
    ] = None,
    path: Annotated[
        str, typer.Option(help="Measure only the implementations with these names, for example: loop,native int8")
    ] = "",
    feed: Annotated[
        str | None,
        typer.Option(
            help="Calls to measure: bulk (all sentences in one call), single (one sentence per call). Default: both."
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of CPU threads. Default: torch's choice.")] = None,
    sentences: Annotated[
        int | None, typer.Option(min=1, help="Number of sentences. Default: chosen by model size.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Number of rounds after the warm-up round. Default: 3; with --full 5.")
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Measure small and original on more sentences, and the peak memory as well."),
    ] = False,
    growth: Annotated[
        bool, typer.Option("--growth", help="Measure how the cost of the fastest implementation grows instead.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help="Approximate duration of the --growth measurement, in seconds. Default: 60."),
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Folder for charts of the --growth measurement (SVG files).")
    ] = None,
    cpu_time: Annotated[
        bool,
        typer.Option("--cpu-time", help="Measure CPU time of one thread, for a machine that runs other work as well."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Measure embedding speed on this machine: other packages, plain PyTorch, the fast paths and the hardware limit.

    The unit is words per second, from token lists to the vectors of all layers. Implementations take turns; medians
    over the rounds are printed. The word cache is empty at the start of every call. The default takes about a minute.
    """
    if size and model:
        raise ConfigError("Both --size and --model were given.", "Run the command once for each.")
    if growth:
        _check_growth(size, dtype, {"path": path, "feed": feed, "sentences": sentences, "rounds": rounds, "full": full})
    else:
        for flag, value in (("--pictures", pictures), ("--seconds", seconds)):
            if value is not None:
                raise ConfigError(f"{flag} needs the --growth measurement.", f"Add --growth, or leave {flag} out.")
    if tokenizer is not None and text is None:
        raise ConfigError("--tokenizer was given without --text.", "Add --text FILE, or leave --tokenizer out.")
    seconds = seconds or 60.0
    import torch

    from elmo.bench.compare import FEEDS
    from elmo.bench.run import BenchConfig, growth_record, run_comparison, run_growth
    from elmo.bench.table import comparison_table, growth_tables
    from elmo.bench.variants import DTYPES
    from elmo.records import format_record

    if threads is not None:
        torch.set_num_threads(threads)
    config = BenchConfig(
        sizes=_words(size) or (["small", "original"] if full else ["small"]),
        model=model,
        text=text,
        tokenizer=_text_tokenizer(tokenizer, model if text is not None else ""),
        dtypes=_words(dtype) if dtype is not None else DTYPES[:1] if growth else DTYPES,
        paths=_words(path),
        feeds=FEEDS if feed is None else _words(feed),
        sentences=sentences,
        rounds=rounds or (5 if full else 3),
        quick=not full,
        memory=full,
        cpu_time=cpu_time,
    )
    command = command_line(
        "bench",
        size=None if model else ",".join(config.sizes), model=model or None, text=text and text.name,
        tokenizer=tokenizer, dtype=",".join(config.dtypes), path=path or None,
        feed=None if growth else ",".join(config.feeds),
        threads=threads, sentences=sentences, rounds=None if growth else config.rounds, full=full, growth=growth,
        seconds=seconds if growth else None, cpu_time=cpu_time, json=True,
    )  # fmt: skip
    if growth:
        growth_curves = run_growth(config, seconds=seconds, show=True)
        if pictures is not None:
            _draw_growth(growth_curves, f"{model or config.sizes[0]}, {config.dtypes[0]}", pictures)
        typer.echo(
            format_record(growth_record(config, growth_curves, command)) if as_json else growth_tables(growth_curves)
        )
        return
    comparison = run_comparison(config, show=True)
    typer.echo(
        format_record(comparison.as_record(command))
        if as_json
        else comparison_table(comparison.results, comparison.peaks)
    )


def _check_growth(size: str, dtype: str | None, of_comparison: dict[str, object]) -> None:
    """Raises an error for what --growth, which measures one implementation of one model, would ignore."""
    for name, value in of_comparison.items():
        if value:
            raise ConfigError(
                f"--{name} was given, but --growth measures the fastest implementation with calls of its own.",
                f"Leave --{name} or --growth out.",
            )
    for name, values in (("size", _words(size)), ("dtype", _words(dtype or ""))):
        if len(values) > 1:
            raise ConfigError(
                f"--{name} is {','.join(values)}; --growth measures one.", "Run the command once for each."
            )


def _draw_growth(growth_curves: dict[str, Growth], label: str, folder: Path) -> None:
    from elmo.charts.line import Line, line_chart
    from elmo.files import atomic_file

    folder.mkdir(parents=True, exist_ok=True)
    for name, curve in growth_curves.items():
        line = Line(label=label, points=[(float(p.at), p.words_per_second, None) for p in curve.points])
        title = f"{label}: words per second by {curve.says}"
        svg = line_chart(
            f"growth-{name}", [line], title=title, x_label=curve.says, y_label="words/s", log_x=True, from_zero=True
        )
        with atomic_file(folder / f"growth_{name}.svg") as partial:
            partial.write_text(svg, encoding="utf-8")


def _text_tokenizer(tokenizer: str | None, model: str) -> str:
    """The tokenizer of --text: the given one, or else that of the model."""
    from elmo.text.tokenizer_function import choose_tokenizer
    from elmo.weights.lookup import find_model

    own = find_model(model, lazy_head=True).tokenizer if model else None
    chosen = choose_tokenizer(own, tokenizer) or "default"
    assert isinstance(chosen, str)
    return chosen


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
