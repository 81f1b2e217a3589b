"""`elmo merge`: the shards of `elmo embed --shard` to one file."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Annotated

import typer

EXAMPLE = "elmo merge corpus.hdf5"


def run(
    target: Annotated[str, typer.Argument(metavar="OUT", help="The OUT that every shard was given.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
    forget_sentences: Annotated[
        bool, typer.Option("--forget-sentences", help="hdf5: leave sentence_to_index out.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Begin even if the disk looks too small.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="At the end, one JSON object on stdout.")] = False,
) -> None:
    """Put the blocks of all shards together; says which shards are missing, if any."""
    from elmo.embed.dump.assemble import merge

    summary = merge(target, overwrite=overwrite, forget_sentences=forget_sentences, force=force)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(summary)))
    else:
        print(
            f"{summary.path}: {summary.lines:,} lines, {summary.tokens:,} tokens, {summary.bytes / 1e6:,.1f} MB",
            file=sys.stderr,
        )
