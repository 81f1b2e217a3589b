"""How big the result will be, from the first lines of the input, and whether there is room for it. Needs no torch."""

from __future__ import annotations

import os
import shutil
import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from elmo.embed.dump.options import DumpOptions
from elmo.embed.dump.part_file import Layout
from elmo.embed.dump.target import is_stream
from elmo.errors import OutputError
from elmo.files import COMPRESSED
from elmo.text.lines import read_lines
from elmo.text.tokenize import Tokenizer

SAMPLE_LINES = 1000
_JSON_BYTES = {"float32": 13, "float16": 9}  # of a number and its comma, about


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """About how much work and space a run takes."""

    tokens: int
    text_bytes: int
    part_bytes: int  # of all parts
    result_bytes: int  # of the result, before compression


def estimate(
    source: str | Path, tokenize: Tokenizer, layout: Layout, format_name: str, options: DumpOptions
) -> Estimate | None:
    """From the first thousand lines; None where the input is a stream or has no lines."""
    if is_stream(source):
        return None
    lines = list(islice(read_lines(source, errors=options.errors), SAMPLE_LINES))
    if not lines:
        return None
    sample = "".join(f"{line}\n" for line in lines).encode()
    total_bytes = os.stat(source).st_size
    if Path(source).suffix in COMPRESSED:
        total_bytes = int(total_bytes * len(sample) / max(len(zlib.compress(sample)), 1))  # close enough for all kinds
    scale = total_bytes / len(sample)
    tokens = int(scale * sum(len(tokenize(line)) for line in lines))
    rows = int(scale * len(lines)) if options.pool else tokens
    values = rows * layout.num_kept * layout.dim
    width = 2 if options.dtype == "float16" else 4
    each = _JSON_BYTES[options.dtype] if format_name == "jsonl" else width
    return Estimate(
        tokens=tokens,
        text_bytes=total_bytes,
        part_bytes=values * width + 2 * total_bytes,
        result_bytes=values * each + total_bytes,
    )


def check_room(path: Path, num_bytes: int) -> None:
    """Refuses to begin what the disk, or a limit on the size of files, has no room for."""
    free = free_bytes(path)
    if num_bytes > free:
        raise OutputError(
            f"{path} needs about {num_bytes / 1e6:,.0f} MB; {free / 1e6:,.0f} MB are free.",
            "Make room, store less (--dtype float16, --layers top, --pool mean), or try all the same with --force.",
        )


def free_bytes(path: Path) -> int:
    """Bytes that can still be written beside a path."""
    free = shutil.disk_usage(path.parent).free
    try:
        import resource
    except ImportError:  # Windows
        return free
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return free if limit == resource.RLIM_INFINITY else min(free, limit)
