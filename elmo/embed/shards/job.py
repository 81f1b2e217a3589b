"""The sharded embedding of files into a folder with `embed_files`: plan, shards by a runner, manifest.

    embed_files("corpus/*.parquet", "out", ModelSettings(...), DumpOptions(pool="mean"), ReadOptions())

`OneProcess` runs all tasks here; `elmo.integrations.ray` runs them in the actors of a Ray cluster.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from elmo.embed.dump.estimate import SAMPLE_LINES, check_free_space
from elmo.embed.dump.options import DumpOptions
from elmo.embed.dump.plan import layout_of
from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import choose_layers
from elmo.embed.shards.options import ModelSettings, ReadOptions
from elmo.embed.shards.plan import Plan, Shard, identity, make_plan, read_plan, shards_of, write_values
from elmo.embed.shards.source_file import RowReader, SourceFile, find_files, index_file
from elmo.embed.shards.target import LOCK_NAME, MANIFEST_NAME, PLAN_NAME, check_folder
from elmo.embed.shards.worker import Record, ShardJob, ShardWorker, Task, check_complete, load_model, make_tasks
from elmo.errors import DataError, OutputError
from elmo.files import explain_write, file_lock
from elmo.progress import Progress
from elmo.settings import changed_settings
from elmo.staging import remove_leftovers

log = logging.getLogger(__name__)
Say = Callable[[str], None]


class Runner(Protocol):
    """Where the work is done. Results may come in any order; an ElmoError of a worker is raised here."""

    @property
    def planning_device(self) -> str:
        """The device on which the calling process loads the model."""
        ...

    def index(self, paths: Sequence[str], options: ReadOptions) -> list[SourceFile]:
        """`index_file` of each path, in order."""
        ...

    def run(self, job: ShardJob, tasks: Sequence[Task], embedder: Embedder) -> Iterator[Record]:
        """The records of all shards of the tasks."""
        ...


@dataclass(frozen=True)
class OneProcess:
    """Runs everything in this process."""

    device: str = "auto"

    @property
    def planning_device(self) -> str:
        return self.device

    def index(self, paths: Sequence[str], options: ReadOptions) -> list[SourceFile]:
        return [index_file(path, options) for path in paths]

    def run(self, job: ShardJob, tasks: Sequence[Task], embedder: Embedder) -> Iterator[Record]:
        worker = ShardWorker(job, self.device, embedder)
        for task in tasks:
            yield from worker.run(task)


@dataclass(kw_only=True)
class FolderSummary:
    """Counts and speed of a run."""

    path: str
    files: int = 0  # of the input
    shards: int = 0
    shards_kept: int = 0  # shards that an earlier run had finished
    lines: int = 0
    tokens: int = 0
    cut_tokens: int = 0  # tokens longer than the model reads
    bytes: int = 0
    seconds: float = 0.0
    tokens_per_second: float = 0.0  # of the shards that this run computed


def embed_files(
    pattern: str,
    target: str | Path,
    model: ModelSettings,
    options: DumpOptions,
    read: ReadOptions,
    *,
    runner: Runner | None = None,
    say: Say = log.info,
) -> FolderSummary:
    """Embeds the rows of all files that match a pattern into Parquet shards and writes a manifest of them.

    A repeated call with the same files, model and settings continues: shards that exist are kept. Other ones are an
    OutputError, unless `options.overwrite` discards the earlier run.
    """
    runner, start = runner or OneProcess(), time.monotonic()
    folder, paths = check_folder(target, options), find_files(pattern)
    if any(Path(path).parent == folder for path in paths):
        raise OutputError(f"{target} holds the input itself.", "Choose another folder.")
    with explain_write(folder):
        folder.mkdir(exist_ok=True)
    with file_lock(folder / LOCK_NAME, f"{folder} is being written by", "Wait for it or stop it."):
        times = [_size_and_time(path) for path in paths]
        sources = runner.index(paths, read)
        embedder = load_model(model, runner.planning_device)
        plan = make_plan(embedder, sources, options, read)
        manifest = _begin(folder, plan, overwrite=options.overwrite)
        shards = shards_of(sources, read.shard_rows)
        kept = {record["name"]: record for record in (manifest or {}).get("shards", [])}
        unfinished = [shard for shard in shards if not _is_intact(folder, shard, kept)]
        job = ShardJob(folder=folder, model=model, options=options, read=read)
        if unfinished:
            say(f"{len(sources):,} files, {sum(s.rows for s in sources):,} lines, {len(shards):,} shards")
            if not options.force:
                check_free_space(folder / PLAN_NAME, _needed_bytes(embedder, sources, shards, folder, job))
        records = [kept[shard.name] for shard in shards if shard not in set(unfinished)]
        summary = FolderSummary(path=str(folder), files=len(sources), shards_kept=len(records))
        computed = 0
        total = sum(shard.num_rows for shard in unfinished)
        with Progress("embedding", total, unit="lines", show=options.show_progress) as progress:
            for record in runner.run(job, make_tasks(plan, unfinished), embedder) if unfinished else ():
                is_reused = record.pop("reused")
                summary.shards_kept += is_reused
                computed += 0 if is_reused else record["tokens"]
                records.append(record)
                progress.advance(record["lines"])
        if times != [_size_and_time(path) for path in paths]:
            raise DataError("An input file changed while it was read.", "Run again when no one writes to it.")
        records.sort(key=lambda record: str(record["name"]))
        check_complete(shards, records)
        for leftover in folder.glob(".part-*.partial"):  # of a writer that was killed when its shard was in place
            remove_leftovers(folder / leftover.name[1:].rsplit(".", 2)[0])
        if unfinished or manifest is None:
            write_values(folder / MANIFEST_NAME, {**plan, "shards": records})
        for name in (PLAN_NAME, LOCK_NAME):
            (folder / name).unlink(missing_ok=True)
    summary.shards = len(records)
    for name in ("lines", "tokens", "cut_tokens", "bytes"):
        setattr(summary, name, sum(record[name] for record in records))
    summary.seconds = time.monotonic() - start
    summary.tokens_per_second = computed / max(summary.seconds, 1e-9)
    if summary.cut_tokens:
        log.warning("%d tokens are longer than the model reads and were cut.", summary.cut_tokens)
    return summary


def _begin(folder: Path, plan: Plan, *, overwrite: bool) -> dict[str, Any] | None:
    """Writes the plan, after a comparison with that of an earlier run; returns the manifest of a finished run."""
    if overwrite:
        for name in (MANIFEST_NAME, PLAN_NAME):
            (folder / name).unlink(missing_ok=True)
        for path in (*folder.glob("part-*.parquet"), *folder.glob(".part-*.partial")):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    manifest = read_plan(folder / MANIFEST_NAME)
    earlier = manifest or read_plan(folder / PLAN_NAME)
    if earlier is not None and (changed := changed_settings(identity(earlier), identity(plan))):
        lines = [f"{name}: was {str(old)[:100]}, is {str(new)[:100]}" for name, (old, new) in [*changed.items()][:10]]
        raise OutputError(
            f"{folder} belongs to another run:\n  " + "\n  ".join(lines),
            "Repeat that run's input, model and settings to continue it, or choose another folder. "
            "--overwrite (in Python DumpOptions(overwrite=True)) starts over.",
        )
    write_values(folder / PLAN_NAME, plan)
    return manifest


def _is_intact(folder: Path, shard: Shard, kept: dict[str, Record]) -> bool:
    """Whether a shard that a manifest lists has its size; shards of an unfinished run are checked by the workers."""
    record = kept.get(shard.name)
    try:
        return record is not None and (folder / shard.name).stat().st_size == record["bytes"]
    except OSError:
        return False


def _needed_bytes(
    embedder: Embedder, sources: Sequence[SourceFile], shards: Sequence[Shard], folder: Path, job: ShardJob
) -> int:
    """Approximate bytes of the shards that are not there yet, from the first rows of the first file."""
    source = next(source for source in sources if source.rows)
    rows = list(islice(RowReader(source, job.read, embedder.tokenize).rows(0), SAMPLE_LINES))
    layout = layout_of(embedder, choose_layers(job.options.chosen_layers, embedder.num_layers), job.options)
    num_vectors = len(rows) if layout.pooled else sum(len(tokens) for _, tokens in rows)
    row_bytes = 2 if layout.dtype == "float16" else 4
    sample_bytes = num_vectors * layout.num_kept * layout.dim * row_bytes + 2 * sum(len(text) for text, _ in rows)
    missing_rows = sum(shard.num_rows for shard in shards if not (folder / shard.name).exists())
    return sample_bytes * missing_rows // len(rows)


def _size_and_time(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
