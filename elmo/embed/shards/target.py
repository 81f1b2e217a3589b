"""The output folder of a sharded embedding: its files besides the shards, and the checks before a run. Needs no torch.

    part-FILE-SHARD.parquet    a finished shard
    _plan.json                 input, model and settings of an unfinished run
    _manifest.json             the plan and a record of every shard, written last
    _lock                      held by the process that runs the command

Readers of Parquet folders (Spark, pyarrow, Dask) skip names that begin with an underscore or a full stop.
"""

from __future__ import annotations

import os
from pathlib import Path

from elmo.embed.dump.options import DumpOptions
from elmo.errors import ConfigError, OutputError

PLAN_NAME, MANIFEST_NAME, LOCK_NAME = "_plan.json", "_manifest.json", "_lock"


def check_folder(target: str | Path, options: DumpOptions) -> Path:
    """The output folder, after checks that need no model; it need not exist."""
    if "://" in str(target):
        raise ConfigError(f"{target} is a URL; expected a folder.", "Mount the storage on every machine.")
    folder = Path(os.path.realpath(target))
    if options.format not in (None, "parquet"):
        raise ConfigError(f"A folder gets Parquet files, not {options.format}.", "Drop --format.")
    if options.shard is not None or options.use_sentence_keys or options.forget_sentences:
        raise ConfigError("--shard, --use-sentence-keys and --forget-sentences are for an output that is one file.")
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{target} is a file; a folder was expected.")
    if not folder.parent.is_dir():
        raise OutputError(f"{target}: there is no folder {folder.parent}.", "Create it first, or check the spelling.")
    is_ours = any((folder / name).exists() for name in (PLAN_NAME, MANIFEST_NAME))
    if folder.exists() and not is_ours and {path.name for path in folder.iterdir()} - {LOCK_NAME}:
        raise OutputError(f"{target} is not empty, and no run of elmo embed was begun there.", "Choose another folder.")
    return folder
