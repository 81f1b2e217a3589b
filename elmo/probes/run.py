"""The probes by name: what each is given, where its data usually lies, and one way to run any of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError
from elmo.probes.linear import FitConfig
from elmo.probes.similarity import probe_similarity
from elmo.probes.tagging import probe_tags
from elmo.probes.vector_source import VectorSource
from elmo.probes.wic import probe_wic
from elmo.probes.wsd import probe_wsd


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One kind of probe."""

    what: str
    data: str  # what its paths are
    usual_place: str  # below a folder that holds the data of all


PROBES = {
    "pos": Probe(
        what="part of speech, linear classifier",
        data="a CoNLL-U treebank: train, dev and test; a folder; or how their names begin",
        usual_place="pos/en_ewt",
    ),
    "ner": Probe(
        what="named entities, linear classifier",
        data="IOB2 files: train, dev and test; a folder; or how their names begin",
        usual_place="ner/uner_en_ewt",
    ),
    "wsd": Probe(
        what="word senses, nearest average",
        data="a folder with SemCor, Evaluation_Datasets and WordNet's index.sense",
        usual_place="wsd",
    ),
    "wic": Probe(
        what="word in context, threshold of a cosine",
        data="a folder with train.data.txt, train.gold.txt, dev.data.txt and dev.gold.txt",
        usual_place="wic/wic",
    ),
    "similarity": Probe(
        what="likeness of words in context, correlation with people's judgements",
        data="a file of judged pairs: context, context, score; SCWS's ratings; CoSimLex",
        usual_place="similarity/ratings.txt",
    ),
}


def run_probe(
    kind: str,
    source: VectorSource,
    paths: Sequence[str | Path],
    *,
    column: str = "xpos",  # of pos: xpos or upos
    config: FitConfig | None = None,  # of the linear ones
    limit: int | None = None,  # sentences of each file
    cache: Path | None = None,  # folder to keep the linear probes' vectors in
    device: str = "cpu",  # of the linear ones' fitting
    show: bool | None = None,
) -> dict[str, Any]:
    """Runs one probe; its record."""
    if kind not in PROBES:
        raise ConfigError(f"There is no probe {kind!r}.", f"Expected one of {', '.join(PROBES)}.")
    if kind in ("pos", "ner"):
        return probe_tags(
            source, paths, column=column if kind == "pos" else "iob", config=config, limit=limit, cache=cache,
            device=device, show=show,
        )  # fmt: skip
    if len(paths) != 1:
        raise ConfigError(f"{len(paths)} paths were given.", f"Give {PROBES[kind].data}.")
    if kind == "wsd":
        return probe_wsd(source, paths[0], limit=limit, show=show)
    if kind == "similarity":
        return probe_similarity(source, paths[0], limit=limit, show=show)
    return probe_wic(source, paths[0], limit=limit, show=show)
