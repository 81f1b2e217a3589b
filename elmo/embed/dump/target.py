"""Where a bulk embedding goes: which format its name says, and everything that speaks against writing there.

Asked before the model is loaded, so that a mistake costs no time; needs no torch.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from elmo.embed.dump.options import FORMATS, DumpOptions
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


@dataclass(frozen=True, kw_only=True)
class Target:
    """An output that can be written: its real path (links followed) and its format."""

    path: Path
    format: str

    @property
    def parts_path(self) -> Path:
        """The folder of an unfinished run."""
        return self.path.with_name(self.path.name + ".parts")


def check_target(source: str | Path, target: str | Path, options: DumpOptions) -> Target:
    """The target, if nothing speaks against it: a wrong name or flag, a missing folder, a file already there."""
    found = Target(path=Path(os.path.realpath(target)), format=format_of(target, options.format))
    if str(source) == "-" and sys.stdin is None:
        raise DataError("Standard input is closed.", "Name an input file.")
    if str(target) == STDOUT:
        _check_stdout(found.format, options)
        return found
    _check_flags(source, found.format, options)
    check_place(target)
    if str(source) != "-" and os.path.realpath(source) == str(found.path) or _same_file(source, found.path):
        raise OutputError(f"{target} is the input itself.", "Choose another output.")
    if found.path.exists() and not options.overwrite and not options.resume:
        raise exists_error(found.path)
    return found


def format_of(target: str | Path, asked: str | None) -> str:
    """The format asked for, or the one the name ends in."""
    suffixes = Path(target).suffixes
    packed = bool(suffixes) and suffixes[-1] in COMPRESSED
    inner = suffixes[:-1] if packed else suffixes
    named = _SUFFIXES.get(inner[-1].lower()) if inner else None
    found = asked or ("jsonl" if str(target) == STDOUT else named)
    if found is None:
        raise ConfigError(
            f"The name {Path(target).name!r} does not say which format is wanted.",
            f"End it in {', '.join(list(_SUFFIXES)[:-1])}, or pass --format {'|'.join(FORMATS)}.",
        )
    if packed and found != "jsonl":
        raise ConfigError(f"{suffixes[-1]} compresses jsonl only, not {found}.", "Drop the suffix.")
    if packed and suffixes[-1] == ".zst":
        require_extra("zstandard", "zstd")
    if found == "parquet":
        require_extra("pyarrow", "parquet")
    return found


def exists_error(path: Path) -> OutputError:
    """What is said when the output is there already."""
    return OutputError(f"{path} exists.", "Choose another name or pass --overwrite.")


def check_place(target: str | Path) -> None:
    """Refuses what can never become a result: a folder, a pipe, a device, a name in a folder that is not there."""
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
        raise OutputError(f"{target}: there is no folder {folder}.", "Make it first, or check the spelling.")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{target}: the folder {folder} may not be written to.")


def _check_stdout(format_name: str, options: DumpOptions) -> None:
    if format_name != "jsonl":
        raise ConfigError(f"{format_name} cannot be streamed to standard output; only jsonl can.")
    if sys.stdout is None:
        raise OutputError("Standard output is closed.", "Name an output file.")
    if options.resume or options.shard:
        raise ConfigError("A stream to standard output has no parts to resume or to share out.", "Name an output file.")
    if options.use_sentence_keys:
        raise ConfigError("--use-sentence-keys is for hdf5; the output is jsonl.")


def _check_flags(source: str | Path, format_name: str, options: DumpOptions) -> None:
    if format_name != "hdf5" and (options.use_sentence_keys or options.forget_sentences):
        raise ConfigError(f"--use-sentence-keys and --forget-sentences are for hdf5; the output is {format_name}.")
    if is_stream(source) and (options.resume or options.shard or options.use_sentence_keys):
        raise ConfigError(f"{source} can be read only once; --resume, --shard and --use-sentence-keys need a file.")


def is_stream(source: str | Path) -> bool:
    """Whether the input can be read once only: standard input, a pipe, a device."""
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
