"""SST with scikit-learn: logistic regression over ELMo sentence vectors, beside TF-IDF.

    python runs/sklearn_sst/compare.py SST_FOLDER [--model english] [--out runs/sklearn_sst/results.json]

SST_FOLDER has train.txt, dev.txt and test.txt of the Stanford Sentiment Treebank. Training uses whole sentences only.
The regularisation C is the one with the best accuracy on the dev file; the scores are
scikit-learn's accuracy and macro F1 on the test file.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from elmo.files import atomic_file
from elmo.integrations.sklearn import ElmoVectorizer
from elmo.tasks.sst.data import read_examples

STRENGTHS = [0.0003, 0.003, 0.03, 1.0, 10.0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="Folder of train.txt, dev.txt and test.txt.")
    parser.add_argument("--model", default="english", help="Name or path of the biLM.")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).with_name("results.json"), help="File of the results."
    )
    options = parser.parse_args()
    splits = {name: read_split(options.folder / f"{name}.txt") for name in ("train", "dev", "test")}
    results = []
    for features, vectorizer, classifier in feature_sets(options.model):
        start = time.process_time()
        vectors = {"train": vectorizer.fit_transform(splits["train"][0])}
        vectors |= {name: vectorizer.transform(splits[name][0]) for name in ("dev", "test")}
        seconds = round(time.process_time() - start, 1)
        for setting in ("binary", "five classes"):
            scores = evaluate(classifier, vectors, {name: labels for name, (_, labels) in splits.items()}, setting)
            results.append({"setting": setting, "features": features, **scores, "vector_cpu_seconds": seconds})
            print(json.dumps(results[-1]), flush=True)
    versions = {"scikit-learn": sklearn.__version__, "python": platform.python_version()}
    with atomic_file(options.out) as temporary:
        temporary.write_text(json.dumps({"versions": versions, "results": results}, indent=1) + "\n", encoding="utf-8")


def feature_sets(model: str) -> list[tuple[str, Any, Any]]:
    """Name, vectorizer and classifier; the numbers of dense vectors are scaled to the same variance."""
    tfidf = TfidfVectorizer(analyzer=words_and_pairs, sublinear_tf=True, min_df=2)  # tokens are those of the treebank
    scaled = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return [
        ("TF-IDF, words and pairs of words", tfidf, make_pipeline(LogisticRegression(max_iter=1000))),
        ("ELMo, mean of the layers", ElmoVectorizer(model), scaled),
        ("ELMo, layers side by side", ElmoVectorizer(model, layers="concat"), scaled),
    ]


def words_and_pairs(tokens: tuple[str, ...]) -> list[str]:
    """The lower-cased tokens, and each token with its successor."""
    lower = [token.lower() for token in tokens]
    return lower + [f"{a} {b}" for a, b in itertools.pairwise(lower)]


def read_split(path: Path) -> tuple[list[tuple[str, ...]], np.ndarray]:
    """Tokenised sentences and their labels, 0 to 4."""
    examples = read_examples(path)
    return [example.tokens for example in examples], np.array([example.label for example in examples])


def evaluate(classifier: Any, vectors: dict[str, Any], labels: dict[str, np.ndarray], setting: str) -> dict[str, Any]:
    """Scores on the test file of the C that is best on the dev file; the model is trained on the training file.

    "binary" leaves out neutral sentences, as published results do.
    """
    used = {name: gold != 2 if setting == "binary" else gold >= 0 for name, gold in labels.items()}
    X = {name: vectors[name][used[name]] for name in vectors}
    y = {name: gold[used[name]] > 2 if setting == "binary" else gold for name, gold in labels.items()}
    dev_accuracy, test_predictions = {}, {}
    for strength in STRENGTHS:
        classifier.set_params(logisticregression__C=strength).fit(X["train"], y["train"])
        dev_accuracy[strength] = accuracy_score(y["dev"], classifier.predict(X["dev"]))
        test_predictions[strength] = classifier.predict(X["test"])
    best = max(dev_accuracy, key=lambda strength: dev_accuracy[strength])
    predicted = test_predictions[best]
    return {
        "num_features": int(X["test"].shape[1]),
        "C": best,
        "dev_accuracy": round(100 * dev_accuracy[best], 2),
        "test_accuracy": round(100 * accuracy_score(y["test"], predicted), 2),
        "test_macro_f1": round(100 * f1_score(y["test"], predicted, average="macro"), 2),
        "num_train": len(y["train"]),
        "num_test": len(predicted),
    }


if __name__ == "__main__":
    main()
