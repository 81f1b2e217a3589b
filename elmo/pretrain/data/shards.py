"""Third pass of `prepare`: turns the word ids of the stored jobs into ids of word types and writes the shards.

The jobs are distributed over the shards round-robin, so every shard is a cross-section of all sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elmo.pretrain.data.parallel import map_in_order
from elmo.pretrain.data.splits import HELDOUT, SPLIT_NAMES, TRAIN
from elmo.pretrain.data.tokenized_job import StoredJob, load_job


def write_shards(jobs: Sequence[StoredJob], folder: Path, shard_tokens: int, num_workers: int | None) -> dict[str, Any]:
    """Writes training shards of about shard_tokens tokens and one held-out shard; returns their part of the manifest.

    All held-out sentences are in one shard, in the order of the sources.
    """
    paths: dict[int, list[Path]] = {TRAIN: [], HELDOUT: []}
    train_tokens = 0
    for job in jobs:
        splits, lengths = np.load(job.path.with_suffix(".splits.npy")), load_job(job.path, with_words=False).lengths
        train_tokens += int(lengths[splits == TRAIN].sum())
        for split in (TRAIN, HELDOUT):
            paths[split] += [job.path] * bool((splits == split).any())
    num_shards = min(len(paths[TRAIN]), -(-train_tokens // shard_tokens))
    tasks = [(TRAIN, i, paths[TRAIN][i::num_shards]) for i in range(num_shards)]
    tasks += [(HELDOUT, 0, paths[HELDOUT])] if paths[HELDOUT] else []
    sizes = map_in_order(partial(_write_shard, folder=folder), tasks, num_workers if train_tokens > 1e6 else 1)
    manifest: dict[str, Any] = {name: {"sentences": 0, "tokens": 0, "shards": []} for name in SPLIT_NAMES}
    for (split, _, _), (num_sentences, num_tokens) in zip(tasks, sizes, strict=True):
        entry = manifest[SPLIT_NAMES[split]]
        entry["sentences"] += num_sentences
        entry["tokens"] += num_tokens
        entry["shards"].append({"sentences": num_sentences, "tokens": num_tokens})
    return manifest


def _write_shard(task: tuple[int, int, list[Path]], folder: Path) -> tuple[int, int]:
    """Runs in a worker: writes the shard (split, number, paths of its jobs); returns its (sentences, tokens)."""
    split, number, paths = task
    type_ids = np.load(folder / "jobs" / "type_ids.npy", mmap_mode="r")  # (word ids,)
    tokens: list[np.ndarray] = []
    lengths: list[np.ndarray] = [np.zeros(1, dtype=np.int64)]
    languages: list[np.ndarray] = []
    for path in paths:
        job = load_job(path, with_words=False)
        chosen = np.load(path.with_suffix(".splits.npy")) == split  # (sentences,)
        job_type_ids = np.asarray(type_ids[np.load(path.with_suffix(".word_ids.npy"))])  # (words of the job,)
        tokens.append(job_type_ids[job.ids[np.repeat(chosen, job.lengths)]])
        lengths.append(job.lengths[chosen].astype(np.int64))
        if split == TRAIN and path.with_suffix(".languages.npy").exists():
            languages.append(np.load(path.with_suffix(".languages.npy"))[chosen])
    offsets = np.cumsum(np.concatenate(lengths))
    name = f"{SPLIT_NAMES[split]}-{number:05d}"
    np.save(folder / f"{name}.tokens.npy", np.concatenate(tokens))
    np.save(folder / f"{name}.offsets.npy", offsets)
    if languages:
        np.save(folder / f"{name}.languages.npy", np.concatenate(languages))
    return len(offsets) - 1, int(offsets[-1])
