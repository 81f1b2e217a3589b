"""The view "concat": all layers of a token at unit length, side by side, in vectors, files, searches and similarity."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from golden import FIXTURES, golden_embedder
from in_process_cli import run_in_process

from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import choose_layers

SENTENCES = ["The cat sat .", "It rained all day in the city .", ""]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return golden_embedder("allennlp")


def joined(layers: np.ndarray) -> np.ndarray:
    """(L, n, D) to (n, L * D), each layer of a token at unit length, written out."""
    return np.concatenate([layer / np.linalg.norm(layer, axis=-1, keepdims=True) for layer in layers], axis=-1)


def test_vectors_are_the_layers_at_unit_length_side_by_side(embedder: Embedder) -> None:
    expected = joined(embedder.layers(SENTENCES[0]))
    np.testing.assert_allclose(embedder.embed(SENTENCES[0], layers="concat"), expected, atol=1e-6)
    tensor = embedder.embed(SENTENCES[0], layers="concat", output="torch")
    np.testing.assert_allclose(tensor.numpy(), expected, atol=1e-6)
    shapes = [vectors.shape for vectors in embedder.embed(SENTENCES, layers="concat")]
    assert shapes == [(n, embedder.num_layers * embedder.dim) for n in (4, 8, 0)]


def test_cosine_is_the_mean_of_the_cosines_of_the_layers(embedder: Embedder) -> None:
    one, other = (embedder.layers(sentence) for sentence in SENTENCES[:2])
    cosines = [a[1] @ b[1] / np.linalg.norm(a[1]) / np.linalg.norm(b[1]) for a, b in zip(one, other, strict=True)]
    x, y = (embedder.embed(sentence, layers="concat")[1] for sentence in SENTENCES[:2])
    assert x @ y / np.linalg.norm(x) / np.linalg.norm(y) == pytest.approx(np.mean(cosines), abs=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_layers_of_a_sentence_are_pooled_before_they_are_joined(embedder: Embedder, pooling: str) -> None:
    vectors = embedder.encode(SENTENCES, layers="concat", pooling=pooling)
    assert vectors.shape == (3, embedder.num_layers * embedder.dim)
    for row, sentence in zip(vectors, SENTENCES[:2], strict=False):
        layers = embedder.layers(sentence)  # (L, n, D)
        pooled = layers.mean(1, keepdims=True) if pooling == "mean" else layers.max(1, keepdims=True)
        np.testing.assert_allclose(row, joined(pooled)[0], atol=1e-6)
    assert not vectors[2].any()
    assert embedder.encode("One. Two.", layers="concat", split=True).shape == vectors[0].shape


def test_zero_vectors_stay_zero() -> None:
    choice = choose_layers("concat", 3)
    assert not choice.unstack(torch.zeros(3, 2, 4)).any()
    assert choice.shape(4) == (12,)


@pytest.mark.parametrize("pool", ["", "mean"])
def test_files_hold_what_python_returns(embedder: Embedder, tmp_path: Path, capsys, pool: str) -> None:
    (tmp_path / "in.txt").write_text("\n".join(SENTENCES[:2]) + "\n")
    files = [str(FIXTURES / "allennlp" / name) for name in ("options.json", "lm_weights.hdf5")]
    words = ["--layers", "concat", "--model", files[0], "--weights", files[1], "--tokenizer", "whitespace"]
    out = tmp_path / "out.npz"
    done = run_in_process(
        capsys, "embed", str(tmp_path / "in.txt"), str(out), *words, *(["--pool", pool] if pool else [])
    )
    assert done.returncode == 0, done.stderr
    with np.load(out) as arrays:
        values = np.concatenate([arrays[name] for name in arrays.files if arrays[name].dtype.kind == "f"])
    tokens = [sentence.split() for sentence in SENTENCES[:2]]
    if pool:
        expected = embedder.encode(tokens, layers="concat")
    else:
        expected = np.concatenate(embedder.embed(tokens, layers="concat"))
    np.testing.assert_allclose(values, expected, atol=1e-5)


def test_search_takes_it_streamed_and_indexed(embedder: Embedder, tmp_path: Path) -> None:
    streamed = embedder.similar("My cat slept .", "cat", SENTENCES, layers="concat", k=3)
    indexed = embedder.similar("My cat slept .", "cat", SENTENCES, layers="concat", k=3, index=tmp_path)
    assert [(n.line, n.position) for n in streamed.nearest] == [(n.line, n.position) for n in indexed.nearest]
    np.testing.assert_allclose(
        [n.score for n in streamed.nearest], [n.score for n in indexed.nearest], atol=2e-3
    )  # float16


def test_similarity_compares_texts_by_the_layers_that_are_asked_for(embedder: Embedder) -> None:
    one, other = SENTENCES[:2], SENTENCES[1:]
    for layers in ("concat", "top"):
        x, y = (embedder.encode(texts, layers=layers) for texts in (one, other))
        expected = embedder.similarity(x, y)
        np.testing.assert_allclose(embedder.similarity(one, other, layers=layers), expected, atol=1e-6)
        pairs = embedder.similarity_pairwise(one, other, layers=layers)
        np.testing.assert_allclose(pairs, expected.diagonal(), atol=1e-6)
