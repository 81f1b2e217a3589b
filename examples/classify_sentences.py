"""A classifier on sentence vectors: logistic regression by scikit-learn, or the nearest class mean without it.

python examples/classify_sentences.py
"""

from __future__ import annotations

import importlib.util

import numpy as np

import elmo

TRAIN = {
    "law": [
        "The court denied the motion of the defendant .",
        "The statute does not apply to this contract .",
        "The plaintiff filed an appeal against the judgment .",
        "The jury found him guilty of fraud .",
    ],
    "biology": [
        "The protein binds to the membrane of the cell .",
        "Mutations in this gene change the growth of neurons .",
        "The enzyme was expressed in bacteria and purified .",
        "Mice without the receptor had smaller brains .",
    ],
    "fiction": [
        "She smiled at him and closed the door softly .",
        "The old man sat by the fire and said nothing .",
        "He took her hand , and they walked down the lane .",
        "Her eyes filled with tears as she read the letter .",
    ],
}
TEST = [
    ("law", "The judge dismissed the claim against the state ."),
    ("law", "Congress did not intend the act to cover such cases ."),
    ("biology", "The cells were infected with the virus for two days ."),
    ("biology", "The structure of the protein was determined by microscopy ."),
    ("fiction", "My aunt looked out of the window and sighed ."),
    ("fiction", "He laughed , put on his hat and left the room ."),
]


def main() -> None:
    embedder = elmo.load("english")
    names = list(TRAIN)
    labels = np.repeat(np.arange(len(names)), [len(texts) for texts in TRAIN.values()])  # (N,)
    vectors = embedder.encode([text for texts in TRAIN.values() for text in texts])  # (N, width)
    predicted = classify(vectors, labels, embedder.encode([text for _, text in TEST]))
    for label, (name, text) in zip(predicted, TEST, strict=True):
        print(f"{'right' if names[label] == name else 'WRONG'}  {names[label]:8} {text}")


def classify(vectors: np.ndarray, labels: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The labels (M,) of the queries (M, D), learned from vectors (N, D) with labels (N,)."""
    if importlib.util.find_spec("sklearn") is not None:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
        return np.asarray(classifier.fit(vectors, labels).predict(queries))
    means = np.stack([vectors[labels == label].mean(axis=0) for label in np.unique(labels)])  # (K, D)
    return np.linalg.norm(queries[:, None] - means, axis=-1).argmin(axis=1)


if __name__ == "__main__":
    main()
