"""`elmo export onnx|torch`: writes a model's network for other runtimes: ONNX, torch.export and AOTInductor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.cli.options import ModelFile, Overwrite, Weights, print_status

ONNX_EXAMPLE = "elmo export onnx english english.onnx"
TORCH_EXAMPLE = "elmo export torch english english.pt2 --aoti"

Check = Annotated[
    bool, typer.Option("--check/--no-check", help="Compare the written file with the model on trial inputs.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")]


def export_onnx_file(
    model: ModelFile,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File to write, with the suffix .onnx.")],
    weights: Weights = "",
    storage: Annotated[
        str,
        typer.Option("--storage", help="Number type of the weights: float32, or int8 (a quarter of the size; rounds)."),
    ] = "float32",
    external_data: Annotated[
        bool, typer.Option("--external-data", help="Write the weights to OUT.data. Default: only above 2 GB.")
    ] = False,
    check: Check = True,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a model as an ONNX file and compare it with the model in onnxruntime."""
    from elmo.integrations.onnx.export import export_onnx

    report = export_onnx(
        model,
        out,
        weights=weights or None,
        storage=storage,
        external_data=external_data,
        check=check,
        overwrite=overwrite,
    )
    _print_report(report, as_json)


def export_torch_file(
    model: ModelFile,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File to write, with the suffix .pt2.")],
    weights: Weights = "",
    aoti: Annotated[
        bool,
        typer.Option("--aoti", help="Compile with AOTInductor, for processors like this one; needs a C++ compiler."),
    ] = False,
    check: Check = True,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a model as a program of torch.export, or compiled by AOTInductor, and compare it with the model."""
    from elmo.integrations.torch_export import export_torch

    report = export_torch(model, out, weights=weights or None, aoti=aoti, check=check, overwrite=overwrite)
    _print_report(report, as_json)


def _print_report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report))
        return
    for file in report["files"]:
        typer.echo(f"{file['sha256']}  {file['bytes']:>13,}  {file['name']}")
    for kind in ("inputs", "outputs"):
        for name, shape in report[kind].items():
            typer.echo(f"{kind[:-1]:<6} {name:<6} ({', '.join(map(str, shape))})")
    if report["max_difference"] is None:
        print_status("not checked")
    else:
        typer.echo(f"largest difference from the model in PyTorch: {report['max_difference']:.1e}")
    if report.get("rounding"):
        rounding = report["rounding"]
        if rounding["max_difference"] == 0:
            typer.echo("int8 is exact: the model's weights are stored so")
        else:
            typer.echo(
                f"rounding to int8 changes a value of a sample text by at most {rounding['max_difference']:.2g}, "
                f"the lowest cosine of a vector is {rounding['lowest_cosine']:.5f}"
            )
