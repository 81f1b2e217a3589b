"""Finds the text files of a corpus: file names, globs, folders, pipes and standard input."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, NoReturn

from elmo.errors import ConfigError, DataError
from elmo.files import COMPRESSED

log = logging.getLogger(__name__)

_KINDS = f".txt, also {' '.join(COMPRESSED)}"  # of files that a folder stands for
_MAX_NAMED = 5  # ignored files that a message names
_OWN_FILES = (  # of folders that this package writes: a run, prepared text, a model
    {"config.toml", "metrics.jsonl"},
    {"manifest.json", "types.bin"},
    {"config.json", "model.safetensors"},
)


@dataclass(frozen=True)
class Source:
    """One input file."""

    path: str
    size: int  # bytes on disk
    stream: bool = False  # standard input ("-") or a pipe: it can be read only once and its size is unknown
    language: str | None = None

    @property
    def splittable(self) -> bool:
        """Whether a byte range of the file can be read by itself; false for compressed files and streams."""
        return not self.stream and Path(self.path).suffix not in COMPRESSED


class FolderFiles(NamedTuple):
    """The text files of a folder, and what else it holds."""

    taken: list[str]  # paths
    ignored: list[str]  # names in the folder: other files, links to folders, and folders that this package wrote
    num_hidden: int  # files and folders whose names begin with a full stop


def find_sources(patterns: Iterable[str | Path]) -> list[Source]:
    """The files that names, globs and folders stand for, without duplicates, in the order of the patterns.

    Each glob is sorted; a folder stands for its text files (see `list_folder`).
    """
    if isinstance(patterns, (str, Path)):
        patterns = [patterns]
    sources: dict[str, Source] = {}
    for pattern in map(str, patterns):
        for path in _expand(pattern):
            key = path if path == "-" else os.path.realpath(path)
            if key in sources:
                log.warning("%s is named twice; it is read once.", path)
                continue
            stream = not os.path.isfile(path)
            sources[key] = Source(path, 0 if stream else _file_size(path), stream)
    if not sources:
        raise ConfigError("No text files were named.", "Name files, globs or folders, or - for standard input.")
    return list(sources.values())


def find_language_sources(languages: Mapping[str, Iterable[str | Path]]) -> list[Source]:
    """The files of each language, language by language; a file of two languages is an error."""
    sources: dict[str, Source] = {}
    for language, patterns in languages.items():
        for source in find_sources(patterns):
            key = source.path if source.path == "-" else os.path.realpath(source.path)
            if key in sources:
                raise ConfigError(
                    f"{source.path} is text of {sources[key].language} and of {language}.", "Name each file once."
                )
            sources[key] = replace(source, language=language)
    return list(sources.values())


def list_folder(folder: str) -> FolderFiles:
    """The files of a folder and its subfolders whose names end in .txt, .txt.gz and so on, sorted.

    Hidden files and folders are left out, and folders that this package wrote, because a run may lie beside its text;
    it is an error if the folder itself is one of these. Links to folders are not followed.
    """

    def fail(error: OSError) -> NoReturn:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror}).") from error

    taken, ignored, num_hidden = [], [], 0
    for parent, folders, names in os.walk(folder, onerror=fail):
        if any(own <= set(names) for own in _OWN_FILES):
            if parent == folder:
                raise DataError(
                    f"{folder} is a run, a model or prepared text; expected a folder of text.", "Name the text itself."
                )
            ignored.append(os.path.join(os.path.relpath(parent, folder), ""))
            folders.clear()
            continue
        num_hidden += sum(name.startswith(".") for name in (*folders, *names))
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders + [name for name in names if not name.startswith(".")]:
            path = os.path.join(parent, name)
            if _is_text_name(name) and os.path.isfile(path):
                taken.append(path)
            elif not os.path.isdir(path) or os.path.islink(path):
                ignored.append(os.path.relpath(path, folder))
    return FolderFiles(sorted(taken), sorted(ignored), num_hidden)


def describe_folders(patterns: Iterable[str]) -> Iterator[str]:
    """A line for each folder among the patterns: how many files are read, and what is ignored."""
    for folder in filter(os.path.isdir, patterns):
        files = list_folder(folder)
        hidden = f"; {files.num_hidden:,} hidden files or folders are left out" if files.num_hidden else ""
        ignored = f"; ignored: {_name_some(files.ignored)}" if files.ignored else ""
        yield f"{folder}: {len(files.taken):,} text files ({_KINDS}){ignored}{hidden}"


def _expand(pattern: str) -> list[str]:
    """The paths that a file name, a glob or a folder stands for."""
    if os.path.isdir(pattern):
        return _text_files(pattern)
    if pattern == "-" or os.path.exists(pattern):
        return [pattern]
    paths = [path for path in sorted(glob.glob(pattern, recursive=True)) if os.path.isfile(path)]
    if not paths:
        raise DataError(f"{pattern}: no such file.", "Check the name; a glob may be quoted or unquoted.")
    return paths


def _file_size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error


def _text_files(folder: str) -> list[str]:
    files = list_folder(folder)
    if not files.taken:
        others = f"It has {len(files.ignored):,} other files: {_name_some(files.ignored)}. " if files.ignored else ""
        raise DataError(
            f"{folder} has no text files ({_KINDS}).", f"{others}Name files or a glob: '{os.path.join(folder, '*')}'."
        )
    return files.taken


def _is_text_name(name: str) -> bool:
    return name.lower().endswith(".txt") or name.endswith(tuple(f".txt{suffix}" for suffix in COMPRESSED))


def _name_some(names: list[str]) -> str:
    num_others = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {num_others:,} others" if num_others > 0 else "")
