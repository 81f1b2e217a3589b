"""`elmo fetch`: downloads a published model into the user's folder of models."""

from __future__ import annotations

import json
from typing import Annotated

import typer

EXAMPLE = "elmo fetch original"


def run(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of a published model (`elmo models` lists them), or hf://USER/NAME of the Hugging Face Hub."
        ),
    ],
    url_base: Annotated[
        str | None,
        typer.Option(
            help="Address of a mirror that has the files as BASE/NAME/FILE. Default: the environment variable "
            "ELMO_MIRROR, or else the publisher's address."
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds without data after which to try again. Default: 30.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the folder.")] = False,
) -> None:
    """Download a published model once, so that `elmo.load(NAME)` and `--model NAME` find it.

    An interrupted download continues where it ended. Proxies are those of the environment (https_proxy, no_proxy). The
    folder is $ELMO_HOME/models/NAME, or ~/.cache/elmo/models/NAME; models of the hub are in the hub's own cache.
    """
    from elmo.weights.fetch import fetch_model
    from elmo.weights.model_names import resolve_alias

    folder = fetch_model(name, url_base=url_base, show=True, timeout=timeout)
    if as_json:
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        typer.echo(json.dumps({"name": resolve_alias(name), "folder": str(folder), "files": files}, ensure_ascii=False))
        return
    typer.echo(str(folder))
