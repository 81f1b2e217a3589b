"""`elmo convert`: converts a model of any readable format to this package's format or to the published HDF5 layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.options import ModelFile, Overwrite, Weights
from elmo.errors import ConfigError

EXAMPLE = "elmo convert options.json model/ --storage int8"


def run(
    model: ModelFile,
    folder: Annotated[Path | None, typer.Argument(metavar="OUT", help="Folder to write; the same as --out.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write; the same as OUT.")] = None,
    weights: Weights = "",
    to: Annotated[
        str,
        typer.Option(
            "--to", help="Output format: elmo or hdf5. Default: hdf5 if OUT ends in hdf5 or h5, otherwise elmo."
        ),
    ] = "",
    storage: Annotated[
        str,
        typer.Option(
            "--storage",
            "--dtype",
            help="Number type: float32, float16 (half the size) or int8 (a quarter); the last two round.",
        ),
    ] = "float32",
    head_bits: Annotated[
        int | None,
        typer.Option("--head-bits", help="Bits per weight of the softmax matrix: 4, 5 or 6. Default: as --storage."),
    ] = None,
    without_head: Annotated[bool, typer.Option("--without-head", help="Write the model without its softmax.")] = False,
    card: Annotated[Path | None, typer.Option("--card", help="Markdown file to include as the model card.")] = None,
    name: Annotated[str, typer.Option("--name", help="New name of the model.")] = "",
    overwrite: Overwrite = False,
    allow_nonfinite: Annotated[
        bool, typer.Option("--allow-nonfinite", help="Accept NaN and infinite weights.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> None:
    """Convert a model to this package's format (elmo) or to options.json + weights.hdf5 (hdf5)."""
    if (folder is None) == (out is None):
        raise ConfigError("Name one folder to write, as OUT or with --out.", f"Example: {EXAMPLE}")
    out_folder = folder or out or Path()
    target = to or ("hdf5" if out_folder.name.lower().endswith(("hdf5", "h5")) else "elmo")
    if target not in ("elmo", "hdf5"):
        raise ConfigError(f"--to is {target!r}; expected elmo or hdf5.")
    from elmo.weights.convert import convert_model

    report = convert_model(
        model,
        out_folder,
        weights=weights or None,
        target=target,
        storage=storage,
        head_bits=head_bits,
        without_head=without_head,
        card=card,
        name=name,
        overwrite=overwrite,
        allow_nonfinite=allow_nonfinite,
    )
    if as_json:
        typer.echo(json.dumps(report))
        return
    typer.echo(f"{report['from_format']} -> {report['to_format']}: {out_folder}")
    for file in report["files"]:
        typer.echo(f"{file['sha256']}  {file['bytes']:>13,}  {file['name']}")
    for reason in report["not_exact"]:
        typer.echo(f"not exact: {reason}", err=True)
