"""`elmo.Tok2Vec.v1` in trainable components of spaCy: the mix, its gradients, the cache, and `spacy train`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
import torch
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy_entry_points import run_installed

import elmo
from elmo.errors import ConfigError, DataError, WeightsError
from elmo.integrations.spacy import make_tok2vec
from elmo.weights.lookup import tiny_random
from elmo.weights.store import save_store

TEXTS = ["They sat  on the bank .", "", "It rained .", "\n"]
SENTENCES = [
    "Ada/PER lives/O in/O London/LOC ./O",
    "Paris/LOC is/O far/O from/O Marie/PER ./O",
    "We/O met/O Thomas/PER near/O Oxford/LOC ./O",
]


def tagger(**settings: Any) -> tuple[spacy.Language, list[Example]]:
    nlp = spacy.blank("en")
    layer = {"@architectures": "elmo.Tok2Vec.v1", "model": "tiny-random", "device": "cpu", "width": 24, **settings}
    nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": layer}})
    return nlp, examples(nlp)


def examples(nlp: spacy.Language) -> list[Example]:
    result = []
    for sentence in SENTENCES:
        words, tags = zip(*(token.rsplit("/", 1) for token in sentence.split()), strict=True)
        result.append(Example.from_dict(Doc(nlp.vocab, words=list(words)), {"tags": list(tags)}))
    return result


def train(nlp: spacy.Language, data: list[Example], steps: int = 150) -> None:
    spacy.util.fix_random_seed(0)
    optimizer = nlp.initialize(lambda: data)
    optimizer.learn_rate = 0.01
    for _ in range(steps):
        nlp.update(data, sgd=optimizer)


def tags(nlp: spacy.Language, data: list[Example]) -> list[str]:
    return [token.tag_ for example in data for token in nlp(Doc(nlp.vocab, words=[t.text for t in example.predicted]))]


def mix_of(nlp: spacy.Language) -> Any:
    return nlp.get_pipe("tagger").model.get_ref("tok2vec").get_ref("elmo_mix")


def torch_mix(weights: list[float], gamma: float) -> elmo.ScalarMix:
    mix = elmo.ScalarMix(len(weights))
    with torch.no_grad():
        mix.weights.copy_(torch.tensor(weights))
        mix.gamma.fill_(gamma)
    return mix


def test_the_mix_and_its_gradients_are_those_of_scalar_mix():
    docs = [spacy.blank("en")(text) for text in TEXTS]
    layer = make_tok2vec("tiny-random", device="cpu").get_ref("elmo_mix")
    layer.initialize(X=docs)
    layer.set_param("weights", np.array([0.5, -1.0, 2.0], dtype=np.float32))
    layer.set_param("gamma", np.array([1.7], dtype=np.float32))
    outputs, backprop = layer.begin_update(docs)
    assert [len(vectors) for vectors in outputs] == [len(doc) for doc in docs]

    embedder = elmo.load("tiny-random", device="cpu")
    expected = torch_mix([0.5, -1.0, 2.0], 1.7)
    words = [[token for token in doc if not token.is_space] for doc in docs]
    rng = np.random.default_rng(0)
    upstream = [rng.standard_normal(vectors.shape, dtype=np.float32) for vectors in outputs]
    loss = torch.zeros(())
    for tokens, vectors, gradient in zip(words, outputs, upstream, strict=True):
        rows = [token.i for token in tokens]
        assert not np.delete(vectors, rows, axis=0).any()  # whitespace
        layers = torch.from_numpy(embedder.layers([[token.text for token in tokens]])[0])[:, None]
        mixed = expected(layers)[0]  # (n, D)
        np.testing.assert_allclose(vectors[rows], mixed.detach().numpy(), atol=1e-5)
        loss = loss + (mixed * torch.from_numpy(gradient[rows])).sum()
    loss.backward()
    backprop(upstream)
    np.testing.assert_allclose(layer.get_grad("weights"), expected.weights.grad.numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(layer.get_grad("gamma"), [expected.gamma.grad.item()], rtol=1e-4)


def test_a_tagger_learns_and_moves_its_mix():
    nlp, data = tagger()
    train(nlp, data)
    assert tags(nlp, data) == [tag for example in data for tag in example.get_aligned("TAG", as_string=True)]
    assert len(set(mix_of(nlp).get_param("weights").tolist())) > 1
    assert mix_of(nlp).get_param("gamma")[0] != 1


def test_another_embedding_is_joined_before_the_linear_layer():
    hashes = {
        "@architectures": "spacy.MultiHashEmbed.v2", "width": 16, "attrs": ["NORM"], "rows": [100],
        "include_static_vectors": False,
    }  # fmt: skip
    nlp, data = tagger(embed=hashes)
    train(nlp, data)
    assert tags(nlp, data) == [tag for example in data for tag in example.get_aligned("TAG", as_string=True)]
    tok2vec = nlp.get_pipe("tagger").model.get_ref("tok2vec")
    (linear,) = [node for node in tok2vec.walk() if node.name == "linear"]
    assert linear.get_dim("nI") == mix_of(nlp).get_dim("nO") + 16


def test_components_share_the_layer_through_a_listener():
    nlp = spacy.blank("en")
    layer = {"@architectures": "elmo.Tok2Vec.v1", "model": "tiny-random", "device": "cpu", "width": 24}
    nlp.add_pipe("tok2vec", config={"model": layer})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 24}
    nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": listener}})
    data = examples(nlp)
    train(nlp, data)
    assert tags(nlp, data) == [tag for example in data for tag in example.get_aligned("TAG", as_string=True)]
    assert len(set(nlp.get_pipe("tok2vec").model.get_ref("elmo_mix").get_param("weights").tolist())) > 1


def test_a_trained_pipeline_is_saved_without_the_bilm_and_checks_it(tmp_path):
    save_store(tmp_path / "model", tiny_random(seed=1))
    save_store(tmp_path / "other", tiny_random(seed=2))
    nlp, data = tagger(model=str(tmp_path / "model"))
    train(nlp, data)
    nlp.to_disk(tmp_path / "pipeline")
    weights = sum(file.stat().st_size for file in (tmp_path / "model").iterdir())
    assert (tmp_path / "pipeline" / "tagger" / "model").stat().st_size < weights / 2
    loaded = spacy.load(tmp_path / "pipeline")
    assert tags(loaded, data) == tags(nlp, data)
    np.testing.assert_array_equal(mix_of(loaded).get_param("weights"), mix_of(nlp).get_param("weights"))
    override = {"components.tagger.model.tok2vec.model": str(tmp_path / "other")}
    with pytest.raises(WeightsError, match="another model"):
        spacy.load(tmp_path / "pipeline", config=override)("the bank")


def test_the_cache_gives_the_same_vectors_and_is_used_by_training_only(tmp_path, monkeypatch):
    path = tmp_path / "layers.sqlite"
    nlp, data = tagger(cache_path=str(path))
    nlp.initialize(lambda: data)
    docs = [example.predicted for example in data]
    exact = mix_of(nlp).predict(docs)
    assert not path.exists()
    first, _ = mix_of(nlp).begin_update(docs)
    assert path.exists()
    layers = elmo.load("tiny-random", device="cpu").layers([[token.text for token in doc] for doc in docs])
    rounding = max(np.abs(one).max() for one in layers) / 2048  # of float16, at most, in a mean of the layers
    for one, other in zip(exact, first, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=rounding + 1e-6)

    other_run, _ = tagger(cache_path=str(path))
    other_run.initialize(lambda: data)
    calls: list[Any] = []
    monkeypatch.setattr(elmo.Embedder, "layers", lambda self, texts, **options: calls.append(texts))
    again, _ = mix_of(other_run).begin_update(docs)
    assert calls == []
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(other, one)


def test_one_cache_serves_two_models(tmp_path):
    outputs = []
    for seed in (1, 2):
        save_store(tmp_path / str(seed), tiny_random(seed=seed))
        nlp, data = tagger(model=str(tmp_path / str(seed)), cache_path=str(tmp_path / "layers.sqlite"))
        nlp.initialize(lambda data=data: data)
        mix_of(nlp).begin_update([data[0].predicted])
        outputs.append(mix_of(nlp).begin_update([data[0].predicted])[0][0])
    assert not np.allclose(*outputs)


@pytest.mark.parametrize("content", [b"no database", b""])
def test_a_file_that_is_no_cache_is_refused_and_an_empty_one_is_filled(tmp_path, content):
    path = tmp_path / "layers.sqlite"
    path.write_bytes(content * 1000)
    nlp, data = tagger(cache_path=str(path))
    nlp.initialize(lambda: data)
    if not content:
        mix_of(nlp).begin_update([data[0].predicted])
        return
    with pytest.raises(DataError, match="cannot be used as a cache"):
        mix_of(nlp).begin_update([data[0].predicted])


def test_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match="width is 0"):
        make_tok2vec("tiny-random", width=0)
    with pytest.raises(ConfigError, match="carry"):
        make_tok2vec("tiny-random", state="carry")
    with pytest.raises(elmo.ElmoError, match="englsh"):
        make_tok2vec("englsh")


CONFIG = """
[nlp]
lang = "en"
pipeline = ["ner"]

[components]

[components.ner]
factory = "ner"

[components.ner.model]
@architectures = "spacy.TransitionBasedParser.v2"
state_type = "ner"
extra_state_tokens = false
hidden_width = 16
maxout_pieces = 2
use_upper = true

[components.ner.model.tok2vec]
@architectures = "elmo.Tok2Vec.v1"
model = "tiny-random"
width = 24

[corpora]

[corpora.train]
@readers = "spacy.Corpus.v1"
path = "data.spacy"

[corpora.dev]
@readers = "spacy.Corpus.v1"
path = "data.spacy"

[training]
max_steps = 60
eval_frequency = 60

[training.optimizer]
@optimizers = "Adam.v1"
learn_rate = 0.01
"""


def test_spacy_train_and_evaluate_work_from_a_config_file(tmp_path):
    docs = DocBin()
    nlp = spacy.blank("en")
    for sentence in SENTENCES:
        words, labels = zip(*(token.rsplit("/", 1) for token in sentence.split()), strict=True)
        docs.add(Doc(nlp.vocab, words=list(words), ents=[f"B-{label}" if label != "O" else "O" for label in labels]))
    docs.to_disk(tmp_path / "data.spacy")
    (tmp_path / "base.cfg").write_text(CONFIG)
    for command in (
        ["init", "fill-config", "base.cfg", "config.cfg"],
        ["train", "config.cfg", "--output", "out"],
        ["evaluate", "out/model-last", "data.spacy", "--output", "scores.json"],
    ):
        done = run_installed(tmp_path, "-m", "spacy", *command)
        assert done.returncode == 0, done.stdout + done.stderr
    scores = json.loads(Path(tmp_path / "scores.json").read_text())
    assert scores["ents_f"] > 0.9, scores
