"""Word sense disambiguation probe by the nearest sense average, as in the paper's Table 5 (section 5.3).

A word gets the sense whose average vector has the largest cosine with the vector of the word, among the senses that
SemCor has for its lemma and part of speech. A lemma that is not in SemCor gets WordNet's first sense (back-off). The
scores are on each of the five evaluation sets of Raganato et al. (2017) and on all of them together.

`plain` is this method. `tuned` also centres or whitens the vectors and adds prior * log(count of the sense) to the
cosine; form and prior are selected on SemEval 2007, the development set of the framework, so that the score on this set
is not a test score. The weights of the `mix` of layers are selected on it too. `concat` is the concatenation of all
layers, each scaled to length 1; it has no parameter to select.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import ConfigError, DataError
from elmo.probes.layer_averages import layer_average_names, layer_averages, unit_vectors
from elmo.probes.record import probe_record
from elmo.probes.sense_averages import FORMS, SenseAverages, average_senses, target_vectors, transform
from elmo.probes.sense_mix import PairProducts, layer_weight_grid
from elmo.probes.senses import Target, WordNet, read_raganato, read_semcor, read_wordnet
from elmo.probes.vector_source import VectorSource

DEV = "semeval2007"
PRIORS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08)  # factors of log(count), which is added to a cosine
BLOCK = 8192  # pairs of a target and a candidate sense per step
POS_NAMES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}


def probe_wsd(
    source: VectorSource, folder: str | Path, *, limit: int | None = None, show: bool | None = None
) -> dict[str, Any]:
    """Returns a record with the F1 of each view by set and part of speech.

    Every word gets an answer, so F1 equals accuracy.
    """
    files = find_files(Path(folder))
    wordnet = read_wordnet(files["wordnet"])
    sets = {name: path for name, path in files.items() if name not in ("semcor", "wordnet")}
    set_names: list[str] = []  # the evaluation set of each target
    targets: list[Target] = []
    vectors: list[np.ndarray] = []
    for name, path in sets.items():
        texts = list(islice(read_raganato(path), limit))
        num_words = sum(len(text.tokens) for text in texts)
        for target, vector in target_vectors(source, texts, num_words, f"embedding {name}", show):
            set_names.append(name)
            targets.append(target)
            vectors.append(vector)
    if not targets:
        raise DataError(
            f"{folder}: the evaluation sets {', '.join(sets)} have no target in the sentences that were read.",
            "Expected <instance> elements in SET.data.xml; a larger --limit reads more sentences.",
        )
    averages = average_senses(
        source,
        lambda: read_semcor(files["semcor"], limit=limit),
        {target.lemma for target in targets},
        wordnet,
        show=show,
    )
    evaluation = _Evaluation(averages, wordnet, targets, np.array(set_names))
    return probe_record(
        kind="wsd",
        source=source,
        files=files,
        settings={"limit": limit, "development_set": DEV, "priors": PRIORS, "forms": FORMS},
        counts={
            "targets": len(targets),
            "senses": len(averages.senses),
            **{name: set_names.count(name) for name in sets},
            "lemma_in_semcor": sum(target.lemma in averages.rows_by_lemma for target in targets),
        },
        scores={
            "metric": "F1",
            "views": {**evaluation.views(stacked := np.stack(vectors)), **evaluation.combined_views(stacked)},
            "wordnet_first_sense": evaluation.score([wordnet.first_sense(target.lemma) for target in targets]),
            "semcor_most_frequent": evaluation.score(evaluation.most_frequent_senses()),
        },
    )


def find_files(folder: Path) -> dict[str, Path]:
    """Finds SemCor, index.sense and the evaluation sets in a folder; skips ALL, the union of the other sets."""
    corpora = {
        "semcor": next(iter(sorted([*folder.rglob("semcor*.jsonl*"), *folder.rglob("semcor*.data.xml")])), None),
        "wordnet": next(iter(sorted(folder.rglob("index.sense*"))), None),
    }
    for name, path in corpora.items():
        if path is None:
            raise ConfigError(
                f"{folder}: no {name} was found.",
                "Expected semcor*.jsonl or semcor.data.xml, WordNet's index.sense, and SET/SET.data.xml.",
            )
    sets = {path.name.removesuffix(".data.xml"): path for path in sorted(folder.rglob("*.data.xml"))}
    sets = {name: path for name, path in sets.items() if name != "ALL" and not name.startswith("semcor")}
    if not sets:
        raise ConfigError(
            f"{folder}: no evaluation sets were found.", "Expected SET/SET.data.xml and SET.gold.key.txt."
        )
    return {name: path for name, path in corpora.items() if path is not None} | sets


class _Evaluation:
    """All targets with their candidate senses as P (target, sense) pairs, and the scoring of answers."""

    def __init__(
        self, averages: SenseAverages, wordnet: WordNet, targets: Sequence[Target], set_names: np.ndarray
    ) -> None:
        self.averages, self.wordnet, self.targets, self.set_names = averages, wordnet, targets, set_names
        self.candidates = [averages.rows_by_lemma.get(target.lemma) for target in targets]
        sizes = [len(rows) if rows is not None else 0 for rows in self.candidates]
        self.ends = np.cumsum([0, *sizes])
        self.of_target = np.repeat(np.arange(len(targets)), sizes)  # (P,)
        self.of_sense = np.array([row for rows in self.candidates if rows is not None for row in rows], dtype=np.int64)
        self.log_counts = np.log(averages.counts[self.of_sense])  # (P,)

    def views(self, vectors: np.ndarray) -> dict[str, Any]:
        """Plain and tuned scores for each layer and each mean of layers; vectors (N, L, D)."""
        views: dict[str, Any] = {}
        trials: dict[str, list[tuple[float, str, float, dict[str, Any]]]] = defaultdict(list)
        for form in FORMS:
            transformed = transform(self.averages, form)
            queries = unit_vectors(layer_averages(transformed(vectors)))  # (N, A, D)
            means = unit_vectors(layer_averages(transformed(self.averages.means)))  # (S, A, D)
            for column, name in enumerate(layer_average_names(vectors.shape[1])):
                cosines = self.cosines(queries[:, column], means[:, column])
                for prior in PRIORS:
                    scores = self.score(self.nearest(cosines + prior * self.log_counts))
                    trials[name].append((scores.get(DEV, 0.0), form, prior, scores))
                if form == "plain":
                    views[name] = {"plain": self._plain_scores(cosines)}
        for name in views:
            if DEV in self.set_names:
                _, form, prior, scores = max(trials[name], key=lambda trial: trial[0])  # of equals the first, simplest
                views[name]["tuned"] = {**scores, "form": form, "prior": prior}
        return views

    def combined_views(self, vectors: np.ndarray) -> dict[str, Any]:
        """Plain scores of all layers together: the weighted sum that is best on the dev set, and the concatenation."""
        if vectors.shape[1] < 2:
            return {}
        products = PairProducts(vectors, self.averages.means, self.of_target, self.of_sense)
        trials = []
        for weights in layer_weight_grid(vectors.shape[1]) if DEV in self.set_names else ():
            trials.append((self.score(self.nearest(products.mixed(weights))), weights))
        views = {}
        if trials:
            _, weights = max(trials, key=lambda trial: trial[0][DEV])  # of equals the first, most uniform
            views["mix"] = self._plain_scores(products.mixed(weights)) | {"layer_weights": weights.tolist()}
        views["concat"] = self._plain_scores(products.concatenated())
        return {name: {"plain": scores} for name, scores in views.items()}

    def _plain_scores(self, cosines: np.ndarray) -> dict[str, Any]:
        no_back_off = self.score(self.nearest(cosines, back_off=False))["ALL"]
        return {**self.score(self.nearest(cosines)), "no_back_off": no_back_off}

    def cosines(self, queries: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Cosines of every target with each of its candidates, (P,); both arguments hold unit vectors."""
        cosines = np.zeros(len(self.of_sense), dtype=np.float32)
        for start in range(0, len(cosines), BLOCK):
            block = slice(start, start + BLOCK)
            cosines[block] = np.einsum("pd,pd->p", queries[self.of_target[block]], means[self.of_sense[block]])
        return cosines

    def nearest(self, scores: np.ndarray, *, back_off: bool = True) -> list[str | None]:
        """The candidate of each target with the highest score; of equals the most frequent in SemCor."""
        answers: list[str | None] = []
        for number, target in enumerate(self.targets):
            begin, end = self.ends[number], self.ends[number + 1]
            if begin < end:
                answers.append(self.averages.senses[self.of_sense[begin + int(np.argmax(scores[begin:end]))]])
            else:
                answers.append(self.wordnet.first_sense(target.lemma) if back_off else None)
        return answers

    def most_frequent_senses(self) -> list[str | None]:
        """The most frequent sense in SemCor of each target's lemma; WordNet's first sense if SemCor has none."""
        return [
            self.averages.senses[rows[0]] if rows is not None else self.wordnet.first_sense(target.lemma)
            for rows, target in zip(self.candidates, self.targets, strict=True)
        ]

    def score(self, answers: Sequence[str | None]) -> dict[str, Any]:
        """Percentage of correct answers: ALL, each set, each part of speech; a missing answer is wrong."""
        is_correct = np.array([a in target.senses for a, target in zip(answers, self.targets, strict=True)])
        pos = np.array([target.lemma[1] for target in self.targets])
        not_dev = self.set_names != DEV

        def percent(selected: np.ndarray) -> float:
            return 100.0 * float(is_correct[selected].mean())

        return {
            "ALL": 100.0 * float(is_correct.mean()),
            **({"ALL_but_dev": percent(not_dev)} if not_dev.any() else {}),
            **{str(name): percent(self.set_names == name) for name in dict.fromkeys(self.set_names)},
            **{title: percent(pos == letter) for letter, title in POS_NAMES.items() if (pos == letter).any()},
        }
