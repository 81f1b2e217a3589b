"""The scikit-learn transformers in scikit-learn itself: pipelines, grid search, pandas output, pickles, its checks."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.validation import validate_data

import elmo
from elmo.errors import ConfigError, WeightsError
from elmo.integrations.sklearn import ElmoTokenVectorizer, ElmoVectorizer, token_samples
from elmo.weights.lookup import tiny_random
from elmo.weights.store import save_store

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["The river was deep .", "A stream of water .", "They sat by the lake .", "The bank lends money .",
         "She paid the loan .", "Interest rates rose ."]  # fmt: skip
LABELS = [0, 0, 0, 1, 1, 1]


@pytest.fixture(scope="module")
def embedder() -> elmo.Embedder:
    return elmo.load("tiny-random", device="cpu")


def vectorizer(**options: Any) -> ElmoVectorizer:
    return ElmoVectorizer("tiny-random", device="cpu", **options)


@pytest.mark.parametrize("layers", ["average", "top", "concat", 1, [0.2, 0.5, 0.3], elmo.ScalarMix(3)])
def test_vectors_are_those_of_the_embedder(embedder: elmo.Embedder, layers: Any) -> None:
    result = vectorizer(layers=layers, pooling="max", normalize=True).fit_transform(TEXTS)
    expected = embedder.encode(TEXTS, layers=layers, pooling="max", normalize_embeddings=True)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "X", [np.array(TEXTS), np.array(TEXTS, dtype=object)[:, None], pd.Series(TEXTS), pd.DataFrame({"text": TEXTS})]
)
def test_arrays_series_and_tables_of_one_column_are_texts(embedder: elmo.Embedder, X: Any) -> None:
    np.testing.assert_array_equal(vectorizer().transform(X), embedder.encode(TEXTS))


def test_a_pipeline_is_fitted_cloned_pickled_and_searched(tmp_path: Path) -> None:
    pipeline = make_pipeline(vectorizer(), StandardScaler(), LogisticRegression())
    predicted = pipeline.fit(TEXTS, LABELS).predict_proba(TEXTS)
    assert (predicted.argmax(axis=1) == LABELS).all()
    joblib.dump(pipeline, tmp_path / "pipeline.joblib")
    assert (tmp_path / "pipeline.joblib").stat().st_size < 100_000, "the model itself is not stored"
    for copy in (pickle.loads(pickle.dumps(pipeline)), joblib.load(tmp_path / "pipeline.joblib")):
        np.testing.assert_array_equal(copy.predict_proba(TEXTS), predicted)
    assert clone(pipeline)[0].get_params() == pipeline[0].get_params()
    grid = {"elmovectorizer__layers": ["top", "concat", 0], "elmovectorizer__pooling": ["mean", "max"],
            "elmovectorizer__dtype": ["float32", "float64"], "elmovectorizer__batch_size": [1, 256]}  # fmt: skip
    search = GridSearchCV(clone(pipeline), grid, cv=3).fit(TEXTS, LABELS)
    assert len(search.cv_results_["params"]) == 24
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_[0].get_params()["pooling"] in ("mean", "max")


def test_cross_validation_in_processes_gives_the_same_scores() -> None:
    pipeline = make_pipeline(vectorizer(), LogisticRegression())
    alone = cross_val_score(pipeline, TEXTS, LABELS, cv=3)
    np.testing.assert_array_equal(cross_val_score(pipeline, TEXTS, LABELS, cv=3, n_jobs=2), alone)


def test_pandas_output_has_names_and_the_index(embedder: elmo.Embedder) -> None:
    series = pd.Series(TEXTS, index=list("abcdef"))
    transformer = vectorizer(layers="concat").set_output(transform="pandas")
    table = transformer.fit_transform(series)
    assert list(table.index) == list("abcdef")
    assert list(table.columns) == [f"elmovectorizer{i}" for i in range(3 * embedder.dim)]
    assert list(table.columns) == list(transformer.get_feature_names_out())
    columns = ColumnTransformer([("text", vectorizer(), "text")], remainder="passthrough")
    columns.set_output(transform="pandas")
    table = columns.fit_transform(pd.DataFrame({"text": TEXTS, "stars": LABELS}))
    assert table.shape == (6, embedder.dim + 1)
    assert table.columns[0] == "text__elmovectorizer0"


def test_missing_texts_are_an_error_or_empty() -> None:
    X = pd.Series(["One .", None, float("nan")])
    with pytest.raises(TypeError, match="2 of 3 items"):
        vectorizer().transform(X)
    assert not vectorizer(missing="empty").transform(X)[1:].any()


@pytest.mark.parametrize(
    ("options", "error", "X"),
    [
        ({"layers": "all"}, ConfigError, TEXTS),
        ({"layers": "uppermost"}, ConfigError, TEXTS),
        ({"pooling": "median"}, ConfigError, TEXTS),
        ({"state": "carry"}, ConfigError, TEXTS),
        ({}, ValueError, "one text"),
        ({}, ValueError, pd.DataFrame({"a": TEXTS, "b": TEXTS})),
        ({}, TypeError, [1, 2]),
    ],
)
def test_what_cannot_be_right_is_refused(options: dict[str, Any], error: type, X: Any) -> None:
    with pytest.raises(error):
        vectorizer(**options).transform(X)


def test_a_model_that_has_changed_since_the_fit_is_refused(tmp_path: Path) -> None:
    save_store(tmp_path / "model", tiny_random(1))
    transformer = ElmoVectorizer(tmp_path / "model", device="cpu").fit(TEXTS)
    before = transformer.transform(TEXTS)
    stored = pickle.dumps(transformer)
    save_store(tmp_path / "model", tiny_random(2), overwrite=True)
    with pytest.raises(WeightsError, match="is not the one that this ElmoVectorizer was fitted with"):
        pickle.loads(stored).transform(TEXTS)
    assert not np.allclose(transformer.fit(TEXTS).transform(TEXTS), before), "the new model is loaded"


def test_tokens_in_their_sentences_have_the_vectors_of_the_embedder(embedder: elmo.Embedder) -> None:
    sentences = [["The", "bank", "lends"], ["By", "the", "bank"], ["The", "bank", "lends"]]
    samples = token_samples(sentences)
    assert len(samples) == 9
    assert samples[4] == (("By", "the", "bank"), 1)
    transformer = ElmoTokenVectorizer("tiny-random", layers="top", device="cpu")
    expected = np.concatenate(embedder.embed(sentences, layers="top"))
    np.testing.assert_array_equal(transformer.fit_transform(samples), expected)
    table = pd.DataFrame({"sentence": ["The bank lends", "By the bank"], "position": [1, 2]})
    np.testing.assert_array_equal(transformer.transform(table), expected[[1, 5]])
    assert transformer.transform([]).shape == (0, embedder.dim)
    named = clone(transformer).set_output(transform="pandas").fit_transform(samples)
    assert named.columns[0] == "elmotokenvectorizer0"
    tags = [index % 3 for index in range(9)]
    assert make_pipeline(transformer, LogisticRegression()).fit(samples, tags).score(samples, tags) > 0.9


@pytest.mark.parametrize("sample", [("The bank", 2), ("The bank", -1), ("The bank", "bank"), "The bank", ("The bank",)])
def test_samples_that_name_no_token_are_refused(sample: Any) -> None:
    with pytest.raises(ValueError, match=r"X\[1\]"):
        ElmoTokenVectorizer("tiny-random", device="cpu").transform([("The bank", 1), sample])


class FromNumbers(ElmoVectorizer):
    """For scikit-learn's checks, which pass matrices of numbers: each row is written as a text."""

    def __init__(self, model: str = "tiny-random", device: str = "cpu") -> None:
        super().__init__(model, device=device)

    def fit(self, X: Any, y: Any = None) -> Any:
        return super().fit(as_texts(validate_data(self, X)), y)

    def transform(self, X: Any) -> np.ndarray:
        return super().transform(as_texts(validate_data(self, X, reset=False)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.one_d_array = False
        return tags


def as_texts(X: np.ndarray) -> list[str]:
    return [" ".join(f"{value:.3g}" for value in row[:5]) for row in X]


@estimator_checks.parametrize_with_checks([FromNumbers()])
def test_the_checks_of_scikit_learn_pass_on_numbers_written_as_text(estimator: Any, check: Any) -> None:
    check(estimator)


API_CHECKS = [
    "check_do_not_raise_errors_in_init_or_set_params", "check_estimator_cloneable", "check_estimator_repr",
    "check_get_params_invariance", "check_mixin_order", "check_no_attributes_set_in_init",
    "check_parameters_default_constructible", "check_set_params", "check_valid_tag_types",
]  # fmt: skip


@pytest.mark.parametrize("estimator", [vectorizer(), ElmoTokenVectorizer("tiny-random", device="cpu")])
@pytest.mark.parametrize("name", API_CHECKS)
def test_the_checks_of_scikit_learn_that_need_no_numbers_pass(estimator: Any, name: str) -> None:
    getattr(estimator_checks, name)(type(estimator).__name__, clone(estimator))


def test_check_estimator_sees_text_input_and_skips_its_numbers() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator_checks.check_estimator(vectorizer())
    assert any("string=True" in str(one.message) and one.category is SkipTestWarning for one in caught)


def test_the_example_prints_a_search_and_its_predictions() -> None:
    command = [sys.executable, ROOT / "examples" / "scikit_learn_pipeline.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("best of the grid: {'elmo__layers'")
    assert [line.split()[0] for line in lines[1:]] == ["law", "biology", "fiction"], done.stdout
