"""Word sense disambiguation by the nearest sense average, as in the paper's table 5 (section 5.3).

A word gets the sense, of those SemCor has for its lemma and part of speech, whose average vector has the largest cosine
with its own; a lemma SemCor lacks gets WordNet's first sense. Scored on Raganato's five sets, apart and together.

`plain` is that and no more. `tuned` also centres or whitens the vectors and adds a share of log(count) of the sense,
whatever did best on SemEval 2007, the development set of the framework: its figure is not a test figure there. The
weights of the `mix` of layers are chosen there too; `concat`, all layers at length one side by side, chooses nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import ConfigError
from elmo.probes.layer_averages import average_names, averages
from elmo.probes.record import make_record
from elmo.probes.sense_averages import FORMS, SenseAverages, average_senses, target_vectors, transform
from elmo.probes.sense_mix import PairProducts, weightings
from elmo.probes.senses import Target, WordNet, read_raganato, read_semcor, read_wordnet
from elmo.probes.vector_source import VectorSource

DEV = "semeval2007"
PRIORS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08)  # share of log(count) added to a cosine
POS_NAMES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}


def probe_wsd(
    source: VectorSource, folder: str | Path, *, limit: int | None = None, show: bool | None = None
) -> dict[str, Any]:
    """A record with F1 by set and part of speech for each view; every word is answered, so F1 is accuracy."""
    files = find_files(Path(folder))
    wordnet = read_wordnet(files["wordnet"])
    sets = {name: path for name, path in files.items() if name not in ("semcor", "wordnet")}
    names: list[str] = []  # the set of each target
    targets: list[Target] = []
    vectors: list[np.ndarray] = []
    for name, path in sets.items():
        texts = list(islice(read_raganato(path), limit))
        num_words = sum(len(text.tokens) for text in texts)
        for target, vector in target_vectors(source, texts, num_words, f"embedding {name}", show):
            names.append(name)
            targets.append(target)
            vectors.append(vector)
    learned = average_senses(
        source,
        lambda: read_semcor(files["semcor"], limit=limit),
        {target.lemma for target in targets},
        wordnet,
        show=show,
    )
    solver = _Solver(learned, wordnet, targets, np.array(names))
    return make_record(
        kind="wsd",
        source=source,
        files=files,
        settings={"limit": limit, "development_set": DEV, "priors": PRIORS, "forms": FORMS},
        counts={
            "targets": len(targets),
            "senses": len(learned.senses),
            **{name: names.count(name) for name in sets},
            "lemma_in_semcor": sum(target.lemma in learned.rows for target in targets),
        },
        scores={
            "metric": "F1",
            "views": {**solver.views(stacked := np.stack(vectors)), **solver.combined(stacked)},
            "wordnet_first_sense": solver.score([wordnet.first(target.lemma) for target in targets]),
            "semcor_most_frequent": solver.score(solver.usual()),
        },
    )


def find_files(folder: Path) -> dict[str, Path]:
    """SemCor, index.sense and the evaluation sets in a folder; ALL is left out: it is the others together."""
    found = {
        "semcor": next(iter(sorted([*folder.rglob("semcor*.jsonl*"), *folder.rglob("semcor*.data.xml")])), None),
        "wordnet": next(iter(sorted(folder.rglob("index.sense*"))), None),
    }
    for what, path in found.items():
        if path is None:
            raise ConfigError(
                f"{folder}: no {what} was found.",
                "Expected semcor*.jsonl or semcor.data.xml, WordNet's index.sense, and SET/SET.data.xml.",
            )
    sets = {path.name.removesuffix(".data.xml"): path for path in sorted(folder.rglob("*.data.xml"))}
    sets = {name: path for name, path in sets.items() if name != "ALL" and not name.startswith("semcor")}
    if not sets:
        raise ConfigError(
            f"{folder}: no evaluation sets were found.", "Expected SET/SET.data.xml and SET.gold.key.txt."
        )
    return {name: path for name, path in found.items() if path is not None} | sets


class _Solver:
    """All targets, their candidates, and how answers are scored."""

    def __init__(self, learned: SenseAverages, wordnet: WordNet, targets: Sequence[Target], names: np.ndarray) -> None:
        self.learned, self.wordnet, self.targets, self.names = learned, wordnet, targets, names
        self.candidates = [learned.rows.get(target.lemma) for target in targets]
        sizes = [len(rows) if rows is not None else 0 for rows in self.candidates]
        self.ends = np.cumsum([0, *sizes])
        self.of_target = np.repeat(np.arange(len(targets)), sizes)  # (P,)
        self.of_sense = np.array([row for rows in self.candidates if rows is not None for row in rows], dtype=np.int64)
        self.log_counts = np.log(learned.counts[self.of_sense])  # (P,)

    def views(self, vectors: np.ndarray) -> dict[str, Any]:
        """Plain and tuned scores for each layer and average; vectors (N, L, D)."""
        found: dict[str, Any] = {}
        tried: dict[str, list[tuple[float, str, float, dict[str, Any]]]] = defaultdict(list)
        for form in FORMS:
            change = transform(self.learned, form)
            queries = _unit(averages(change(vectors)))  # (N, A, D)
            means = _unit(averages(change(self.learned.means)))  # (S, A, D)
            for column, name in enumerate(average_names(vectors.shape[1])):
                cosines = self.cosines(queries[:, column], means[:, column])
                for prior in PRIORS:
                    scores = self.score(self.nearest(cosines + prior * self.log_counts))
                    tried[name].append((scores.get(DEV, 0.0), form, prior, scores))
                if form == "plain":
                    found[name] = {"plain": self._plain(cosines)}
        for name in found:
            if DEV in self.names:
                _, form, prior, scores = max(tried[name], key=lambda one: one[0])  # the first, simplest, of equals
                found[name]["tuned"] = {**scores, "form": form, "prior": prior}
        return found

    def combined(self, vectors: np.ndarray) -> dict[str, Any]:
        """Scores of all layers together, plain: side by side, and the weighted sum that does best on the dev set."""
        if vectors.shape[1] < 2:
            return {}
        products = PairProducts(vectors, self.learned.means, self.of_target, self.of_sense)
        tried = []
        for weights in weightings(vectors.shape[1]) if DEV in self.names else ():
            tried.append((self.score(self.nearest(products.mixed(weights))), weights))
        found = {}
        if tried:
            _, weights = max(tried, key=lambda one: one[0][DEV])  # the first, most even, of equals
            found["mix"] = self._plain(products.mixed(weights)) | {"layer_weights": weights.tolist()}
        found["concat"] = self._plain(products.side_by_side())
        return {name: {"plain": scores} for name, scores in found.items()}

    def _plain(self, cosines: np.ndarray) -> dict[str, Any]:
        alone = self.score(self.nearest(cosines, back_off=False))["ALL"]
        return {**self.score(self.nearest(cosines)), "no_back_off": alone}

    def cosines(self, queries: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Of every target with each of its candidates, (P,)."""
        found = np.zeros(len(self.of_sense), dtype=np.float32)
        for start in range(0, len(found), 8192):
            part = slice(start, start + 8192)
            found[part] = np.einsum("pd,pd->p", queries[self.of_target[part]], means[self.of_sense[part]])
        return found

    def nearest(self, scores: np.ndarray, *, back_off: bool = True) -> list[str | None]:
        """The best candidate of each target; of equals the one SemCor has most often."""
        answers: list[str | None] = []
        for number, target in enumerate(self.targets):
            begin, end = self.ends[number], self.ends[number + 1]
            if begin < end:
                answers.append(self.learned.senses[self.of_sense[begin + int(np.argmax(scores[begin:end]))]])
            else:
                answers.append(self.wordnet.first(target.lemma) if back_off else None)
        return answers

    def usual(self) -> list[str | None]:
        """SemCor's most frequent sense of each target's lemma, WordNet's first where it has none."""
        return [
            self.learned.senses[rows[0]] if rows is not None else self.wordnet.first(target.lemma)
            for rows, target in zip(self.candidates, self.targets, strict=True)
        ]

    def score(self, answers: Sequence[str | None]) -> dict[str, Any]:
        """Percent right: ALL, each set, each part of speech; no answer counts as wrong."""
        right = np.array([a in target.senses for a, target in zip(answers, self.targets, strict=True)])
        kinds = np.array([target.lemma[1] for target in self.targets])
        return {
            "ALL": 100.0 * float(right.mean()),
            **({"ALL_but_dev": 100.0 * float(right[other].mean())} if (other := self.names != DEV).any() else {}),
            **{str(name): 100.0 * float(right[self.names == name].mean()) for name in dict.fromkeys(self.names)},
            **{
                title: 100.0 * float(right[kinds == kind].mean())
                for kind, title in POS_NAMES.items()
                if (kinds == kind).any()
            },
        }


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)
