"""The plan of a sharded embedding: the input files, the model and the settings that decide the bytes of every shard.

`_plan.json` in the output folder stores it; workers read it there, and a repeated command continues only the same plan.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmo import __version__
from elmo.embed.dump.options import DumpOptions
from elmo.embed.dump.plan import layout_of
from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import choose_layers
from elmo.embed.model_checksum import model_checksum
from elmo.embed.shards.options import ReadOptions
from elmo.embed.shards.source_file import SourceFile
from elmo.embed.shards.target import PLAN_NAME
from elmo.errors import OutputError
from elmo.files import atomic_file, read_json
from elmo.schema import COUNT, List, Maybe, OneOf, check_shape

MAX_BYTES = 1 << 30
Plan = dict[str, Any]
_SOURCE = {
    "path": str,
    "kind": OneOf("text", "jsonl", "csv", "tsv", "parquet"),
    "bytes": COUNT,
    "sha256": str,
    "rows": COUNT,
    "offsets": Maybe(List(COUNT)),
}
_PLAN = {"version": COUNT, "settings": {"model": {"sha256": str}}, "sources": List(_SOURCE)}
_SHARD = {"name": str, "source": COUNT, "first_line": COUNT, "lines": COUNT, "bytes": COUNT, "sha256": str}
_START_OVER = "Choose another output, or start over with --overwrite."


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Consecutive rows of one source file, which become one Parquet file."""

    source: int  # number of the file in the plan
    number: int  # in the file
    first_row: int
    num_rows: int

    @property
    def name(self) -> str:
        return f"part-{self.source:05d}-{self.number:06d}.parquet"


def make_plan(embedder: Embedder, sources: Sequence[SourceFile], options: DumpOptions, read: ReadOptions) -> Plan:
    """The plan as JSON values."""
    choice = choose_layers(options.chosen_layers, embedder.num_layers)
    layout = layout_of(embedder, choice, options)
    settings = {
        "elmo": __version__,
        "model": {"name": embedder.name, "sha256": model_checksum(embedder)},
        "text": {"tokenizer": embedder.tokenizer_name, **dataclasses.asdict(read)},
        "vectors": {"layers": choice.matrix.tolist(), "pool": options.pool, "layout": dataclasses.asdict(layout)},
        "compute": {
            "state": embedder.state,
            "dtype": embedder.dtype,
            "batch_size": options.batch_size,
            "max_tokens": options.max_tokens,
        },
        "blocks": {"lines": options.block_lines, "tokens": options.block_tokens},
    }
    return {"version": 1, "settings": settings, "sources": [source.as_json() for source in sources]}


def identity(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a plan that decides the bytes: without the names of the model and of the files."""
    settings = {**plan["settings"], "model": {"sha256": plan["settings"]["model"]["sha256"]}}
    keys = ("kind", "bytes", "sha256", "rows")
    sources = {f"file {number}": [file[key] for key in keys] for number, file in enumerate(plan["sources"])}
    return {"version": plan["version"], **settings, "sources": sources}


def plan_checksum(plan: Mapping[str, Any]) -> str:
    """The checksum that every shard of a plan carries."""
    return hashlib.sha256(json.dumps(identity(plan), sort_keys=True).encode()).hexdigest()


def shards_of(sources: Sequence[SourceFile], shard_rows: int) -> list[Shard]:
    """All shards in the order of their names."""
    return [
        Shard(source=i, number=first // shard_rows, first_row=first, num_rows=min(shard_rows, source.rows - first))
        for i, source in enumerate(sources)
        for first in range(0, source.rows, shard_rows)
    ]


def sources_of(plan: Mapping[str, Any]) -> list[SourceFile]:
    """The source files of a plan."""
    return [SourceFile(**{name: source[name] for name in _SOURCE}) for source in plan["sources"]]


def write_values(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a plan or a manifest, completely or not at all."""
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def read_plan(path: Path) -> Plan | None:
    """A plan or a manifest; None where it is missing."""
    if not path.exists():
        return None
    try:
        plan = read_json(path, error=OutputError, max_bytes=MAX_BYTES)
    except OutputError as error:
        raise OutputError(error.message, _START_OVER) from error
    shape = _PLAN if path.name == PLAN_NAME else {**_PLAN, "shards": List(_SHARD)}
    check_shape(plan, shape, path, error=OutputError, hint=_START_OVER)
    return plan
