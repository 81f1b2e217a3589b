"""SST with scikit-learn: logistic regression over ELMo sentence vectors, beside TF-IDF, and both side by side.

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

import sklearn
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler

from elmo.files import atomic_file
from elmo.integrations.sklearn import ElmoVectorizer
from elmo.tasks.sst.data import read_examples

STRENGTHS = [0.0001, 0.001, 0.01, 0.1, 1.0, 10.0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="Folder of train.txt, dev.txt and test.txt.")
    parser.add_argument("--model", default="english", help="Name or path of the biLM.")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).with_name("results.json"), help="File of the results."
    )
    options = parser.parse_args()
    results = []
    for setting in ("binary", "five classes"):
        splits = {name: read_split(options.folder / f"{name}.txt", setting) for name in ("train", "dev", "test")}
        for features, vectorizer, is_dense in feature_sets(options.model):
            results.append({"setting": setting, "features": features} | evaluate(vectorizer, splits, is_dense))
            print(json.dumps(results[-1]), flush=True)
    record = {
        "versions": {"scikit-learn": sklearn.__version__, "python": platform.python_version()},
        "results": results,
    }
    with atomic_file(options.out) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def feature_sets(model: str) -> list[tuple[str, Any, bool]]:
    """Name, vectorizer, and whether the features are dense and are scaled."""
    tfidf = make_tfidf()
    return [
        ("TF-IDF, words and pairs of words", tfidf, False),
        ("ELMo, mean of the layers", ElmoVectorizer(model), True),
        ("ELMo, layers side by side", ElmoVectorizer(model, layers="concat"), True),
        ("ELMo, layers side by side, mean and maximum", make_union(
            ElmoVectorizer(model, layers="concat"), ElmoVectorizer(model, layers="concat", pooling="max")), True),
    ]  # fmt: skip


def make_tfidf() -> TfidfVectorizer:
    """Tokens are those of the treebank."""
    return TfidfVectorizer(analyzer=words_and_pairs, sublinear_tf=True, min_df=2)


def words_and_pairs(tokens: tuple[str, ...]) -> list[str]:
    """The lower-cased tokens, and each token with its successor."""
    lower = [token.lower() for token in tokens]
    return lower + [f"{a} {b}" for a, b in itertools.pairwise(lower)]


def read_split(path: Path, setting: str) -> tuple[list[tuple[str, ...]], list[int]]:
    """Tokenised sentences and labels; binary leaves out neutral sentences, as published results do."""
    examples = [example for example in read_examples(path) if setting != "binary" or example.label != 2]
    labels = [int(example.label or 0) for example in examples]
    return [example.tokens for example in examples], [
        int(label > 2) for label in labels
    ] if setting == "binary" else labels


def evaluate(
    vectorizer: Any, splits: dict[str, tuple[list[tuple[str, ...]], list[int]]], is_dense: bool
) -> dict[str, Any]:
    """Scores on the test file of the C that is best on the dev file; the model is trained on the training file."""
    start = time.process_time()
    vectors = {"train": vectorizer.fit_transform(splits["train"][0])}
    vectors |= {name: vectorizer.transform(splits[name][0]) for name in ("dev", "test")}
    vector_seconds = time.process_time() - start
    regression = LogisticRegression(max_iter=2000)
    classifier = make_pipeline(StandardScaler(), regression) if is_dense else make_pipeline(regression)
    scores = {}
    for strength in STRENGTHS:
        classifier.set_params(logisticregression__C=strength).fit(vectors["train"], splits["train"][1])
        scores[strength] = accuracy_score(splits["dev"][1], classifier.predict(vectors["dev"]))
    best = max(scores, key=lambda strength: scores[strength])
    classifier.set_params(logisticregression__C=best).fit(vectors["train"], splits["train"][1])
    predicted = classifier.predict(vectors["test"])
    gold = splits["test"][1]
    return {
        "num_features": int(vectors["test"].shape[1]),
        "C": best,
        "dev_accuracy": round(100 * scores[best], 2),
        "test_accuracy": round(100 * accuracy_score(gold, predicted), 2),
        "test_macro_f1": round(100 * f1_score(gold, predicted, average="macro"), 2),
        "num_train": len(splits["train"][1]),
        "num_test": len(gold),
        "vector_cpu_seconds": round(vector_seconds, 1),
    }


if __name__ == "__main__":
    main()
