"""bilm-tf's tests of its data, model and layer weights; each test names the upstream test that it mirrors."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from golden import golden_batches, golden_model

from elmo.model.bilm import BiLM
from elmo.model.config import WordConfig
from elmo.model.mix import ScalarMix
from elmo.text.batch import make_batch
from elmo.text.chars import BEGIN_SENTENCE, END_SENTENCE, boundary_row
from elmo.text.indexer import ByteIndexer, WordIndexer, sentence_rows
from elmo.text.vocab import Vocabulary

FIXTURE = Path(__file__).parents[1] / "fixtures" / "bilm-tf" / "data" / "vocab_test.txt"


# ---- tests/test_data.py ----


@pytest.fixture
def vocab(tmp_path: Path) -> Vocabulary:
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\n.")
    return Vocabulary.from_file(tmp_path / "vocab.txt")


def test_vocabulary_encodes_a_sentence(vocab: Vocabulary) -> None:
    """TestVocabulary.test_vocab_encode, test_vocab_encode_reverse; 0 is padding here, so ids are larger by one"""
    rows = sentence_rows(WordIndexer(vocab), ["the", "unknown", "."])[:, 0]
    assert (rows - 1).tolist() == [0, 3, 2, 4, 1]
    assert (rows[::-1] - 1).tolist() == [1, 4, 2, 3, 0]


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("th", [258, 116, 104, 259, 260]),
        ("thhhhh", [258, 116, 104, 104, 259]),
        (chr(256) + "t", [258, 196, 128, 116, 259]),
    ],
)
def test_characters_of_a_word(token: str, expected: list[int]) -> None:
    """TestUnicodeCharsVocabulary.test_vocab_word_to_char_ids, with our shift by one removed"""
    assert (ByteIndexer(5).row(token) - 1).tolist() == expected


def test_boundary_tokens_have_boundary_characters() -> None:
    """TestUnicodeCharsVocabulary.test_bos_eos"""
    indexer = ByteIndexer(5, specials=True)
    assert indexer.row("<S>").tolist() == indexer.begin.tolist() == boundary_row(BEGIN_SENTENCE, 5).tolist()
    assert indexer.row("</S>").tolist() == indexer.end.tolist() == boundary_row(END_SENTENCE, 5).tolist()


def test_characters_of_a_sentence() -> None:
    """TestUnicodeCharsVocabulary.test_vocab_encode_chars, test_vocab_encode_chars_reverse"""
    expected = [[258, 256, 259, 260, 260], [258, 116, 104, 259, 260], [258, 116, 104, 104, 259]]
    expected += [[258, 196, 128, 116, 259], [258, 257, 259, 260, 260]]
    rows = sentence_rows(ByteIndexer(5), ["th", "thhhhh", chr(256) + "t"]) - 1
    assert rows.tolist() == expected
    assert rows[::-1].tolist() == expected[::-1]


def test_batch_of_sentences() -> None:
    """TestBatcher.test_batch_sentences"""
    ids = make_batch([["The", "first", "sentence"], ["Second", "."]], ByteIndexer()).ids
    begin, end = [259, 257, 260], [259, 258, 260]
    first = [begin, [259, 85, 105, 102, 260], [259, 103, 106, 115, 116, 117, 260]]
    first += [[259, 116, 102, 111, 117, 102, 111, 100, 102, 260], end]
    second = [begin, [259, 84, 102, 100, 112, 111, 101, 260], [259, 47, 260], end]
    expected = np.full((2, 5, 50), 261)
    expected[1, 4] = 0
    for row, sentence in enumerate((first, second)):
        for position, characters in enumerate(sentence):
            expected[row, position, : len(characters)] = characters
    np.testing.assert_array_equal(ids, expected)


def test_batch_of_tokens() -> None:
    """TestTokenBatcher.test_token_batcher; the boundaries are the first two lines, in the other order"""
    indexer = WordIndexer(Vocabulary.from_file(FIXTURE))
    ids = make_batch([["The", "first", "."], ["It", "said"]], indexer).ids[:, :, 0]
    assert ids.tolist() == [[2, 18, 75, 6, 1], [2, 67, 21, 1, 0]]


# ---- tests/test_model.py ----


def test_bilm_and_its_states() -> None:
    """TestBidirectionalLanguageModel.test_bilm; a row beyond the batch is the caller's, so it cannot change"""
    model, state = golden_model("bilm-tf"), None
    for sentences, expected in golden_batches("bilm-tf"):
        batch = make_batch(sentences, ByteIndexer())
        with torch.no_grad():
            output = model(torch.from_numpy(batch.ids), state=state)
        state = output.state
        assert (output.mask.sum(1) - 2).tolist() == [len(s) for s in sentences]
        for row, vectors in enumerate(expected):
            np.testing.assert_allclose(output.layers[2, row, 1 : len(vectors) + 1].numpy(), vectors, atol=2e-6)
    assert state is not None
    assert state.h.shape[2] == 3


def test_bilm_with_token_input() -> None:
    """TestBidirectionalLanguageModelTokenInput.test_bilm_token"""
    chars = golden_model("bilm-tf")
    tokens = sorted({token for sentences, _ in golden_batches("bilm-tf") for s in sentences for token in s})
    vocab = Vocabulary([*tokens, "<S>", "<UNK>", "</S>"])  # any order
    rows = np.stack([ByteIndexer(specials=True).row(word) for word in vocab.words])
    with torch.no_grad():
        table = chars.token_encoder(torch.from_numpy(rows))  # (V, P): the dumped token vectors
    words = WordConfig(num_words=len(vocab), word_dim=table.shape[1])
    model = BiLM(dataclasses.replace(chars.config, chars=None, words=words))
    stacks = {name: tensor for name, tensor in chars.state_dict().items() if name.startswith("stacks.")}
    model.load_state_dict({"token_encoder.words": table, **stacks})
    state = None
    for sentences, expected in golden_batches("bilm-tf"):
        with torch.no_grad():
            output = model(torch.from_numpy(make_batch(sentences, WordIndexer(vocab)).ids), state=state)
        state = output.state
        for row, vectors in enumerate(expected):
            np.testing.assert_allclose(output.layers[2, row, 1 : len(vectors) + 1].numpy(), vectors, atol=2e-6)


# ---- tests/test_elmo.py ----


@pytest.mark.parametrize(("norm", "top_only"), [("batch", False), ("none", False), ("none", True)])
def test_weighted_layers(norm: str, top_only: bool) -> None:
    """TestWeightedLayers: test_weighted_layers, ..._no_norm, ..._top_only"""
    sentences = [["The", "first", "sentence", "."], ["The", "second"], ["Third"]]
    batch = make_batch(sentences, ByteIndexer())
    with torch.no_grad():
        output = golden_model("bilm-tf")(torch.from_numpy(batch.ids))
    layers = output.layers[:, :, 1:-1]  # (3, 3, 4, D)
    mask = torch.arange(4) < torch.tensor([[4], [2], [1]])
    layers = layers * mask[..., None]
    for values, gamma in (([0.1, 0.3, 0.5], 1.1), ([0.2, 0.4, 0.6], 0.88)):
        mix = ScalarMix(3, layer_norm=norm, top_only=top_only, penalty=1.0)
        assert sum(p.requires_grad for p in mix.parameters()) == (1 if top_only else 2)
        with torch.no_grad():
            mix.gamma.fill_(gamma)
            if mix.weights is not None:
                mix.weights.copy_(torch.tensor(values))
            found = mix(layers, mask).numpy()
        assert (mix.penalty().item() > 0) == (not top_only)  # one regulariser per mix that has weights
        weights = np.exp(np.array(values) + 1 / 3) / np.exp(np.array(values) + 1 / 3).sum()
        expected = np.zeros(found.shape)
        for weight, layer in zip(weights, layers.numpy(), strict=True):
            valid = layer[mask.numpy()]
            normed = (layer - valid.mean()) / (valid.std() + 1e-12) if norm == "batch" else layer
            expected += weight * normed
        if top_only:
            expected = layers[-1].numpy()
        np.testing.assert_allclose(found, gamma * expected, atol=2e-6)
