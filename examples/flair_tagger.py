"""A SequenceTagger of flair on ELMo vectors, trained on a few sentences, saved and loaded.

pip install flair
python examples/flair_tagger.py
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import flair
from flair.data import Corpus, Sentence
from flair.datasets import FlairDatapointDataset
from flair.models import SequenceTagger
from flair.trainers import ModelTrainer

from elmo.integrations.flair import ElmoTokenEmbeddings

TRAIN = [
    "Ada/PER lives/O in/O London/LOC ./O",
    "Paris/LOC is/O far/O from/O the/O house/O of/O Marie/PER ./O",
    "We/O met/O Thomas/PER near/O Oxford/LOC ./O",
    "Henry/PER and/O Anna/PER left/O Berlin/LOC in/O May/O ./O",
    "The/O train/O to/O Vienna/LOC was/O late/O ,/O said/O Robert/PER ./O",
]


def make_sentence(text: str) -> Sentence:
    pairs = [token.rsplit("/", 1) for token in text.split()]
    sentence = Sentence([word for word, _ in pairs])
    for token, (_, tag) in zip(sentence, pairs, strict=True):
        if tag != "O":
            sentence[token.idx - 1 : token.idx].add_label("name", tag)
    return sentence


def main(model: str = "default") -> None:
    logging.getLogger("flair").setLevel(logging.ERROR)
    flair.set_seed(1)
    sentences = [make_sentence(text) for text in TRAIN]
    corpus = Corpus(FlairDatapointDataset(sentences), dev=FlairDatapointDataset(sentences), sample_missing_splits=False)
    tagger = SequenceTagger(
        ElmoTokenEmbeddings(model, layer_norm="token"), corpus.make_label_dictionary("name"), "name",
        hidden_size=32, use_rnn=False, use_crf=False, dropout=0.0, word_dropout=0.0, locked_dropout=0.0,
        reproject_embeddings=False,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        ModelTrainer(tagger, corpus).train(
            folder, learning_rate=0.5, mini_batch_size=1, max_epochs=25, embeddings_storage_mode="none"
        )
        tagger = SequenceTagger.load(Path(folder) / "final-model.pt")
    test = Sentence(["Alice", "moved", "to", "Chicago", "with", "Peter", "."])
    tagger.predict(test)
    print(" ".join(f"{span.text}/{span.tag}" for span in test.get_spans("name")))
    print("weight of each layer:", " ".join(f"{w:.2f}" for w in tagger.embeddings.elmo.mix.layer_weights().tolist()))


if __name__ == "__main__":
    main(*sys.argv[1:])
