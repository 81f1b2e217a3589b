"""Part-of-speech probe for many languages: universal tags on every treebank of a folder, in one record.

For each language: all layers of a model, static word vectors if there is a file of them, and the most frequent tag of
each word.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError
from elmo.probes.linear import FitConfig
from elmo.probes.record import probe_record
from elmo.probes.tagged_sentences import SPLITS, find_splits
from elmo.probes.tagging import probe_tags
from elmo.probes.vector_source import VectorSource, read_static_vectors

log = logging.getLogger(__name__)

PLACEHOLDER = "{language}"


def probe_languages(
    source: VectorSource,
    folder: str | Path,
    *,
    static_vectors: str | None = None,  # path with {language}; a language without a file has no static score
    config: FitConfig | None = None,
    limit: int | None = None,  # sentences per file
    cache: Path | None = None,
    device: str = "cpu",
    show: bool | None = None,
) -> dict[str, Any]:
    """Returns a record with the dev and test accuracy of each view for every language, and the means over languages."""
    config = config or FitConfig()
    treebanks = find_treebanks(folder)
    static_paths = {} if static_vectors is None else _find_static_vectors(static_vectors, list(treebanks))
    languages: dict[str, dict[str, Any]] = {}
    counts = {f"{split}_words": 0 for split in SPLITS}
    for language, files in treebanks.items():
        paths = list(files.values())
        options: dict[str, Any] = {"column": "upos", "config": config, "limit": limit, "device": device, "show": show}
        record = probe_tags(source, paths, cache=cache, **options)
        scores = {name: record["scores"][name] for name in ("views", "most_frequent_tag")}
        if language in static_paths:
            static_path = static_paths[language]
            static = probe_tags(read_static_vectors(str(static_path)), paths, cache=cache, **options)
            scores["static"] = {
                **static["scores"]["views"]["0"], "file": static_path.name, "sha256": static["vectors"]["file_sha256"],
            }  # fmt: skip
        languages[language] = scores
        for name in counts:
            counts[name] += record["counts"][name]
    return probe_record(
        kind="languages",
        source=source,
        files={f"{language}_{split}": files[split] for language, files in treebanks.items() for split in SPLITS},
        settings={"column": "upos", "limit": limit, **vars(config)},
        counts={"languages": len(languages), **counts},
        scores={"metric": "accuracy", "languages": languages, "mean": _means(languages)},
    )


def find_treebanks(folder: str | Path) -> dict[str, dict[str, Path]]:
    """The train, dev and test file of each language, from names such as de-ud-train.conllu and fr_gsd-ud-train.conllu.

    The language is the part of the name before "-ud-train" or "-train".
    """
    folder = Path(folder)
    treebanks: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.glob("*.conllu*")) if folder.is_dir() else ():
        prefix = re.match(r"(?P<common>(?P<language>.+?)[-_.](?:ud[-_.])?)train\b", path.name)
        if prefix:
            treebanks[prefix["language"]] = _find_treebank(folder, prefix["common"])
    if not treebanks:
        reason = "there are no treebanks" if folder.is_dir() else "no such folder"
        raise ConfigError(
            f"{folder}: {reason}.",
            "Expected a folder with files such as de-ud-train.conllu, de-ud-dev.conllu and de-ud-test.conllu.",
        )
    return treebanks


def _find_treebank(folder: Path, common: str) -> dict[str, Path]:
    """The files of one treebank, whose names begin with `common`."""
    try:
        return find_splits([folder / common])
    except ConfigError as error:
        names = ", ".join(f"{common}{split}.conllu" for split in SPLITS)
        raise ConfigError(error.message, f"Expected {names}, all three or none.") from error


def _find_static_vectors(pattern: str, languages: list[str]) -> dict[str, Path]:
    """Language -> file of its static word vectors, for the languages that have one; an error if none has."""
    if PLACEHOLDER not in pattern:
        raise ConfigError(f"The name of the vectors is {pattern!r}.", f"Expected {PLACEHOLDER} in it.")
    paths = {language: Path(pattern.replace(PLACEHOLDER, language)) for language in languages}
    missing = [language for language, path in paths.items() if not path.is_file()]
    if len(missing) == len(languages):
        raise ConfigError(
            f"No file of vectors was found for any language of the treebanks: {', '.join(missing)}.",
            f"{pattern} stands for files such as {paths[languages[0]]}; at least one of them must exist.",
        )
    if missing:
        log.warning("no file of vectors (%s) was found for: %s", pattern, ", ".join(missing))
    return {language: path for language, path in paths.items() if language not in missing}


def _means(languages: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Dev and test accuracy, averaged over the languages that have them, for each view and baseline."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for scores in languages.values():
        baselines = {name: scores[name] for name in ("static", "most_frequent_tag") if name in scores}
        for name, row in {**scores["views"], **baselines}.items():
            rows.setdefault(name, []).append(row)
    return {
        name: {split: sum(row[split] for row in of_one) / len(of_one) for split in SPLITS[1:]}
        for name, of_one in rows.items()
    }
