"""ElmoTokenEmbeddings: vectors for flair's sentences, a tagger that is trained, saved and loaded; the old class."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import flair
import numpy as np
import pytest
import torch
from flair.data import Corpus, Sentence
from flair.datasets import FlairDatapointDataset
from flair.embeddings import StackedEmbeddings, TokenEmbeddings
from flair.embeddings.base import load_embeddings
from flair.models import SequenceTagger
from flair.trainers import ModelTrainer

import elmo
from elmo.compat.flair import ELMoEmbeddings
from elmo.errors import ConfigError, ElmoError
from elmo.integrations.flair import ElmoTokenEmbeddings
from elmo.weights.lookup import tiny_random
from elmo.weights.store import save_store

EXAMPLE = Path(__file__).parents[2] / "examples" / "flair_tagger.py"
FILES = Path(elmo.__file__).parent / "golden" / "allennlp"
WORDS = [["The", "bank", "of", "the", "river"], ["naïve", "日本"]]


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flair, "device", torch.device("cpu"))


def tagged(words: list[str]) -> Sentence:
    """A sentence in which words with a capital letter are names."""
    sentence = Sentence(list(words))
    for token in sentence:
        if token.text[0].isupper():
            sentence[token.idx - 1 : token.idx].add_label("name", "PER")
    return sentence


TRAIN = [["Ada", "met", "Bob"], ["we", "saw", "Ada"], ["Bob", "left"], ["we", "met", "them"]]


def train(tmp_path: Path, embeddings: TokenEmbeddings, storage: str, num_epochs: int = 8) -> SequenceTagger:
    flair.set_seed(0)
    data = FlairDatapointDataset([tagged(words) for words in TRAIN])
    corpus = Corpus(data, dev=FlairDatapointDataset([tagged(words) for words in TRAIN]), sample_missing_splits=False)
    tagger = SequenceTagger(
        embeddings, corpus.make_label_dictionary("name"), "name", hidden_size=8, use_rnn=False, use_crf=False,
        dropout=0.0, word_dropout=0.0, locked_dropout=0.0, reproject_embeddings=False,
    )  # fmt: skip
    ModelTrainer(tagger, corpus).train(
        tmp_path / "run", learning_rate=0.5, mini_batch_size=2, max_epochs=num_epochs, embeddings_storage_mode=storage
    )
    return tagger


def names(tagger: SequenceTagger, words: list[str]) -> list[str]:
    sentence = Sentence(list(words))
    tagger.predict(sentence)
    return [span.text for span in sentence.get_spans("name")]


@pytest.mark.parametrize("layers", ["mix", "all", "top", "average", 1])
def test_tokens_get_the_vectors_of_the_embedder(layers):
    embeddings = ElmoTokenEmbeddings("tiny-random", layers=layers)
    sentences = [*(Sentence(list(words)) for words in WORDS), Sentence("")]
    embeddings.embed(sentences)
    spec = "average" if layers == "mix" else layers
    expected = elmo.load("tiny-random", device="cpu").embed(WORDS, layers=spec)
    for sentence, vectors in zip(sentences, expected, strict=False):
        if layers == "all":
            vectors = vectors.transpose(1, 0, 2).reshape(len(sentence), -1)
        for token, vector in zip(sentence, vectors, strict=True):
            assert token.embedding.shape == (embeddings.embedding_length,)
            np.testing.assert_allclose(token.embedding.detach().numpy(), vector, atol=1e-6)


def test_a_tagger_is_trained_saved_and_loaded(tmp_path):
    save_store(tmp_path / "model", tiny_random())
    embeddings = ElmoTokenEmbeddings(tmp_path / "model", layer_norm="token")
    shutil.rmtree(tmp_path / "model")  # the saved tagger does not need it
    before = {name: value.clone() for name, value in embeddings.state_dict().items()}
    tagger = train(tmp_path, embeddings, "none", num_epochs=20)
    assert names(tagger, ["we", "met", "Ada"]) == ["Ada"]
    changed = {name for name, value in embeddings.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"elmo.mix.weights", "elmo.mix.gamma"}
    tagger.save(tmp_path / "tagger.pt")
    loaded = SequenceTagger.load(tmp_path / "tagger.pt")
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in tagger.state_dict().items())
    for words in [*WORDS, ["Bob", "saw", "Ada"]]:
        assert names(loaded, words) == names(tagger, words)


def test_a_bilm_that_is_trained_with_the_tagger_is_saved_with_it(tmp_path):
    embeddings = ElmoTokenEmbeddings("tiny-random", layers="top", requires_grad=True)
    before = embeddings.elmo.bilm.token_encoder.chars.table.clone()
    train(tmp_path, embeddings, "none", num_epochs=2).save(tmp_path / "tagger.pt")
    trained = embeddings.elmo.bilm.token_encoder.chars.table
    assert not torch.equal(trained, before)
    loaded = SequenceTagger.load(tmp_path / "tagger.pt")
    assert torch.equal(loaded.embeddings.elmo.bilm.token_encoder.chars.table, trained)


def test_vectors_of_a_trained_mix_that_flair_has_stored_are_computed_again():
    embeddings = ElmoTokenEmbeddings("tiny-random")
    sentence = Sentence(list(WORDS[0]))
    with torch.no_grad():  # as in the evaluation between two epochs
        first = embeddings.embed(sentence)[0][0].embedding.clone()
        embeddings.elmo.mix.gamma.fill_(3.0)
        second = embeddings.embed(sentence)[0][0].embedding
    torch.testing.assert_close(second, 3 * first)


def test_fixed_layers_are_stored_and_not_computed_again():
    embeddings = ElmoTokenEmbeddings("tiny-random", layers="top")
    sentence = Sentence(list(WORDS[0]))
    embeddings.embed(sentence)
    sentence[0].set_embedding(embeddings.name, torch.zeros(embeddings.embedding_length))
    assert not embeddings.embed(sentence)[0][0].embedding.any()


def test_embeddings_are_saved_by_themselves_and_stacked():
    embeddings = ElmoTokenEmbeddings("tiny-random", layers="all")
    loaded = load_embeddings(embeddings.save_embeddings())
    assert (loaded.name, loaded.embedding_length) == (embeddings.name, embeddings.embedding_length)
    stacked = StackedEmbeddings([loaded, ElmoTokenEmbeddings("tiny-random", layers="top")])
    sentence = Sentence(list(WORDS[1]))
    stacked.embed(sentence)
    assert stacked.embedding_length == len(sentence[0].embedding) == 4 * loaded.elmo.dim


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": "first"}, "layers is 'first'; expected mix, all, top, average, or a number from 0 to 2"),
        ({"layers": 3}, "layers is 3"),
        ({"layers": "top", "dropout": 0.5}, "layer_norm and dropout belong to the mix"),
    ],
)
def test_options_that_do_not_fit_are_errors(options, message):
    with pytest.raises(ConfigError, match=message):
        ElmoTokenEmbeddings("tiny-random", **options)


@pytest.mark.parametrize(("mode", "width"), [("all", 3), ("top", 1), ("average", 1)])
def test_code_for_the_old_class_of_flair_runs_after_a_change_of_the_import(mode, width):
    options_file, weight_file = FILES / "options.json", FILES / "lm_weights.hdf5"
    embedding = ELMoEmbeddings(options_file=options_file, weight_file=weight_file, embedding_mode=mode)
    sentence = Sentence("The grass is green .")
    embedding.embed(sentence)
    layers = elmo.load(options_file, weight_file, device="cpu").layers([[token.text for token in sentence]])[0]
    expected = {"all": np.concatenate(list(layers), axis=-1), "top": layers[-1], "average": layers.mean(axis=0)}[mode]
    assert embedding.embedding_length == width * layers.shape[-1]
    np.testing.assert_allclose(torch.stack([token.embedding for token in sentence]).numpy(), expected, atol=1e-6)


def test_the_old_class_of_flair_can_be_stacked_trained_and_saved(tmp_path):
    stacked = StackedEmbeddings([ELMoEmbeddings("tiny-random")])
    train(tmp_path, stacked, "cpu", num_epochs=1).save(tmp_path / "tagger.pt")
    loaded = SequenceTagger.load(tmp_path / "tagger.pt")
    sentence = Sentence(list(WORDS[0]))
    loaded.embeddings.embed(sentence)
    assert len(sentence[0].embedding) == ELMoEmbeddings("tiny-random").embedding_length


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"embedding_mode": "sum"}, "embedding_mode is 'sum'"),
        ({"options_file": "options.json"}, "weight_file is missing"),
        ({"model": "large"}, "original-5.5b"),
    ],
)
def test_wrong_arguments_of_the_old_class_are_errors(arguments, message, tmp_path, monkeypatch):
    monkeypatch.setenv("ELMO_HOME", str(tmp_path))
    with pytest.raises(ElmoError, match=message):
        ELMoEmbeddings(**arguments)


def test_the_example_finds_names_that_it_was_not_trained_on():
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, weights = done.stdout.splitlines()[-2:]
    assert len({"Alice/PER", "Chicago/LOC", "Peter/PER"} & set(found.split())) >= 2, done.stdout
    assert weights.startswith("weight of each layer:")
