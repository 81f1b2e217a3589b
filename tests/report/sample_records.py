"""Hand-made records in the form that `elmo task train`, `elmo probe`, `elmo pretrain` and `elmo demo` write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LAYERS = [0.2, 0.5, 0.3]


def task_record(
    task: str = "ner",
    *,
    elmo: bool = True,
    seed: int = 0,
    dev: float = 70.0,
    test: float | None = 60.0,
    share: float = 1.0,
    layers: str = "all",
    penalty: float = 0.001,
    place: str = "input",
    weights: list[float] | None = None,
    updates: list[tuple[int, float]] | None = None,  # (update, dev) of each validation
    dropout: float = 0.5,
    epochs: int = 5,
    metric: str = "f1",
    sha: str = "a",
) -> dict[str, Any]:
    curve = updates or [(10, dev / 2), (20, dev)]
    best = max(curve, key=lambda point: point[1])
    mixes = {}
    if elmo:
        for where in ("input", "output") if place == "both" else (place,):
            mixes[where] = {"weights": weights or LAYERS, "gamma": 1.5}
    return {
        "format": "elmo-task-record",
        "version": 1,
        "task": task,
        "metric": metric,
        "seed": seed,
        "config": {
            "task": task,
            "data": {"train": "/home/me/data/train.txt", "dev": "/home/me/dev.txt", "test": None, "fraction": share},
            "words": {"vectors": None, "dim": 100},
            "elmo": {
                "mode": "frozen" if elmo else "none", "model": "default", "layers": layers, "place": place,
                "penalty": penalty, "dropout": dropout, "cache": "memory", "cache_dir": None,
            },
            "train": {"seed": seed, "epochs": epochs, "patience": 3, "device": "cpu", "precision": "auto"},
        },
        "command": f"elmo task train {task} --set data.train=/home/me/data/train.txt --set train.seed={seed}",
        "data": {"train": {"sha256": sha, "examples": round(1000 * share)}, "dev": {"sha256": "b", "examples": 100}},
        "elmo": {"model": "default", "sha256": "c"} if elmo else None,
        "vectors": None,
        "dev": {metric: dev},
        "test": None if test is None else {metric: test},
        "best": {"epoch": 1, "update": best[0], "score": best[1]},
        "curve": [{"epoch": 1, "update": u, "loss": 1.0, "dev": {metric: d}, "seconds": 1.0} for u, d in curve],
        "mixes": mixes,
        "seconds": {"preparing": 1, "training": 2},
        "device": "x86_64",
        "versions": {"elmo": "0"},
        "path": f"{task}/{elmo}-{layers}-{penalty}-{place}-{share}-{dropout}/{seed}/record.json",
    }  # fmt: skip


def tuned_record(task: str, **settings: Any) -> dict[str, Any]:
    """The record of a run with a biLM that was fine-tuned on the task's text, made from the biLM with checksum "c"."""
    parts = {"contexts": (90.0, 40.0), "questions": (150.0, 50.0)} if task == "squad" else {"sentences": (100.0, 60.0)}
    sides = [
        {
            "reset": {"mean": 100.0 - 40 * number},
            "by_part": {part: {"reset": {"mean": values[number]}} for part, values in parts.items()},
        }
        for number in range(2)
    ]
    record = task_record(task, **settings)
    perplexity = {"before": sides[0], "after": sides[1]}
    finetuning = {"task": task, "initial": {"model": "default", "sha256": "c"}, "perplexity": perplexity}
    record["elmo"] = {"model": "run/bilm", "sha256": "t", "finetuning": finetuning}
    record["config"]["elmo"]["model"] = "run/bilm"
    record["path"] = f"tuned/{record['path']}"
    return record


def probe_record(kind: str = "pos", *, trained: bool = True, low: float = 95.0, high: float = 94.0) -> dict[str, Any]:
    vectors = {"name": "/home/me/my-model", "tensors_sha256": "d", "layers": 3, "trained": trained}
    if kind == "wsd":
        plain = {"0": 60.0, "1": low, "2": high}
        scores: dict[str, Any] = {
            "views": {
                view: {"plain": {"ALL": f, "semeval2007": f - 5, "nouns": f + 1, "no_back_off": f - 9}}
                for view, f in plain.items()
            },
            "wordnet_first_sense": {"ALL": 65.2, "semeval2007": 55.2, "nouns": 67.6},
            "semcor_most_frequent": {"ALL": 64.8, "semeval2007": 54.5, "nouns": 67.0},
        }
        scores["views"]["2"]["tuned"] = {
            "ALL": high + 1,
            "semeval2007": high,
            "nouns": high,
            "form": "plain",
            "prior": 0,
        }
    elif kind == "similarity":
        figures = {"spearman": 0.61, "pearson": 0.6}
        scores = {"metric": "correlation", "views": {"0": {"plain": figures, "centred": figures}}}
    elif kind == "wic":
        forms = {"plain": {"train": 60.0, "dev": 58.0, "threshold": 0.5}, "centred": {"train": 61.0, "dev": 59.0}}
        scores = {
            "metric": "accuracy",
            "views": {"0": forms, "1-2": forms},
            "always_same": {"train": 50.0, "dev": 50.0},
        }
    else:
        views: dict[str, Any] = {
            view: {"dev": f - 1, "test": f, "epoch": 3} for view, f in {"0": 80.0, "1": low, "2": high}.items()
        }
        views["concat"] = {"dev": 94.1, "test": 95.4, "epoch": 4}
        views["mix"] = {"dev": 94.0, "test": 95.5, "epoch": 4, "layer_weights": LAYERS}
        scores = {"metric": "accuracy", "views": views, "most_frequent_tag": {"dev": 85.0, "test": 84.0}}
    settings = {"column": "upos", "limit": 100, "epochs": 12, "seed": 3} if kind == "pos" else {"limit": None}
    return {"probe": kind, "vectors": vectors, "data": {}, "settings": settings, "counts": {}, "scores": scores}


def training_report() -> dict[str, Any]:
    figures = {"forward": 62.8, "backward": 61.2, "mean": 62.0, "predictions": 1234567}
    perplexity = {"reset": figures, "carried": figures, "by_source": {"text/novels.heldout.txt.xz": figures}}
    return {"step": 300, "stopped": "finished", "best": figures, "definition": "exp of ...", "perplexity": perplexity}


COURSE = [{"step": 100, "reset": 150.0, "carried": 200.0}, {"step": 300, "reset": 62.0, "carried": 66.0}]
FINETUNED = {
    "coverage": {"before": 0.97, "after": 0.99},
    "before": {"by_source": {"law.txt": {"reset": {"mean": 190.9}}, "novels.txt": {"reset": {"mean": 71.1}}}},
    "after": {"by_source": {"law.txt": {"reset": {"mean": 46.6}}}},
}
PERPLEXITY = {
    "definition": "exp of ...",
    "reset": {"forward": 115.2, "backward": 119.1, "mean": 117.1, "predictions": 322706},
    "words": 310490,
    "unknown": 0.03,
    "files": ["/home/me/news.txt"],
}
DEMO = {
    "model": "default",
    "trained": True,
    "senses": {
        "bank": [{"within": 0.9, "between": 0.8, "nearest": 0.5}, {"within": 0.8, "between": 0.3, "nearest": 1.0}]
    },
    "neighbours": [
        {
            "query": "The [bank] <lent> & lent",
            "layers": [[{"score": 0.5, "shown": "a [shore]"}], [{"score": 0.7, "shown": "his [bank]"}]],
        }
    ],
    "language_model": {"substitutes": [{"sentence": "The [bank] lent", "words": ["company", "firm"]}], "scores": []},
    "plane": {
        "bank": {"senses": ["money", "river"], "points": [[[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.2], [-1.0, -0.2]]]},
    },
}
_NEAR = {"score": 0.63, "line": 3, "position": 1, "tokens": ["to", "play", "well"]}
SIMILAR = {
    "command": "elmo similar 'They play .' play /home/me/data/corpus.txt --beside 'A play .' --json",
    "vectors": {"name": "default", "trained": True},
    "corpus": {"file": "corpus.txt", "sentences": 7, "words": 50},
    "queries": [
        {"tokens": ["They", "play", "."], "position": 1, "neighbours": [_NEAR]},
        {"tokens": ["A", "play", "."], "position": 1, "neighbours": [_NEAR, _NEAR]},
    ],
    "cosines": [[1.0, 0.4], [0.4, 1.0]],
    "without_context": [{"vectors": {"name": "tokens"}, "words": [{"word": "plays", "score": 0.8}]}],
}
GEOMETRY = {
    "command": "elmo geometry text.txt",
    "vectors": {"name": "default", "trained": True},
    "geometry": [
        {"layer": 0, "anisotropy": 0.1, "self_similarity": 1.0, "sentence_similarity": 0.5, "norm": 4.0},
        {"layer": 1, "anisotropy": 0.2, "self_similarity": 0.7, "sentence_similarity": 0.6, "norm": 5.0},
    ],
}


def full_set() -> list[dict[str, Any]]:
    """Task records that fill Tables 1 to 3 and 7 and both figures."""
    records = []
    for task, gain in (("snli", 4.0), ("ner", 10.0)):
        for seed in (0, 1):
            records.append(task_record(task, elmo=False, seed=seed, dev=60 + seed, test=55 + seed))
            for kind, (layers, penalty, place) in enumerate(
                [("top", 0.001, "input"), ("all", 1.0, "input"), ("all", 0.001, "input"), ("all", 0.001, "both"),
                 ("all", 0.001, "output")]
            ):  # fmt: skip
                figure = 60 + gain + 3 * kind + seed
                records.append(task_record(task, seed=seed, dev=figure, test=figure - 5, layers=layers, penalty=penalty,
                                           place=place))  # fmt: skip
            for share in (0.01, 0.1):
                for elmo in (False, True):
                    figure = 30 + 200 * share + gain * elmo + seed
                    records.append(
                        task_record(task, elmo=elmo, seed=seed, share=share, dev=figure, test=figure, epochs=40)
                    )
    return [*records, tuned_record("snli", dev=62.0, test=57.0)]


def write_all(folder: Path) -> Path:
    """Writes every kind of record into files below a folder, with the names that commands use."""
    files: dict[str, Any] = {record["path"]: record for record in full_set()}
    files |= {f"{kind}.json": probe_record(kind) for kind in ("pos", "ner", "wic", "similarity")}
    files["wsd.json"] = probe_record("wsd", low=67.0, high=69.0)
    files |= {
        "my-model/report.json": training_report(),
        "my-model/course.json": COURSE,
        "my-model/config.json": {"a": 1},
    }
    files |= {
        "news.json": PERPLEXITY,
        "law/finetune.json": FINETUNED,
        "demo.json": DEMO,
        "play.json": SIMILAR,
        "geometry.json": GEOMETRY,
    }
    for name, values in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        plain = {k: v for k, v in values.items() if k != "path"} if isinstance(values, dict) else values
        (folder / name).write_text(json.dumps(plain), encoding="utf-8")
    return folder
