"""The worker of a sharded embedding: reads the rows of a shard, embeds them and writes one Parquet file.

One process has one worker; on a cluster, each actor has one. Workers share nothing but the output folder.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from elmo.embed.dump.blocks import Block, group_sentences
from elmo.embed.dump.embed_block import count_cut_tokens, embed_block
from elmo.embed.dump.options import DumpOptions
from elmo.embed.dump.part_file import Layout
from elmo.embed.dump.plan import layout_of
from elmo.embed.dump.write_parquet import write_blocks
from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import choose_layers
from elmo.embed.load import load
from elmo.embed.model_checksum import model_checksum
from elmo.embed.shards.options import ModelSettings, ReadOptions
from elmo.embed.shards.plan import Plan, Shard, plan_checksum, read_plan, shards_of, sources_of
from elmo.embed.shards.source_file import RowReader
from elmo.embed.shards.target import PLAN_NAME
from elmo.errors import DataError, OutputError, WeightsError
from elmo.files import atomic_file, require_extra, sha256_file

Record = dict[str, Any]  # of a finished shard, as the manifest lists it
_METADATA = "elmo_shard"  # key in the schema's metadata


@dataclass(frozen=True, kw_only=True)
class ShardJob:
    """All that a worker needs to know besides the plan in the output folder; it pickles."""

    folder: Path
    model: ModelSettings
    options: DumpOptions
    read: ReadOptions


@dataclass(frozen=True, kw_only=True)
class Task:
    """Consecutive shards of one file: one shard, or all shards of a file that can be read only from its start."""

    source: int
    first: int  # number of the first shard
    count: int


def load_model(settings: ModelSettings, device: str) -> Embedder:
    """The embedder of a run."""
    return load(
        settings.model,
        settings.weights,
        device=device,
        dtype=settings.dtype,
        tokenizer=settings.tokenizer,
        state=settings.state,
    )


def make_tasks(plan: Plan, unfinished: Sequence[Shard]) -> list[Task]:
    """The tasks for these shards, in order."""
    sources = sources_of(plan)
    tasks: dict[tuple[int, int], Task] = {}
    for shard in unfinished:
        if sources[shard.source].is_sequential:
            first = tasks.setdefault((shard.source, -1), Task(source=shard.source, first=shard.number, count=1)).first
            tasks[shard.source, -1] = Task(source=shard.source, first=first, count=shard.number - first + 1)
        else:
            tasks[shard.source, shard.number] = Task(source=shard.source, first=shard.number, count=1)
    return list(tasks.values())


class ShardWorker:
    """A loaded model and the plan."""

    def __init__(self, job: ShardJob, device: str, embedder: Embedder | None = None) -> None:
        plan = read_plan(job.folder / PLAN_NAME)
        if plan is None:
            raise OutputError(
                f"{job.folder / PLAN_NAME} is missing on this machine.",
                "The output must be a folder that all machines of the cluster share.",
            )
        self.job, self.embedder = job, embedder or load_model(job.model, device)
        self.checksum = plan_checksum(plan)
        if embedder is None and model_checksum(self.embedder) != plan["settings"]["model"]["sha256"]:
            raise WeightsError(
                f"{job.model.model}: this machine has another model of this name.", "Install the same model everywhere."
            )
        self.sources = sources_of(plan)
        self.shards = {(s.source, s.number): s for s in shards_of(self.sources, job.read.shard_rows)}
        self.choice = choose_layers(job.options.chosen_layers, self.embedder.num_layers)
        self.layout = layout_of(self.embedder, self.choice, job.options)
        self._vectors = json.dumps(plan["settings"]["vectors"])

    def run(self, task: Task) -> Iterator[Record]:
        """Makes the shards of a task and yields their records; a shard that is there already is only checked."""
        reader: RowReader | None = None
        rows: Iterator[tuple[str, list[str]]] = iter(())
        for number in range(task.first, task.first + task.count):
            shard = self.shards[task.source, number]
            record = self.record(shard)
            if record is None and reader is None:
                reader = RowReader(self.sources[task.source], self.job.read, self.embedder.tokenize)
                rows = reader.rows(shard.first_row)
            shard_rows = islice(rows, shard.num_rows)
            if record is None:
                assert reader is not None
                self._write(shard, shard_rows, reader)
                yield {**self._new_record(shard), "reused": False}
            else:
                deque(shard_rows, maxlen=0)  # skips the rows of a file that is read from its start
                yield {**record, "reused": True}

    def record(self, shard: Shard) -> Record | None:
        """What the manifest says about a finished shard; None if it is missing, damaged or of another plan."""
        pa, pq = require_extra("pyarrow", "parquet"), require_extra("pyarrow.parquet", "parquet")
        path = self.job.folder / shard.name
        try:
            file = pq.ParquetFile(path)
            metadata = json.loads((file.schema_arrow.metadata or {}).get(_METADATA.encode(), b"null"))
            tokens = file.read(columns=["tokens"])["tokens"].combine_chunks().flatten()
        except (pa.ArrowInvalid, OSError, KeyError, ValueError):
            return None
        if metadata != self._metadata(shard) or file.metadata.num_rows != shard.num_rows:
            return None
        return {
            "name": shard.name,
            "source": shard.source,
            "first_line": shard.first_row,
            "lines": shard.num_rows,
            "tokens": len(tokens),
            "cut_tokens": count_cut_tokens(self.embedder, [tokens.to_pylist()]),
            "bytes": path.stat().st_size,
            "sha256": sha256_file(path),
        }

    def _new_record(self, shard: Shard) -> Record:
        record = self.record(shard)
        if record is None:
            raise OutputError(
                f"{self.job.folder / shard.name} cannot be read back.", "Does another process write to this folder?"
            )
        return record

    def _metadata(self, shard: Shard) -> dict[str, Any]:
        return {
            "plan": self.checksum,
            "source": shard.source,
            "first_line": shard.first_row,
            "lines": shard.num_rows,
        }

    def _write(self, shard: Shard, rows: Iterator[tuple[str, list[str]]], reader: RowReader) -> None:
        options, path = self.job.options, self.job.folder / shard.name
        num_rows = 0

        def embedded_blocks() -> Iterator[BlockInMemory]:
            nonlocal num_rows
            blocks = group_sentences(
                rows, max_lines=options.block_lines, max_tokens=options.block_tokens, first_line=shard.first_row
            )
            for block in blocks:
                vectors = embed_block(
                    self.embedder, block, self.choice, self.layout, options, source=reader.source.path
                )
                num_rows += len(block.lines)
                yield BlockInMemory(block, vectors)

        metadata = {"elmo": self._vectors, _METADATA: json.dumps(self._metadata(shard))}
        with atomic_file(path) as partial:
            write_blocks(partial, embedded_blocks(), self.layout, metadata)
            if num_rows != shard.num_rows:
                raise reader.changed()


class BlockInMemory:
    """A block with its vectors (rows, K, D), as `write_blocks` reads it."""

    def __init__(self, block: Block, vectors: np.ndarray) -> None:
        self._block, self._vectors, self.first_line = block, vectors, block.first_line

    @property
    def num_lines(self) -> int:
        return len(self._block.lines)

    def lines(self) -> list[str]:
        return self._block.lines

    def sentences(self) -> list[list[str]]:
        return self._block.sentences

    def vectors(self, layout: Layout) -> Iterator[np.ndarray]:
        """The vectors of each line, in the shape that `Layout.sentence` gives."""
        return layout.split(self._vectors, map(len, self._block.sentences))


def check_complete(shards: Sequence[Shard], records: Sequence[Record]) -> None:
    """A DataError unless every shard has exactly one record."""
    names = sorted(record["name"] for record in records)
    if names != [shard.name for shard in shards]:
        raise DataError(f"{len(set(names))} of {len(shards)} shards are there.", "Run the same command again.")
