"""The plan of a bulk embedding: all that its blocks depend on (input, model, settings), as values to compare.

Device, threads and machine are not part of it: a run may be continued elsewhere, and the blocks then agree up to
rounding instead of bit for bit.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from elmo import __version__
from elmo.embed.dump.options import DumpOptions
from elmo.embed.dump.part_file import Layout
from elmo.embed.dump.part_folder import Plan
from elmo.embed.dump.target import is_stream
from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import LayerChoice
from elmo.embed.model_checksum import model_checksum
from elmo.errors import DataError
from elmo.files import sha256_file
from elmo.text.encodings import UTF8


def make_plan(
    embedder: Embedder, source: str | Path, choice: LayerChoice, format_name: str, options: DumpOptions
) -> Plan:
    """The plan of a run, as JSON values."""
    layout = layout_of(embedder, choice, options)
    # plans of an earlier version, which read UTF-8 with one sentence per line only, have neither
    reading: dict[str, Any] = {} if options.encoding == UTF8 else {"encoding": options.encoding}
    if options.paragraphs:
        reading["paragraphs"] = True
    return {
        "version": 1,
        "elmo": __version__,
        "input": _input_identity(source),
        "model": {"name": embedder.name, "sha256": model_checksum(embedder)},
        "text": {"tokenizer": embedder.tokenizer_name, "errors": options.errors, **reading},
        "vectors": {"layers": choice.matrix.tolist(), "pool": options.pool, "layout": dataclasses.asdict(layout)},
        "compute": {
            "state": embedder.state,
            "dtype": embedder.dtype,
            "batch_size": options.batch_size,
            "max_tokens": options.max_tokens,
        },
        "blocks": {"lines": options.block_lines, "tokens": options.block_tokens},
        "output": {
            "format": format_name,
            "use_sentence_keys": options.use_sentence_keys,
            "forget_sentences": options.forget_sentences,
        },
        "shards": options.shard[1] if options.shard else None,
    }


def layout_of(embedder: Embedder, choice: LayerChoice, options: DumpOptions) -> Layout:
    """The shape and dtype in which this run stores vectors."""
    return Layout(
        num_kept=len(choice.matrix) if choice.stacked else 1,
        dim=choice.shape(embedder.dim)[-1],
        stacked=choice.stacked,
        pooled=options.pool is not None,
        dtype=options.dtype,
    )


class InputWatch:
    """Detects that the input file changes while it is read, by its size and time. Streams are not watched."""

    def __init__(self, source: str | Path) -> None:
        self._source = source
        self._before = self._size_and_time()

    def check(self) -> None:
        """A DataError if the file is not as it was."""
        if self._size_and_time() != self._before:
            raise DataError(f"{self._source} changed while it was read.", "Run again when no one writes to it.")

    def _size_and_time(self) -> tuple[int, int] | None:
        if is_stream(self._source):
            return None
        status = os.stat(self._source)
        return status.st_size, status.st_mtime_ns


def _input_identity(source: str | Path) -> dict[str, Any]:
    if is_stream(source):
        return {"path": str(source), "bytes": None, "sha256": None}
    # the complete file: one second per gigabyte, while embedding a gigabyte of text takes hours
    return {"path": str(source), "bytes": os.stat(source).st_size, "sha256": sha256_file(source)}
