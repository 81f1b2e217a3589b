"""`elmo merge`: joins the shards written by `elmo embed --shard` into one file."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from elmo.cli.options import Overwrite, print_status

EXAMPLE = "elmo merge corpus.hdf5"


def run(
    target: Annotated[str, typer.Argument(metavar="OUT", help="The OUT argument that all shards were started with.")],
    overwrite: Overwrite = False,
    forget_sentences: Annotated[
        bool, typer.Option("--forget-sentences", help="hdf5: do not write the dataset sentence_to_index.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Start even if the free disk space seems insufficient.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as one JSON object on stdout.")] = False,
) -> None:
    """Join the blocks of all shards into one file; missing shards are an error that names them."""
    from elmo.embed.dump.assemble import merge

    summary = merge(target, overwrite=overwrite, forget_sentences=forget_sentences, force=force)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(summary)))
    else:
        print_status(
            f"{summary.path}: {summary.lines:,} lines, {summary.tokens:,} tokens, {summary.bytes / 1e6:,.1f} MB"
        )
