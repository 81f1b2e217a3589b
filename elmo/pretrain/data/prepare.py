"""Converts text files to the prepared folder (layout: `prepared`), in three passes that each use bounded memory.

1. Here: workers tokenise the text and store each job as ids of its own words (`tokenized_job`). The text is read once.
2. `splits`: held-out sentences are chosen and words are counted, which determines the vocabulary and the ids of the
   word types (distinct words).
3. `shards`: workers turn the word ids of each job into type ids and write the shards.

The result depends on the text and the options alone, not on the number of workers.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import DataError
from elmo.files import atomic_folder, explain_write, file_lock, sha256_file
from elmo.pretrain.data.corpus import Chunk, Reading, chunk_jobs, is_splittable
from elmo.pretrain.data.parallel import map_in_order
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.prepared import FORMAT, MANIFEST, VERSION, PreparedData, fingerprint_of, open_prepared
from elmo.pretrain.data.reuse import describe_sources, modified_ns, reuse_prepared
from elmo.pretrain.data.shards import write_shards
from elmo.pretrain.data.sources import Source
from elmo.pretrain.data.splits import HELDOUT, TRAIN, split_and_count
from elmo.pretrain.data.text_files import find_text
from elmo.pretrain.data.tokenized_job import ChunkStats, StoredJob, save_job, tokenize_job
from elmo.pretrain.data.vocabulary import read_vocabulary
from elmo.progress import Progress
from elmo.records import write_json
from elmo.text.vocab import Vocabulary

log = logging.getLogger(__name__)


def prepare(
    config: PrepareConfig,
    out: str | Path,
    *,
    num_workers: int | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
) -> PreparedData:
    """Writes the folder `out`, or opens it if it already holds the same text prepared with the same options.

    If it holds other text or other options, an error lists the differences, unless `overwrite` is set.
    num_workers None: one per core. While another process prepares the same folder, this is an OutputError.
    """
    out = Path(out)
    training, heldout = find_text(config)
    sources, options = training + heldout, _options(config)
    source_splits = np.array([TRAIN] * len(training) + [HELDOUT] * len(heldout))
    if out.exists() and not overwrite:
        return reuse_prepared(out, sources, source_splits, options)
    vocab = read_vocabulary(config.vocab_path) if config.vocab_path else None
    with _lock(out):
        if out.exists() and not overwrite:  # another process has just written it
            return reuse_prepared(out, sources, source_splits, options)
        records = describe_sources(sources, source_splits, num_workers)
        _write(config, out, sources, source_splits, records, vocab, options, num_workers, overwrite, progress)
    return open_prepared(out)


@contextmanager
def _lock(out: Path) -> Iterator[None]:
    """Locks a file beside `out`, because the folder itself is replaced as a whole; the file is removed at the end."""
    with explain_write(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    path = out.with_name(f".{out.name}.lock")
    hint = "Wait for it, stop it, or choose another output folder."
    with file_lock(path, f"{out} is being prepared by", hint):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _write(
    config: PrepareConfig,
    out: Path,
    sources: Sequence[Source],
    source_splits: np.ndarray,
    records: list[dict[str, Any]],
    vocab: Vocabulary | None,
    options: dict[str, Any],
    num_workers: int | None,
    overwrite: bool,
    progress: bool | None,
) -> None:
    with atomic_folder(out, overwrite=overwrite) as folder:
        jobs_folder = folder / "jobs"
        jobs_folder.mkdir()
        jobs = _tokenize(config, sources, records, jobs_folder, num_workers, progress)
        manifest = split_and_count(config, vocab, jobs, source_splits, records, folder)
        manifest |= write_shards(jobs, folder, config.shard_tokens, num_workers)
        shutil.rmtree(jobs_folder)
        paths = sorted(path for path in folder.iterdir() if path.is_file())
        files = {path.name: {"size": path.stat().st_size, "sha256": sha256_file(path)} for path in paths}
        header = {"format": FORMAT, "version": VERSION, "fingerprint": fingerprint_of(files), "options": options}
        write_json(folder / MANIFEST, header | manifest | {"sources": records, "files": files})


def _options(config: PrepareConfig) -> dict[str, Any]:
    """Everything besides the text that determines the result."""
    options = asdict(config)
    for name in ("files", "heldout_files", "languages", "heldout_languages", "vocab_path"):
        del options[name]
    options |= options.pop("reading")
    options["vocab_sha256"] = sha256_file(config.vocab_path) if config.vocab_path else None
    return options


def _tokenize(
    config: PrepareConfig,
    sources: Sequence[Source],
    records: list[dict[str, Any]],
    folder: Path,
    num_workers: int | None,
    progress: bool | None,
) -> list[StoredJob]:
    """Pass 1: stores every tokenised job on disk and adds the counts of each source to its record.

    A source that cannot be read is an error, or is marked as skipped if the reading options say so.
    """
    for record in records:
        record |= dict.fromkeys(("lines", "blank_lines", "replaced_characters", "sentences", "tokens"), 0)
        record |= {"heldout_sentences": 0, "heldout_tokens": 0, "skipped": None}
    skip = config.reading.errors == "skip"

    def on_error(index: int, error: DataError) -> None:
        if not skip:
            raise error
        if records[index]["skipped"] is None:
            log.warning("%s is skipped: %s", sources[index].path, error.message)
            records[index]["skipped"] = error.message

    jobs: list[StoredJob] = []
    tokenize = partial(_tokenize_to_disk, reading=config.reading, folder=folder)
    chunks = enumerate(chunk_jobs(sources, reading=config.reading, on_error=on_error))
    sizes_known = all(is_splittable(source, config.reading) for source in sources)
    total = sum(source.size for source in sources) if sizes_known else None
    with Progress("reading", total, unit="bytes", show=progress) as bar:
        for number, job_stats in enumerate(map_in_order(tokenize, chunks, num_workers)):
            for stats in job_stats:
                if stats.error:
                    on_error(stats.source, stats.error)
                record = records[stats.source]
                record["lines"] += stats.num_lines
                record["blank_lines"] += stats.num_blank
                record["replaced_characters"] += stats.num_replaced
                record["size"] += stats.num_bytes if sources[stats.source].stream else 0
            spans = tuple((stats.source, stats.num_sentences) for stats in job_stats if stats.num_sentences)
            jobs.append(StoredJob(_job_path(folder, number), spans))
            bar.advance(sum(stats.num_bytes for stats in job_stats))
    nonempty = {source for job in jobs for source, _ in job.spans}
    for index, source in enumerate(sources):
        if records[index]["skipped"] is None and index not in nonempty:
            hint = "Remove it, or skip such files: `elmo prepare --errors skip`, or --set data.reading.errors=skip."
            on_error(index, DataError(f"{source.path} contains no sentence.", hint))
        if records[index]["mtime_ns"] != modified_ns(source):
            raise DataError(f"{source.path} changed while it was read.", "Prepare again when it is complete.")
    return jobs


def _tokenize_to_disk(numbered_job: tuple[int, list[Chunk]], reading: Reading, folder: Path) -> list[ChunkStats]:
    """Runs in a worker: tokenises and stores one job, and returns the stats of its chunks."""
    number, chunks = numbered_job
    job = tokenize_job(chunks, reading, with_hashes=True)
    save_job(job, _job_path(folder, number))
    return job.stats


def _job_path(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}"
