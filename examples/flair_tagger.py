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

TRAIN = {  # sentence -> names in it
    "Ada lives in London .": {"Ada": "PER", "London": "LOC"},
    "Paris is far from the house of Marie .": {"Paris": "LOC", "Marie": "PER"},
    "We met Thomas near Oxford .": {"Thomas": "PER", "Oxford": "LOC"},
    "Henry and Anna left Berlin in May .": {"Henry": "PER", "Anna": "PER", "Berlin": "LOC"},
    "The train to Vienna was late , said Robert .": {"Vienna": "LOC", "Robert": "PER"},
}


def make_sentence(text: str, names: dict[str, str]) -> Sentence:
    sentence = Sentence(text.split())
    for token in sentence:
        if token.text in names:
            sentence[token.idx - 1 : token.idx].add_label("name", names[token.text])
    return sentence


def main(model: str = "default") -> None:
    logging.getLogger("flair").setLevel(logging.ERROR)
    flair.set_seed(1)
    sentences = FlairDatapointDataset([make_sentence(text, names) for text, names in TRAIN.items()])
    corpus = Corpus(sentences, dev=sentences, sample_missing_splits=False)
    elmo, labels = ElmoTokenEmbeddings(model, layer_norm="token"), corpus.make_label_dictionary("name")
    tagger = SequenceTagger(elmo, labels, "name", use_rnn=False, use_crf=False, reproject_embeddings=False)
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
