"""elmo.load: a model is refused if its lexicon, or its lack of one, does not fit its tables."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from random_models import LSTM, random_network

import elmo
from elmo.errors import WeightsError
from elmo.model.config import BiLMConfig, CharConfig, WordConfig
from elmo.weights.model_parts import Lexicon, ModelParts
from elmo.weights.store import save_store

CHARS = {symbol: number for number, symbol in enumerate(["<bos>", "<eos>", "<bow>", "<eow>", "<oov>", "<pad>", *"the"])}
WORDS = {symbol: number for number, symbol in enumerate(["<bos>", "<eos>", "<oov>", "<pad>", "the", "cat"])}
CHAR_CONFIG = CharConfig(num_chars=9, char_dim=4, max_chars=8, filters=((1, 3), (2, 4)), num_highways=0)
WORD_CONFIG = WordConfig(num_words=6, word_dim=5)


def save(folder, lexicon, chars=CHAR_CONFIG, words=WORD_CONFIG):
    config = BiLMConfig(chars=chars, words=words, lstm=LSTM)
    tensors = dict(random_network(config).state_dict())
    save_store(folder, ModelParts(config=config, tensors=tensors, lexicon=lexicon))


@pytest.mark.parametrize(("chars", "words"), [(CHARS, WORDS), (CHARS, None), (None, WORDS)])
def test_a_lexicon_that_fits_the_tables_is_used(tmp_path, chars, words):
    lexicon = Lexicon(chars=chars, words=words, max_chars=8)
    save(tmp_path / "m", lexicon, CHAR_CONFIG if chars else None, WORD_CONFIG if words else None)
    vectors = elmo.load(tmp_path / "m", device="cpu").embed([["the", "cat", "eth"]])[0]
    assert vectors.shape == (3, 12)
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chars": None}, "the lexicon has no characters, but the model reads characters"),
        ({"words": None}, "the lexicon has no words, but the model reads words"),
        ({"chars": {**CHARS, "h": 9}}, r"lexicon of characters numbers up to 9, the model has vectors for 0\.\.8"),
        ({"chars": {**CHARS, "h": -1}}, "lexicon of characters has the number -1"),  # would be padding
        ({"words": {**WORDS, "cat": 6}}, r"lexicon of words numbers up to 6, the model has vectors for 0\.\.5"),
        ({"chars": {"t": 0}}, "has no <bos>"),
        ({"words": {}}, "has no <oov>"),
        ({"max_chars": 7}, "rows of 7 characters, the model reads 8"),
    ],
)
def test_a_lexicon_of_another_model_is_refused(tmp_path, change, message):
    save(tmp_path / "m", dataclasses.replace(Lexicon(chars=CHARS, words=WORDS), **change))
    with pytest.raises(WeightsError, match=message):
        elmo.load(tmp_path / "m", device="cpu")


@pytest.mark.parametrize(("chars", "words"), [(CHAR_CONFIG, None), (None, WORD_CONFIG)])
def test_a_lexicon_with_a_table_that_the_model_lacks_is_refused(tmp_path, chars, words):
    save(tmp_path / "m", Lexicon(chars=CHARS, words=WORDS), chars, words)
    with pytest.raises(WeightsError, match=r"but the model does not read (words|characters)"):
        elmo.load(tmp_path / "m", device="cpu")


@pytest.mark.parametrize(("words", "seen"), [(None, "9 characters"), (WORD_CONFIG, "characters and words")])
def test_characters_that_are_not_bytes_need_a_lexicon(tmp_path, words, seen):
    save(tmp_path / "m", None, CHAR_CONFIG, words)
    with pytest.raises(WeightsError, match=f"reads {seen}, and its folder has no lexicon"):
        elmo.load(tmp_path / "m", device="cpu")
