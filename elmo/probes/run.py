"""The list of probes with their data, and one function that runs any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError
from elmo.probes.languages import probe_languages
from elmo.probes.linear import FitConfig
from elmo.probes.similarity import probe_similarity
from elmo.probes.tagged_sentences import TREEBANK_COLUMNS
from elmo.probes.tagging import probe_tags
from elmo.probes.vector_source import VectorSource
from elmo.probes.wic import probe_wic
from elmo.probes.wsd import probe_wsd


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Description of one kind of probe."""

    data: str  # which paths it expects
    default_path: str  # below a folder with the data of all probes


PROBES = {
    "pos": Probe(  # part of speech, linear classifier
        data="a CoNLL-U treebank: train, dev and test; a folder; or their common prefix",
        default_path="pos/en_ewt",
    ),
    "languages": Probe(  # universal parts of speech of many languages, linear classifiers
        data="a folder with CoNLL-U treebanks of several languages: de-ud-train.conllu, de-ud-dev.conllu ...",
        default_path="ud",
    ),
    "ner": Probe(  # named entities, linear classifier
        data="IOB2 files: train, dev and test; a folder; or their common prefix",
        default_path="ner/uner_en_ewt",
    ),
    "wsd": Probe(  # word senses, nearest average vector
        data="a folder with SemCor, Evaluation_Datasets and WordNet's index.sense",
        default_path="wsd",
    ),
    "wic": Probe(  # word in context, threshold on a cosine
        data="a folder with train.data.txt, train.gold.txt, dev.data.txt and dev.gold.txt",
        default_path="wic/wic",
    ),
    "similarity": Probe(  # similarity of words in context, correlation with human judgements
        data="a file of judged pairs: context, context, score; SCWS's ratings; CoSimLex",
        default_path="similarity/ratings.txt",
    ),
}
FITTED = ("pos", "languages", "ner")  # the probes that train classifiers


def run_probe(
    kind: str,
    source: VectorSource,
    paths: Sequence[str | Path],
    *,
    column: str | None = None,  # for pos: xpos (the default) or upos; for languages: upos
    config: FitConfig | None = None,  # for the linear probes
    static_vectors: str | None = None,  # for languages: path of word vectors with {language}, probed as well
    limit: int | None = None,  # sentences per file
    cache: Path | None = None,  # cache folder for the vectors of the linear probes
    device: str = "cpu",  # on which the linear probes are trained
    show: bool | None = None,
) -> dict[str, Any]:
    """Runs one probe and returns its record; an option that the probe does not have is an error."""
    if kind not in PROBES:
        raise ConfigError(f"There is no probe {kind!r}.", f"Expected one of {', '.join(PROBES)}.")
    check_options(kind, {"column": column, "config": config, "cache": cache, "static_vectors": static_vectors})
    if kind in ("pos", "ner"):
        return probe_tags(
            source, paths, column=(column or "xpos") if kind == "pos" else "iob", config=config, limit=limit,
            cache=cache, device=device, show=show,
        )  # fmt: skip
    if len(paths) != 1:
        raise ConfigError(f"{len(paths)} paths were given.", f"Give {PROBES[kind].data}.")
    if kind == "languages":
        return probe_languages(
            source, paths[0], static_vectors=static_vectors, config=config, limit=limit, cache=cache, device=device,
            show=show,
        )  # fmt: skip
    if kind == "wsd":
        return probe_wsd(source, paths[0], limit=limit, show=show)
    if kind == "similarity":
        return probe_similarity(source, paths[0], limit=limit, show=show)
    return probe_wic(source, paths[0], limit=limit, show=show)


def check_options(kind: str, options: Mapping[str, object]) -> None:
    """Raises an error for an option that the probe does not have.

    `options` maps the names of arguments (`column`) or of options of the command line (`--column`) to their values;
    the value None means that the option was not given.
    """
    for name, value in options.items():
        option = name.lstrip("-")
        if value is None:
            continue
        if option == "column":
            _check_column(kind, name, value)
        elif option == "static_vectors" and kind != "languages":
            raise ConfigError(
                f"{name} was given, but the probe {kind} measures only `source`.",
                "Only languages has this option; static vectors can be the source of every probe.",
            )
        elif kind not in FITTED:
            raise ConfigError(
                f"{name} was given, but the probe {kind} trains no linear classifier.",
                f"Only {', '.join(FITTED)} have this option; leave it out.",
            )


def _check_column(kind: str, name: str, column: object) -> None:
    if kind not in ("pos", "languages"):
        raise ConfigError(
            f"{name} was given, but the data of the probe {kind} are not treebanks.",
            "Only pos and languages have this option; leave it out.",
        )
    if column not in TREEBANK_COLUMNS:
        raise ConfigError(f"{name} is {column!r}.", "Expected xpos or upos.")
    if column == "xpos" and kind == "languages":
        raise ConfigError(
            f"{name} is 'xpos', but the probe languages compares universal tags: the tags in xpos differ by treebank.",
            f"Expected upos, or no {name}; for the xpos tags of one treebank: the probe pos.",
        )
