"""Code for bilm-tf with the import changed and the session deleted: ids, states, layers, weights and files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import oracle
import pytest
import torch
from golden import FIXTURES, golden_batches

from elmo.compat.bilm_tf import (
    Batcher,
    BidirectionalLanguageModel,
    TokenBatcher,
    dump_bilm_embeddings,
    dump_token_embeddings,
    weight_layers,
)
from elmo.errors import ConfigError, DataError, WeightsError

FILES = FIXTURES / "bilm-tf"
OPTIONS_FILE, WEIGHT_FILE, VOCAB_FILE = FILES / "options.json", FILES / "lm_weights.hdf5", FILES / "vocab_test.txt"
CONTEXT = [["Vectors", "depend", "on", "the", "sentence", "."], ["So", "do", "these", "."]]
QUESTION = [["What", "do", "they", "depend", "on", "?"]]
CLOSE = {"rtol": 0, "atol": 2e-6}  # float32 against the oracle's float64


def make(**options) -> BidirectionalLanguageModel:
    return BidirectionalLanguageModel(OPTIONS_FILE, WEIGHT_FILE, device="cpu", **options)


def oracle_batches(batches: list[list[list[str]]]) -> list[list[np.ndarray]]:
    """Layers (L+1, n, D) of each sentence of each batch, with one state per row."""
    model, state, results = oracle.load(OPTIONS_FILE, WEIGHT_FILE), None, []
    for batch in batches:
        arrays, state = oracle.run(*model, batch, state)
        results.append([layers[:, 1:-1] for layers in arrays])
    return results


def write_vocabulary(path: Path) -> Path:
    """Every word of the sentences, in an order without meaning, with <S> and </S> among them and no <UNK>."""
    words = sorted({word for sentence in CONTEXT + QUESTION for word in sentence} | {"<S>", "</S>"})
    path.write_text("\n".join(words))
    return path


# ---- the three usage scripts ----


def test_usage_with_characters():
    batcher, bilm = Batcher(VOCAB_FILE, 50), make()
    context_ops = bilm(batcher.batch_sentences(CONTEXT), placeholder="context")
    question_ops = bilm(batcher.batch_sentences(QUESTION), placeholder="question")
    elmo_context_input = weight_layers("input", context_ops, l2_coef=0.0)
    elmo_question_input = weight_layers("input", question_ops, l2_coef=0.0)
    elmo_context_output = weight_layers("output", context_ops, l2_coef=0.0)
    assert set(bilm.mixes) == {"input", "output"}, "question and context share weights, input and output do not"
    for ops, sentences, mixed in (
        (context_ops, CONTEXT, elmo_context_input), (context_ops, CONTEXT, elmo_context_output),
        (question_ops, QUESTION, elmo_question_input),
    ):  # fmt: skip
        (expected,) = oracle_batches([sentences])
        for row, layers in enumerate(expected):
            n = layers.shape[1]
            np.testing.assert_allclose(ops["lm_embeddings"][row, :, :n], layers, **CLOSE)
            np.testing.assert_allclose(mixed["weighted_op"].detach()[row, :n], layers.mean(axis=0), **CLOSE)
            assert not mixed["weighted_op"].detach()[row, n:].any()
            assert not ops["lm_embeddings"][row, :, n:].any()
    assert context_ops["lengths"].tolist() == [6, 4]
    assert context_ops["mask"].tolist() == [[True] * 6, [True] * 4 + [False] * 2]


def test_usage_with_token_ids(tmp_path):
    vocab_file, embedding_file = write_vocabulary(tmp_path / "vocab.txt"), tmp_path / "tokens.hdf5"
    dump_token_embeddings(vocab_file, OPTIONS_FILE, WEIGHT_FILE, embedding_file)
    tokens, characters = TokenBatcher(vocab_file), Batcher(vocab_file, 50)
    with_tokens = make(use_character_inputs=False, embedding_weight_file=embedding_file)
    with_characters = make()
    for batch in (CONTEXT, QUESTION):
        first, second = (
            with_tokens(tokens.batch_sentences(batch)), with_characters(characters.batch_sentences(batch))
        )  # fmt: skip
        for key in ("lm_embeddings", "lengths", "mask"):
            torch.testing.assert_close(first[key], second[key], rtol=0, atol=1e-6)
        inside = characters.batch_sentences(batch).any(axis=-1)
        torch.testing.assert_close(
            first["token_embeddings"][inside], second["token_embeddings"][inside], rtol=0, atol=1e-6
        )


def test_usage_with_a_file_of_embeddings(tmp_path):
    dataset_file, embedding_file = tmp_path / "dataset.txt", tmp_path / "embeddings.hdf5"
    sentences = [*CONTEXT, [], *QUESTION]
    dataset_file.write_text("".join(" ".join(sentence) + "\n" for sentence in sentences))
    dump_bilm_embeddings(VOCAB_FILE, dataset_file, OPTIONS_FILE, WEIGHT_FILE, embedding_file)
    expected = oracle_batches([[sentence] for sentence in sentences])
    with h5py.File(embedding_file) as file:
        assert set(file) == {"0", "1", "2", "3"}
        for number, (layers,) in enumerate(expected):
            np.testing.assert_allclose(file[str(number)][...], layers, **CLOSE)


# ---- the model ----


def test_golden_batches_with_carried_state():
    batcher, bilm = Batcher(None, 50), make()
    for sentences, expected in golden_batches("bilm-tf"):
        layers = bilm(batcher.batch_sentences(sentences))["lm_embeddings"]
        for row, top in enumerate(expected):
            np.testing.assert_allclose(layers[row, -1, : len(top)], top, **CLOSE)


def test_every_placeholder_has_a_state_and_it_can_be_reset():
    bilm, ids = make(), Batcher(None, 50).batch_sentences(CONTEXT)
    first, other = bilm(ids)["lm_embeddings"], bilm(ids, placeholder="other")["lm_embeddings"]
    assert torch.equal(first, other)
    second = bilm(ids)["lm_embeddings"]
    assert not torch.allclose(first, second)
    expected = oracle_batches([CONTEXT, CONTEXT])[1]
    for row, layers in enumerate(expected):
        np.testing.assert_allclose(second[row, :, : layers.shape[1]], layers, **CLOSE)
    bilm.reset_states()
    assert torch.equal(bilm(ids)["lm_embeddings"], first)


@pytest.mark.parametrize("use_top_only", [False, True])
@pytest.mark.parametrize("do_layer_norm", [False, True])
@pytest.mark.parametrize("l2_coef", [None, 0.1])
def test_weights_are_trained_and_penalised(use_top_only, do_layer_norm, l2_coef):
    bilm = make()
    ops = bilm(Batcher(None, 50).batch_sentences(CONTEXT))
    settings = {"l2_coef": l2_coef, "use_top_only": use_top_only, "do_layer_norm": do_layer_norm}
    weight_layers("input", ops, **settings)
    mix = bilm.mixes["input"]
    with torch.no_grad():
        mix.gamma.fill_(1.1)
        if not use_top_only:
            mix.weights.copy_(torch.tensor([0.1, 0.3, 0.5]))
    result = weight_layers("input", ops, **settings)
    layers, mask = ops["lm_embeddings"].double().numpy(), ops["mask"].numpy()
    if do_layer_norm and not use_top_only:
        inside = [layers[:, k][mask] for k in range(3)]
        layers = np.stack(
            [(layers[:, k] - x.mean()) / np.sqrt(x.var() + 1e-12) for k, x in enumerate(inside)], axis=1
        )  # fmt: skip
    weights = np.exp([0.1, 0.3, 0.5]) / np.exp([0.1, 0.3, 0.5]).sum() if not use_top_only else [0, 0, 1]
    expected = 1.1 * np.einsum("l,bltd->btd", weights, layers) * mask[:, :, None]
    np.testing.assert_allclose(result["weighted_op"].detach(), expected, rtol=0, atol=1e-5)
    penalty = (l2_coef or 0) * (0.01 + 0.09 + 0.25) if not use_top_only else 0
    assert result["regularization_op"].item() == pytest.approx(penalty, abs=1e-7)
    result["weighted_op"].sum().backward()
    assert all(p.grad is not None for p in bilm.mixes.parameters())
    assert len(list(bilm.mixes.parameters())) == (1 if use_top_only else 2)
    assert not any(p.requires_grad for p in bilm.bilm.parameters())


# ---- what is refused ----


def test_wrong_inputs_are_refused(tmp_path):
    bilm, batcher = make(max_batch_size=2), Batcher(None, 50)
    with pytest.raises(TypeError, match="is the string 'a b'"):
        batcher.batch_sentences(["a b"])
    with pytest.raises(DataError, match="max_batch_size is 2"):
        bilm(batcher.batch_sentences([["a"]] * 3))
    with pytest.raises(DataError, match="expected 3 axes"):
        bilm(np.ones((1, 3), dtype=np.int64))
    with pytest.raises(DataError, match="the model reads 50"):
        bilm(Batcher(None, 20).batch_sentences(CONTEXT))
    with pytest.raises(ConfigError, match="needs an embedding_weight_file"):
        make(use_character_inputs=False)
    with pytest.raises(WeightsError, match="no 'embedding'"):
        make(use_character_inputs=False, embedding_weight_file=WEIGHT_FILE)
    (tmp_path / "cut.hdf5").write_bytes(WEIGHT_FILE.read_bytes()[:1000])
    with pytest.raises(WeightsError, match=r"cut\.hdf5"):
        make(use_character_inputs=False, embedding_weight_file=tmp_path / "cut.hdf5")
    ops = bilm(batcher.batch_sentences(CONTEXT))
    weight_layers("input", ops, l2_coef=0.1)
    with pytest.raises(ConfigError, match="other settings"):
        weight_layers("input", ops, l2_coef=0.2)


def test_an_unknown_word_is_not_padding(tmp_path):
    vocab_file = write_vocabulary(tmp_path / "vocab.txt")
    with pytest.raises(DataError, match="neither 'unheard-of' nor <UNK>"):
        TokenBatcher(vocab_file).batch_sentences([["unheard-of"]])
    (tmp_path / "short.txt").write_text("the\n<S>\n")
    with pytest.raises(DataError, match="</S> missing"):
        TokenBatcher(tmp_path / "short.txt")
    vocab_file.write_text("</S>\n<S>\n<UNK>\nthe\n")
    assert TokenBatcher(vocab_file).batch_sentences([["the", "unheard-of"], []]).tolist() == [
        [2, 4, 3, 1],
        [2, 1, 0, 0],
    ]


def test_token_ids_of_another_vocabulary_are_refused(tmp_path):
    vocab_file, embedding_file = write_vocabulary(tmp_path / "vocab.txt"), tmp_path / "tokens.hdf5"
    dump_token_embeddings(vocab_file, OPTIONS_FILE, WEIGHT_FILE, embedding_file)
    bilm = make(use_character_inputs=False, embedding_weight_file=embedding_file)
    with pytest.raises(DataError, match="Use the vocabulary"):
        bilm(np.full((1, 3), 1000))
