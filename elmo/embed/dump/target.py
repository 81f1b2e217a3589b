"""The output of a bulk embedding: its format, by name or option, and the checks that it can be written.

The checks run before the model is loaded, so that a mistake costs no time; needs no torch.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from elmo.embed.dump.options import FORMATS, DumpOptions
from elmo.embed.shards.source_file import INPUT_KINDS, kind_of
from elmo.errors import ConfigError, DataError, OutputError
from elmo.files import COMPRESSED, require_extra

STDOUT = "-"
_SUFFIXES = {
    ".hdf5": "hdf5",
    ".h5": "hdf5",
    ".npz": "npz",
    ".safetensors": "safetensors",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_STARTS = {"hdf5": (b"\x89HDF",), "npz": (b"PK",), "parquet": (b"PAR1",), "jsonl": (b"{",)}  # first bytes by format
_COMPRESSED_STARTS = {
    ".gz": (b"\x1f\x8b",),
    ".bz2": (b"BZh",),
    ".xz": (b"\xfd7zXZ",),
    ".zst": (b"\x28\xb5\x2f\xfd",),
}


@dataclass(frozen=True, kw_only=True)
class Target:
    """An output that can be written: its real path (symbolic links resolved) and its format."""

    path: Path
    format: str

    @property
    def parts_path(self) -> Path:
        """The folder of part files of an unfinished run."""
        return self.path.with_name(self.path.name + ".parts")


def check_target(source: str | Path, target: str | Path, options: DumpOptions) -> Target:
    """The target, after checks of its name, the options, its folder, and whether it exists already."""
    checked = Target(path=Path(os.path.realpath(target)), format=format_of(target, options.format))
    if (kind := kind_of(str(source))) != "text":
        raise ConfigError(
            f"{source} is {INPUT_KINDS[kind]}; an output that is one file needs lines of text.",
            f'End OUT in "/" (elmo embed {source} OUT/): a folder output reads its column "text", or --column.',
        )
    if str(source) == "-" and sys.stdin is None:
        raise DataError("Standard input is closed.", "Name an input file.")
    if str(target) == STDOUT:
        _check_stdout(checked.format, options)
        return checked
    _check_flags(source, checked.format, options)
    check_place(target)
    if str(source) != "-" and os.path.realpath(source) == str(checked.path) or _same_file(source, checked.path):
        raise OutputError(f"{target} is the input itself.", "Choose another output.")
    if checked.path.exists() and not options.overwrite and not options.resume:
        raise exists_error(checked.path)
    return checked


def is_finished(target: Target, options: DumpOptions) -> bool:
    """Whether a run that is to be resumed has nothing to do: its output exists, and no part files are left.

    A file that is not of the output's format is not an output.
    """
    if not options.resume or options.overwrite or not target.path.is_file() or target.parts_path.exists():
        return False
    with target.path.open("rb") as file:
        start = file.read(16)
    if target.format == "safetensors":  # the length of a JSON header comes first
        return start[8:9] == b"{"
    starts = _COMPRESSED_STARTS.get(target.path.suffix) or _STARTS[target.format]
    return any(start.startswith(known) for known in starts) or target.format == "jsonl" and start == b""


def format_of(target: str | Path, chosen: str | None) -> str:
    """The chosen format, or without one the format that the name's suffix stands for."""
    suffixes = Path(target).suffixes
    is_compressed = bool(suffixes) and suffixes[-1] in COMPRESSED
    inner = suffixes[:-1] if is_compressed else suffixes
    by_suffix = _SUFFIXES.get(inner[-1].lower()) if inner else None
    format_name = chosen or ("jsonl" if str(target) == STDOUT else by_suffix)
    if format_name is None:
        raise ConfigError(
            f"The name {Path(target).name!r} does not tell the output format.",
            f"End it in {', '.join(list(_SUFFIXES)[:-1])}, or pass --format {'|'.join(FORMATS)}.",
        )
    if is_compressed and format_name != "jsonl":
        raise ConfigError(f"{suffixes[-1]} compresses jsonl only, not {format_name}.", "Drop the suffix.")
    if is_compressed and suffixes[-1] == ".zst":
        require_extra("zstandard", "zstd")
    if format_name == "parquet":
        require_extra("pyarrow", "parquet")
    return format_name


def exists_error(path: Path) -> OutputError:
    """The error for an output that exists already."""
    return OutputError(f"{path} exists.", "Choose another name. --overwrite (in Python overwrite=True) replaces it.")


def check_place(target: str | Path) -> None:
    """An OutputError where no file can be written: a folder, a pipe, a device, a name in a missing folder."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror}).") from error
    if stat.S_ISDIR(mode):
        raise OutputError(f"{target} is a folder; a file name was expected.")
    if not stat.S_ISREG(mode):
        raise OutputError(f"{target} is not a regular file.", 'Pass "-" to stream jsonl to standard output.')
    folder = Path(os.path.realpath(target)).parent
    if not folder.is_dir():
        raise OutputError(f"{target}: there is no folder {folder}.", "Create it first, or check the spelling.")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{target}: the folder {folder} may not be written to.")


def _check_stdout(format_name: str, options: DumpOptions) -> None:
    if format_name != "jsonl":
        raise ConfigError(f"{format_name} cannot be streamed to standard output; only jsonl can.")
    if sys.stdout is None:
        raise OutputError("Standard output is closed.", "Name an output file.")
    if options.resume or options.shard:
        raise ConfigError("Standard output can be neither resumed nor split into shards.", "Name an output file.")
    if options.use_sentence_keys:
        raise ConfigError("--use-sentence-keys is for hdf5; the output is jsonl.")


def _check_flags(source: str | Path, format_name: str, options: DumpOptions) -> None:
    if format_name != "hdf5" and (options.use_sentence_keys or options.forget_sentences):
        raise ConfigError(f"--use-sentence-keys and --forget-sentences are for hdf5; the output is {format_name}.")
    if is_stream(source) and (options.resume or options.shard or options.use_sentence_keys):
        raise ConfigError(f"{source} can be read only once; --resume, --shard and --use-sentence-keys need a file.")


def is_stream(source: str | Path) -> bool:
    """Whether the input can be read only once: standard input, a pipe, a device."""
    if str(source) == "-":
        return True
    try:
        mode = os.stat(source).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _same_file(source: str | Path, path: Path) -> bool:
    try:
        return str(source) != "-" and os.path.samefile(source, path)
    except OSError:
        return False
