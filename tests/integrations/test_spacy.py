"""The component `elmo` in real spaCy pipelines: vectors, sentences, whitespace, batches, processes, serialisation."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from spacy_entry_points import ROOT, run_installed

import elmo
from elmo.errors import ConfigError, DataError, WeightsError
from elmo.integrations.spacy import set_hooks
from elmo.weights.lookup import tiny_random
from elmo.weights.store import save_store

TEXTS = [
    "They sat on the bank.",
    "",
    "Don't  go.\n\nIt rained.",
    "🙂 Ünïcödé 漢字",
    "One",
    "The bank raised its rates.",
]


def pipeline(*, sentences: bool = False, **config: Any) -> spacy.Language:
    nlp = spacy.blank("en")
    if sentences:
        nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo", config={"model": "tiny-random", "device": "cpu", **config})
    return nlp


@pytest.fixture(scope="module")
def embedder() -> elmo.Embedder:
    return elmo.load("tiny-random", device="cpu")


@pytest.fixture(scope="module")
def nlp() -> spacy.Language:
    return pipeline()


def words(tokens: Any) -> list[str]:
    return [token.text for token in tokens if not token.is_space]


def test_a_document_has_the_vectors_and_layers_of_its_tokens(nlp, embedder):
    doc = nlp("They don't sit on the bank.")
    assert words(doc)[1:3] == ["do", "n't"]
    np.testing.assert_array_equal(doc._.elmo, embedder.layers([words(doc)])[0])
    np.testing.assert_allclose(doc.tensor, embedder.embed([words(doc)])[0], atol=1e-6)  # the mean in another order
    assert doc.tensor.dtype == doc._.elmo.dtype == np.float32
    np.testing.assert_array_equal(doc[5]._.elmo, doc._.elmo[:, 5])
    np.testing.assert_array_equal(doc[2:4]._.elmo, doc._.elmo[:, 2:4])


@pytest.mark.parametrize("layers", ["top", "concat", 0, [0.2, 0.5, 0.3], "0.2,0.5,0.3"])
def test_the_layers_of_the_tensor_are_chosen_as_in_embed(layers, embedder):
    doc = pipeline(layers=layers)("They sat on the bank.")
    np.testing.assert_allclose(doc.tensor, embedder.embed([words(doc)], layers=layers)[0], atol=1e-6)
    assert doc._.elmo.shape == (embedder.num_layers, len(doc), embedder.dim)


def test_vectors_of_tokens_spans_and_documents_come_from_the_tensor(nlp, embedder):
    doc = nlp("They sat on the bank.")
    np.testing.assert_array_equal(doc[4].vector, doc.tensor[4])
    np.testing.assert_allclose(doc[3:5].vector, doc.tensor[3:5].mean(axis=0), atol=1e-7)
    np.testing.assert_allclose(doc.vector, embedder.encode([words(doc)])[0], atol=1e-6)
    assert doc.has_vector
    assert doc[4].has_vector
    assert doc[3:5].has_vector
    assert doc[4].vector_norm == pytest.approx(np.linalg.norm(doc.tensor[4]))


def test_static_vectors_of_the_vocabulary_do_not_replace_those_of_elmo():
    nlp = pipeline()
    nlp.vocab.set_vector("bank", np.ones(7, dtype=np.float32))
    doc = nlp("the bank")
    for item in (doc, doc[1], doc[0:2]):
        assert item.vector.shape == doc.tensor.shape[1:]


def test_the_same_word_in_two_contexts_is_similar_and_not_equal(nlp):
    doc, other = nlp("bank"), nlp("They sat on the bank of the river.")
    cosine = doc.vector @ other[4].vector / np.linalg.norm(doc.vector) / np.linalg.norm(other[4].vector)
    assert cosine < 0.9999  # without the hook, spaCy says 1.0 because the words are equal
    for a, b in ((doc, other[4]), (doc[0], other[4]), (doc[0:1], other[4:5]), (other[4], doc)):
        assert a.similarity(b) == pytest.approx(cosine, abs=1e-6)
    assert doc.similarity(doc) == pytest.approx(1)


def test_vectors_of_another_width_are_not_compared(nlp):
    with pytest.raises(ConfigError, match="widths"):
        nlp("bank").similarity(pipeline(layers="concat")("bank"))


def test_whitespace_tokens_have_zero_vectors_and_change_no_other_vector(nlp):
    spaced, plain = nlp("Don't  go .\n"), nlp("Don't go .")
    spaces = [token.i for token in spaced if token.is_space]
    assert len(spaces) == 2
    np.testing.assert_array_equal(np.delete(spaced.tensor, spaces, axis=0), plain.tensor)
    np.testing.assert_array_equal(np.delete(spaced._.elmo, spaces, axis=1), plain._.elmo)
    assert not spaced.tensor[spaces].any()
    assert not spaced._.elmo[:, spaces].any()
    assert not spaced[spaces[0]].has_vector
    np.testing.assert_allclose(spaced.vector, plain.vector, atol=1e-7)  # the mean is over the words
    assert spaced[spaces[0]].similarity(plain) == 0.0


@pytest.mark.parametrize("text", ["", " ", "\n \n"])
def test_a_document_without_words_has_the_zero_vector(nlp, embedder, text):
    doc = nlp(text)
    assert doc.tensor.shape == (len(doc), embedder.dim)
    assert doc._.elmo.shape == (embedder.num_layers, len(doc), embedder.dim)
    np.testing.assert_array_equal(doc.vector, np.zeros(embedder.dim))
    assert not doc.has_vector
    assert doc.similarity(nlp("bank")) == 0.0


def test_sentences_of_the_pipeline_are_embedded_separately(embedder):
    text = "It rained. They sat on the bank."
    doc = pipeline(sentences=True)(text)
    first, second = doc.sents
    expected = embedder.layers([words(first), words(second)])
    np.testing.assert_array_equal(doc._.elmo, np.concatenate(expected, axis=1))
    whole = pipeline()(text)
    np.testing.assert_array_equal(whole._.elmo, embedder.layers([words(whole)])[0])
    assert not np.allclose(whole._.elmo, doc._.elmo)


@pytest.mark.parametrize("sentences", [False, True])
def test_vectors_do_not_depend_on_the_batch_size(sentences):
    nlp = pipeline(sentences=sentences)
    alone = [nlp(text) for text in TEXTS]
    for batch_size in (1, 2, 100):
        together = list(nlp.pipe(TEXTS, batch_size=batch_size))
        assert [doc.text for doc in together] == TEXTS
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_allclose(other._.elmo, one._.elmo, atol=1e-6)
            np.testing.assert_allclose(other.tensor, one.tensor, atol=1e-6)


def test_a_batch_of_documents_is_one_call_of_the_embedder(nlp, monkeypatch):
    calls = []
    real = elmo.Embedder.layers
    monkeypatch.setattr(
        elmo.Embedder, "layers", lambda self, texts, **options: calls.append(len(texts)) or real(self, texts, **options)
    )
    list(nlp.pipe(["One two .", "Three .", "Four .", "Five ."], batch_size=3))
    assert calls == [3, 1]


def test_several_processes_give_the_same_vectors_and_hooks_can_be_set_again(nlp):
    expected = list(nlp.pipe(TEXTS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # W109: hooks are not sent to the parent process
        docs = list(nlp.pipe(TEXTS, n_process=2, batch_size=2))
    for doc, one in zip(docs, expected, strict=True):
        np.testing.assert_allclose(doc.tensor, one.tensor, atol=1e-6)
        np.testing.assert_allclose(doc._.elmo, one._.elmo, atol=1e-6)
        assert not doc.user_hooks
        np.testing.assert_allclose(set_hooks(doc).vector, one.vector, atol=1e-6)


def test_hooks_are_refused_for_a_document_without_a_tensor():
    with pytest.raises(DataError, match="2 tokens"):
        set_hooks(spacy.blank("en")("the bank"))


def test_a_failed_batch_goes_to_the_error_handler_of_the_pipeline(monkeypatch):
    nlp, failed = pipeline(), []
    nlp.set_error_handler(lambda name, proc, docs, error: failed.append((name, len(docs), str(error))))
    real = elmo.Embedder.layers

    def layers(self: elmo.Embedder, texts: Any, **options: Any) -> Any:
        if any("bad" in tokens for tokens in texts):
            raise DataError("a bad word")
        return real(self, texts, **options)

    monkeypatch.setattr(elmo.Embedder, "layers", layers)
    assert [doc.text for doc in nlp.pipe(["one", "bad", "two"], batch_size=1)] == ["one", "two"]
    assert failed == [("elmo", 1, "a bad word")]


def test_a_later_tensor_does_not_change_the_vectors(nlp):
    doc = nlp("They sat on the bank.")
    expected = doc[4].vector
    doc.tensor = np.zeros((len(doc), 3), dtype=np.float32)  # as spaCy's tok2vec does
    np.testing.assert_array_equal(doc[4].vector, expected)


def test_tokens_that_are_merged_afterwards_are_refused(nlp):
    doc = nlp("They sat on the bank.")
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[3:5])
    with pytest.raises(DataError, match="5 tokens and had 6"):
        doc[0].vector  # noqa: B018
    with pytest.raises(DataError, match="5 tokens and had 6"):
        doc[0]._.elmo  # noqa: B018


def test_a_document_from_another_pipeline_has_no_layers():
    doc = spacy.blank("en")("the bank")
    assert doc._.elmo is None
    with pytest.raises(DataError, match="no layers"):
        doc[0]._.elmo  # noqa: B018


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"state": "carry"}, "carry"),
        ({"layers": "all"}, "one vector per token"),
        ({"layers": 7}, "layers is 7"),
        ({"dtype": "float8"}, "float8"),
        ({"device": "nowhere"}, "nowhere"),
    ],
)
def test_a_wrong_setting_is_refused_when_the_component_is_added(config, message):
    with pytest.raises(ConfigError, match=message):
        pipeline(**config)


def test_an_unknown_model_is_refused_when_the_component_is_added():
    with pytest.raises(elmo.ElmoError, match="englsh"):
        pipeline(model="englsh")


def test_a_pipeline_is_saved_and_loaded_with_its_settings(tmp_path):
    nlp = pipeline(layers="top", state="warm", sentences=True)
    nlp.to_disk(tmp_path / "pipeline")
    assert sum(file.stat().st_size for file in (tmp_path / "pipeline" / "elmo").iterdir()) < 1000  # a reference
    expected = nlp(TEXTS[2])
    for other in (
        spacy.load(tmp_path / "pipeline"),
        spacy.blank("en").from_config(nlp.config).from_bytes(nlp.to_bytes()),
    ):
        assert other.get_pipe_config("elmo")["layers"] == "top"
        np.testing.assert_array_equal(other(TEXTS[2]).tensor, expected.tensor)


def test_a_document_keeps_tensor_and_layers_in_bytes(nlp):
    doc = nlp("They sat on the bank.")
    with pytest.warns(UserWarning, match="W109"):
        data = doc.to_bytes()
    other = Doc(nlp.vocab).from_bytes(data)
    np.testing.assert_array_equal(other.tensor, doc.tensor)
    np.testing.assert_array_equal(other[4]._.elmo, doc[4]._.elmo)


def test_a_pipeline_is_refused_if_its_model_has_changed(tmp_path):
    save_store(tmp_path / "model", tiny_random(seed=1))
    pipeline(model=str(tmp_path / "model")).to_disk(tmp_path / "pipeline")
    save_store(tmp_path / "other", tiny_random(seed=2))
    override = {"components.elmo.model": str(tmp_path / "other")}
    with pytest.raises(WeightsError, match="another model"):
        spacy.load(tmp_path / "pipeline", config=override)
    (tmp_path / "model").rename(tmp_path / "moved")
    with pytest.raises(elmo.ElmoError, match="model"):
        spacy.load(tmp_path / "pipeline")
    spacy.load(tmp_path / "pipeline", config={"components.elmo.model": str(tmp_path / "moved")})


def test_a_damaged_component_is_a_clear_error(tmp_path):
    pipeline().to_disk(tmp_path / "pipeline")
    (tmp_path / "pipeline" / "elmo" / "elmo.json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        spacy.load(tmp_path / "pipeline")


def test_a_component_is_pickled_without_its_weights(nlp):
    data = pickle.dumps(nlp.get_pipe("elmo"))
    assert len(data) < 10_000
    np.testing.assert_array_equal(pickle.loads(data)(spacy.blank("en")("the bank")).tensor, nlp("the bank").tensor)


def test_spacy_finds_the_component_and_the_layer_through_entry_points(tmp_path):
    code = """
import spacy
nlp = spacy.blank("en")
nlp.add_pipe("elmo", config={"model": "tiny-random"})
print(nlp("the bank").tensor.shape[0], spacy.registry.architectures.get("elmo.Tok2Vec.v1").__name__)
"""
    done = run_installed(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "make_tok2vec"]


def test_the_example_compares_words_in_context(tmp_path):
    done = run_installed(tmp_path, str(ROOT / "examples" / "spacy_pipeline.py"), "tiny-random")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("similarity of") == 3
    assert "layers of 'bank'" in done.stdout
    assert "loaded again: the same vectors" in done.stdout
