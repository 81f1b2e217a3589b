"""Estimates of the output's size from the first lines of the input, and checks of free disk space. Needs no torch."""

from __future__ import annotations

import os
import shutil
import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from elmo.embed.dump.input_text import to_sentences
from elmo.embed.dump.options import DumpOptions
from elmo.embed.dump.part_file import Layout
from elmo.embed.dump.target import is_stream
from elmo.errors import OutputError
from elmo.files import COMPRESSED
from elmo.text.lines import read_lines
from elmo.text.tokenize import Tokenizer

SAMPLE_LINES = 1000
_JSON_BYTES = {"float32": 13, "float16": 9}  # approximate size of a number and its comma


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Approximate number of tokens and disk space of a run."""

    tokens: int
    text_bytes: int
    part_bytes: int  # of all part files
    result_bytes: int  # of the output, before compression


def estimate(
    source: str | Path,
    tokenize: Tokenizer,
    layout: Layout,
    format_name: str,
    options: DumpOptions,
    rules: str = "english",  # of `split_sentences`
) -> Estimate | None:
    """An estimate from the first thousand lines; None where the input is a stream or has no lines."""
    if is_stream(source):
        return None
    lines = list(islice(read_lines(source, encoding=options.encoding, errors=options.errors), SAMPLE_LINES))
    if not lines:
        return None
    sample = "".join(f"{line}\n" for line in lines).encode()
    total_bytes = os.stat(source).st_size
    if Path(source).suffix in COMPRESSED:  # zlib's ratio is close enough for all formats
        total_bytes = int(total_bytes * len(sample) / max(len(zlib.compress(sample)), 1))
    scale = total_bytes / len(sample)
    sentences = list(to_sentences(lines, options, rules))
    tokens = int(scale * sum(len(tokenize(sentence)) for sentence in sentences))
    rows = int(scale * len(sentences)) if options.pool else tokens
    num_values = rows * layout.num_kept * layout.dim
    stored_bytes = 2 if options.dtype == "float16" else 4
    result_bytes = _JSON_BYTES[options.dtype] if format_name == "jsonl" else stored_bytes
    return Estimate(
        tokens=tokens,
        text_bytes=total_bytes,
        part_bytes=num_values * stored_bytes + 2 * total_bytes,
        result_bytes=num_values * result_bytes + total_bytes,
    )


def check_free_space(path: Path, num_bytes: int) -> None:
    """An OutputError where the disk, or the limit on file sizes, has no room for `num_bytes`."""
    free = free_bytes(path)
    if num_bytes > free:
        raise OutputError(
            f"{path} needs about {num_bytes / 1e6:,.0f} MB; {free / 1e6:,.0f} MB are free.",
            "Free some space. --dtype float16, --layers top or --pool mean store less. --force tries anyway.",
        )


def free_bytes(path: Path) -> int:
    """Bytes that can still be written to the folder of `path`."""
    free = shutil.disk_usage(path.parent).free
    try:
        import resource
    except ImportError:  # Windows
        return free
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return free if limit == resource.RLIM_INFINITY else min(free, limit)
