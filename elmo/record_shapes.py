"""The shapes of all kinds of records, as far as tables, charts and resumed runs read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elmo.schema import ANY, COUNT, NUMBER, SHARE, Keys, List, Maybe, Number, Problem, find_problem

_PERCENT = Number(low=0, high=100)
_SEED = Number(low=0, high=2**63, whole=True)
_LAYER = Number(low=0, high=1000, whole=True)
_VECTORS = {"name": str, "layers?": COUNT, "trained?": Maybe(bool)}
_VIEW = "[A-Za-z0-9_.,+-]{1,40}"  # "0", "1-2", "mix", "concat"
_PERPLEXITY = {"forward": NUMBER, "backward?": Maybe(NUMBER), "mean": NUMBER, "predictions": COUNT}
_PROBE = {
    "probe": str,
    "vectors": _VECTORS,
    "scores": {},
    "command?": Maybe(str),
    "settings?": {"limit?": Maybe(COUNT), "column?": Maybe(str), "epochs?": COUNT, "seed?": _SEED},
    "counts?": {"targets?": COUNT, "test_words?": COUNT},
    "data?": {},
}
_FILES = {"*": {"file?": str}}  # of a probe, by split
_TAGGING = {
    **_PROBE,
    "scores": {
        "metric": str,
        "views": Keys(_VIEW, {"test": _PERCENT, "dev": _PERCENT, "layer_weights?": Maybe(List(NUMBER))}, least=1),
        "most_frequent_tag": {"test": _PERCENT, "dev?": _PERCENT},
    },
    "data?": _FILES,
}
_ACCURACIES = {"test": _PERCENT, "dev": _PERCENT}
_LANGUAGES = {
    **_PROBE,
    "scores": {
        "metric": str,
        "languages": Keys(
            r"[\w.-]{1,40}",
            {"views": Keys(_VIEW, _ACCURACIES, least=1), "most_frequent_tag": _ACCURACIES, "static?": _ACCURACIES},
            least=1,
        ),
        "mean": {"*": _ACCURACIES},
    },
    "data?": _FILES,
}
_SENSES = {"ALL": _PERCENT, "*": NUMBER}
_PROBES: dict[str, Any] = {
    "pos": _TAGGING,
    "languages": _LANGUAGES,
    "ner": _TAGGING,
    "wsd": {
        **_PROBE,
        "scores": {
            "views": Keys(
                _VIEW,
                {
                    "plain": {"ALL": _PERCENT, "layer_weights?": Maybe(List(NUMBER)), "*": NUMBER},
                    "tuned?": {"form?": ANY, "prior?": ANY, "layer_weights?": Maybe(List(NUMBER)), "*": NUMBER},
                },
                least=1,
            ),
            "wordnet_first_sense": _SENSES,
            "semcor_most_frequent": _SENSES,
        },
    },
    "wic": {
        **_PROBE,
        "scores": {
            "views": Keys(_VIEW, {"plain": {"dev": _PERCENT}, "centred": {"dev": _PERCENT}}, least=1),
            "always_same": {"dev": _PERCENT},
        },
    },
    "similarity": {
        **_PROBE,
        "scores": {"views": Keys(_VIEW, {"plain": {"*": NUMBER}, "centred": {"*": NUMBER}}, least=1)},
        "data?": _FILES,
    },
}
_MEAN = Maybe({"mean?": Maybe(NUMBER)})
_FINETUNED = {"by_source?": Maybe({"*": Maybe({"reset?": _MEAN})}), "reset?": _MEAN}
_SIDE = {"reset": {"mean": NUMBER}, "by_part": {"*": {"reset": {"mean": NUMBER}}}}
_TASK_FINETUNING = {"task": str, "initial": {"sha256": str}, "perplexity": {"before": _SIDE, "after": _SIDE}}
_NEIGHBOUR = {"score": NUMBER, "tokens": List(str), "position": COUNT}
_RECORDS: dict[str, Any] = {
    "training": {
        "command?": Maybe(str),
        "perplexity": {
            "reset?": Maybe(_PERPLEXITY),
            "carried?": Maybe(_PERPLEXITY),
            "by_source?": Maybe({"*": _PERPLEXITY}),
            "by_language?": Maybe({"*": _PERPLEXITY}),
        },
    },
    "perplexity": {
        "command?": Maybe(str),
        "files": List(str),
        "words": COUNT,
        "unknown": SHARE,
        "definition": ANY,
        "reset": _PERPLEXITY,
        "carried?": Maybe({"mean": NUMBER}),
        "by_source?": Maybe({"*": {"reset": _PERPLEXITY, "carried?": Maybe({"mean": NUMBER}), "unknown": SHARE}}),
    },
    "finetuning": {
        "command?": Maybe(str),
        "coverage": ANY,
        "before": Maybe(_FINETUNED),
        "after": Maybe(_FINETUNED),
    },
    "demo": {
        "command?": Maybe(str),
        "model?": str,
        "trained?": bool,
        "senses": Keys(".*", List({"within": NUMBER, "between": NUMBER, "nearest": SHARE}, least=1), least=1),
        "neighbours": List(
            {"query": str, "layers": List(List({"score": NUMBER, "shown": str}, least=1), least=1)}, least=1
        ),
        "plane?": Maybe({"*": {"senses": List(str), "points": List(List(List(NUMBER)))}}),
        "language_model?": Maybe({"substitutes?": List({"sentence?": str, "words?": List(str)})}),
    },
    "neighbours": {
        "command": Maybe(str),
        "vectors": _VECTORS,
        "corpus": {"file": str, "sentences": COUNT, "words?": Maybe(COUNT)},
        "queries": List({"position": COUNT, "tokens": List(str, least=1), "neighbours": List(_NEIGHBOUR)}, least=1),
        "without_context": List({"vectors": {"name": str}, "words": List({"word": str})}),
        "cosines?": List(List(NUMBER)),
    },
    "geometry": {
        "command?": Maybe(str),
        "vectors?": _VECTORS,
        "geometry": List(
            {
                "layer": _LAYER,
                "anisotropy": NUMBER,
                "self_similarity": NUMBER,
                "norm": NUMBER,
                "sentence_similarity?": NUMBER,
            },
            least=1,
        ),
    },
}
COURSE = List({"step": COUNT, "reset": NUMBER, "carried?": Maybe(NUMBER)})  # the validations of a training


def find_record_problem(kind: str, record: Mapping[str, Any]) -> Problem | None:
    """The first value of a record that is not what its kind requires; None for a complete record."""
    if kind == "task":
        return find_problem(record, {"metric": str}) or find_problem(record, _task_shape(str(record["metric"])))
    if kind == "probe":
        return find_problem(record, _PROBE) or find_problem(record, _PROBES.get(record["probe"], _PROBE))
    problem = find_problem(record, _RECORDS.get(kind, {}))
    if kind == "neighbours" and problem is None:
        for number, query in enumerate(record["queries"]):
            if query["position"] >= len(query["tokens"]):
                expected = f"a number below {len(query['tokens'])}, the number of tokens"
                return Problem(f"queries[{number}].position", str(query["position"]), expected)
    return problem


def describe_problem(kind: str, record: Mapping[str, Any], problem: Problem) -> str:
    """One phrase that says what is wrong with a record."""
    name = str(record.get("probe"))[:80] if kind == "probe" else kind
    return f"a record of {name} without {problem.path}" if problem.found is None else f"a record of {name}: {problem}"


def _task_shape(metric: str) -> dict[str, Any]:
    mix = {"weights": List(NUMBER, least=1), "gamma": NUMBER}
    return {
        "task": str,
        "seed": _SEED,
        "command?": Maybe(str),
        "config": {
            "data": {"fraction": SHARE},
            "words": {"vectors": Maybe(str)},
            "elmo": {"mode": str, "layers": str, "penalty": NUMBER, "place": str},
        },
        "data": {"train": {"sha256": str, "examples": COUNT}, "*": {"sha256": str, "examples?": COUNT}},
        "elmo": Maybe({"sha256": str, "finetuning?": Maybe(_TASK_FINETUNING)}),
        "vectors": Maybe({"sha256": str}),
        "dev": {metric: _PERCENT},
        "test": Maybe({metric: _PERCENT}),
        "best": {"score": _PERCENT, "update": COUNT},
        "curve": List({"update": COUNT, "dev": {metric: _PERCENT}}, least=1),
        "mixes": Keys("input|output", mix),
    }
