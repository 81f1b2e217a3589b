"""`elmo convert`: any model that can be read into this package's folder, or into the published HDF5 layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from elmo.errors import ConfigError

EXAMPLE = "elmo convert options.json model/ --storage int8"


def run(
    model: Annotated[str, typer.Argument(help="A name, a folder, a file, or the options file of a pair.")],
    folder: Annotated[Path | None, typer.Argument(metavar="OUT", help="The folder to write; or --out.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The folder to write, as everywhere else.")] = None,
    weights: Annotated[str, typer.Option("--weights", help="The weights file, where MODEL is its options file.")] = "",
    to: Annotated[str, typer.Option("--to", help="elmo or hdf5; hdf5 where OUT's name says so, else elmo.")] = "",
    storage: Annotated[
        str, typer.Option("--storage", "--dtype", help="float32, float16 (half the size) or int8 (a quarter), rounded.")
    ] = "float32",
    without_head: Annotated[bool, typer.Option("--without-head", help="Leave the softmax out.")] = False,
    card: Annotated[Path | None, typer.Option("--card", help="Markdown to put in as the model card.")] = None,
    name: Annotated[str, typer.Option("--name", help="What the model is to be called.")] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
    allow_nonfinite: Annotated[bool, typer.Option("--allow-nonfinite", help="Keep NaN and infinite weights.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
) -> None:
    """Convert a model to this package's format (elmo) or to options.json + weights.hdf5 (hdf5)."""
    if (folder is None) == (out is None):
        raise ConfigError("One folder to write is needed.", f"As in: {EXAMPLE}")
    written = folder or out or Path()
    target = to or ("hdf5" if written.name.lower().endswith(("hdf5", "h5")) else "elmo")
    if target not in ("elmo", "hdf5"):
        raise ConfigError(f"--to is {target!r}; expected elmo or hdf5.")
    from elmo.weights.convert import convert_model

    report = convert_model(
        model,
        written,
        weights=weights or None,
        target=target,
        storage=storage,
        without_head=without_head,
        card=card,
        name=name,
        overwrite=overwrite,
        allow_nonfinite=allow_nonfinite,
    )
    if as_json:
        typer.echo(json.dumps(report))
        return
    typer.echo(f"{report['from_format']} -> {report['to_format']}: {written}")
    for file in report["files"]:
        typer.echo(f"{file['sha256']}  {file['bytes']:>13,}  {file['name']}")
    for reason in report["not_exact"]:
        typer.echo(f"not exact: {reason}", err=True)
