"""ELMo sentence vectors in a scikit-learn pipeline, with the layers chosen by a grid search.

python examples/scikit_learn_pipeline.py
"""

from __future__ import annotations

from classify_sentences import TRAIN  # four sentences of each of three topics
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from elmo.integrations.sklearn import ElmoVectorizer

NEW = ["The judge dismissed the claim .", "The cells were infected with the virus .", "He put on his hat and sighed ."]


def main() -> None:
    texts = [text for topic in TRAIN for text in TRAIN[topic]]
    topics = [topic for topic in TRAIN for _ in TRAIN[topic]]
    steps = [("elmo", ElmoVectorizer("english")), ("scale", StandardScaler()), ("classify", LogisticRegression(C=0.1))]
    grid = {"elmo__layers": ["average", "top", "concat"], "elmo__pooling": ["mean", "max"]}
    search = GridSearchCV(Pipeline(steps), grid, cv=4).fit(texts, topics)
    print("best of the grid:", search.best_params_)
    for topic, text in zip(search.predict(NEW), NEW, strict=True):
        print(f"{topic:8} {text}")


if __name__ == "__main__":
    main()
