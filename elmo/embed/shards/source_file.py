"""Input files of a sharded embedding: text, JSON lines, CSV and Parquet; the number of rows and the rows in order.

Needs no torch.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from elmo.embed.shards.csv_rows import DELIMITERS, csv_items
from elmo.embed.shards.options import ReadOptions
from elmo.errors import ConfigError, DataError
from elmo.files import COMPRESSED, open_bytes, parse_json, require_extra, sha256_file
from elmo.text.encodings import UTF8_BOM, has_newline_bytes
from elmo.text.lines import read_lines
from elmo.text.surrogates import SurrogateReplacer
from elmo.text.tokenize import Tokenizer

_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
}  # others are text
INPUT_KINDS = {"jsonl": "JSON lines", "csv": "CSV", "tsv": "TSV", "parquet": "Parquet"}  # as messages name them
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One input file, its identity and its size."""

    path: str
    kind: str  # text, jsonl, csv, tsv, parquet
    bytes: int
    sha256: str
    rows: int
    offsets: list[int] | None  # of the first byte of each shard; None: the rows cannot be found by an offset

    @property
    def is_sequential(self) -> bool:
        """Whether a row can be reached only by reading all rows before it."""
        return self.kind != "parquet" and self.offsets is None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def find_files(pattern: str) -> list[str]:
    """The files that a name, a glob or a folder stands for, sorted; hidden files of a folder are left out."""
    if pattern == "-":
        raise ConfigError("Standard input cannot be embedded into a folder.", "Name files, a glob or a folder.")
    if "://" in pattern:
        raise ConfigError(
            f"{pattern} is a URL; expected files on a file system.", "Mount the storage on every machine."
        )
    if os.path.isdir(pattern):
        pattern = os.path.join(glob.escape(pattern), "*")
    paths = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
    files = [os.path.abspath(path) for path in paths if os.path.isfile(path)]
    if not files:
        raise DataError(f"No file matches {pattern!r}.", 'Put a glob into quotes: elmo embed "corpus/*.parquet" out/')
    return files


def kind_of(path: str) -> str:
    """text, jsonl, csv, tsv or parquet, by the suffix of a name."""
    suffixes = Path(path).suffixes
    inner = suffixes[:-1] if suffixes and suffixes[-1] in COMPRESSED else suffixes
    return _SUFFIXES.get(inner[-1].lower() if inner else "", "text")


def index_file(path: str, options: ReadOptions) -> SourceFile:
    """Reads a file once, for its checksum, the number of its rows and, where possible, the offsets of its shards."""
    kind = kind_of(path)
    open_bytes(path).close()  # raises its errors
    size = os.stat(path).st_size
    if kind == "parquet":
        rows = _parquet_file(path, options.column).metadata.num_rows
        return SourceFile(path=path, kind=kind, bytes=size, sha256=sha256_file(path), rows=rows, offsets=None)
    if kind in DELIMITERS:
        rows = sum(1 for _ in csv_items(path, kind, options))
        return SourceFile(path=path, kind=kind, bytes=size, sha256=sha256_file(path), rows=rows, offsets=None)
    if Path(path).suffix in COMPRESSED or not has_newline_bytes(options.encoding):
        rows = sum(1 for _ in read_lines(path, encoding=options.encoding, errors=options.errors))
        return SourceFile(path=path, kind=kind, bytes=size, sha256=sha256_file(path), rows=rows, offsets=None)
    rows, offsets, checksum = _scan_lines(path, options.shard_rows)
    return SourceFile(path=path, kind=kind, bytes=size, sha256=checksum, rows=rows, offsets=offsets)


def _scan_lines(path: str, shard_rows: int) -> tuple[int, list[int], str]:
    """The number of lines, the offset of every `shard_rows`-th line, and the checksum of an uncompressed file."""
    digest = hashlib.sha256()
    num_ends, num_bytes, offsets, last = 0, 0, [0], b""
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)  # positions of "\n"
            first = (-num_ends - 1) % shard_rows  # the next line end after which a shard begins
            offsets += [num_bytes + int(end) + 1 for end in ends[first::shard_rows]]
            num_ends += len(ends)
            num_bytes += len(block)
            last = block
    is_empty = num_ends == 0 and last in (b"", UTF8_BOM)
    rows = 0 if is_empty else num_ends + (not last.endswith(b"\n"))
    return rows, offsets[: -(-rows // shard_rows)], digest.hexdigest()


class RowReader:
    """The rows of one source file as (text, tokens), from any shard to the end of the file."""

    def __init__(self, source: SourceFile, options: ReadOptions, tokenize: Tokenizer) -> None:
        self.source, self.options, self._tokenize = source, options, tokenize
        self._surrogates = SurrogateReplacer(strict=False)
        try:
            size = os.stat(source.path).st_size
        except OSError as error:
            raise DataError(f"{source.path}: cannot be read ({error.strerror}).") from error
        if size != source.bytes:
            raise self.changed()

    def changed(self) -> DataError:
        """The error for a file that is not the one that was indexed."""
        return DataError(f"{self.source.path} changed while it was read.", "Run again when no one writes to it.")

    def rows(self, first_row: int) -> Iterator[tuple[str, list[str]]]:
        """The rows from `first_row` on, which is the first row of a shard."""
        source = self.source
        if source.kind in DELIMITERS:
            numbered: Iterator[tuple[int, Any]] = csv_items(source.path, source.kind, self.options, first_row)
        else:
            numbered = enumerate(self._items(first_row), first_row + 1)
        for number, item in numbered:
            yield self._sentence(item, number)

    def _items(self, first_row: int) -> Iterator[Any]:
        source, options = self.source, self.options
        if source.kind == "parquet":
            yield from _parquet_items(_parquet_file(source.path, options.column), options.column, first_row)
            return
        offsets = source.offsets
        start = (first_row, offsets[first_row // options.shard_rows]) if offsets is not None and first_row else (0, 0)
        lines = read_lines(source.path, encoding=options.encoding, errors=options.errors, start=start)
        lines = islice(lines, first_row - start[0], None)
        if source.kind == "text":
            yield from lines
            return
        for number, line in enumerate(lines, first_row + 1):
            place = f"{source.path}:{number}"
            values = parse_json(line.encode("utf-8", "replace"), place)
            if options.column not in values:
                found = ", ".join(map(repr, list(values)[:10])) or "no key"
                raise DataError(f"{place} has no key {options.column!r}; it has {found}.", "Name it with --column.")
            yield values[options.column]

    def _sentence(self, item: Any, number: int) -> tuple[str, list[str]]:
        place = f"{self.source.path}:{number}"
        if item is None:
            if self.options.missing == "error":
                raise DataError(f"{place}: the text is null.", "--missing empty reads it as an empty sentence.")
            return "", []
        if isinstance(item, str):
            text = self._surrogates.replace(item, place)
            return text, [token.text for token in self._tokenize(text)]
        if not isinstance(item, list) or not all(isinstance(token, str) for token in item):
            raise DataError(
                f"{place}: {self.options.column!r} is {str(item)[:40]!r}; expected a string or a list of strings."
            )
        tokens = [self._surrogates.replace(token, place) for token in item]
        return " ".join(tokens), tokens


def _parquet_file(path: str, column: str) -> Any:
    pa, pq = require_extra("pyarrow", "parquet"), require_extra("pyarrow.parquet", "parquet")
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0][:200]
        raise DataError(f"{path}: not a Parquet file, or damaged ({reason}).") from error
    names = file.schema_arrow.names
    if column not in names:
        raise DataError(f"{path} has no column {column!r}; it has {', '.join(names)}.", "Name it with --column.")
    return file


def _parquet_items(file: Any, column: str, first_row: int) -> Iterator[Any]:
    start, groups = first_row, list(range(file.metadata.num_row_groups))
    while groups and start >= file.metadata.row_group(groups[0]).num_rows:
        start -= file.metadata.row_group(groups.pop(0)).num_rows
    if not groups:
        return
    for batch in file.iter_batches(batch_size=1024, row_groups=groups, columns=[column]):
        if start < batch.num_rows:
            yield from batch.column(0).slice(start).to_pylist()
        start = max(start - batch.num_rows, 0)
