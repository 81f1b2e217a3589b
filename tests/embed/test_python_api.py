"""What an embedder offers to Python besides vectors: scores, similarity, devices, other inputs, and precise types."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden import golden_embedder
from models_with_head import tiny_with_head

import elmo
from elmo.embed.embedder import Embedder
from elmo.embed.lm import LanguageModel
from elmo.errors import ConfigError, DataError
from elmo.text.tokenize import Token
from elmo.weights.store import save_store


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return golden_embedder("allennlp")


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_store(folder, tiny_with_head())
    return elmo.load(folder, device="cpu")


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> elmo.ElmoEmbedding:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_store(folder, tiny_with_head())
    return elmo.ElmoEmbedding(folder)


def test_an_embedder_scores_like_its_language_model(scorer: Embedder) -> None:
    lm = LanguageModel(scorer)
    (expected,) = lm.scores("the bank of the river")
    np.testing.assert_array_equal(scorer.score("the bank of the river").forward, expected.forward)
    assert [s.tokens for s in scorer.score(["the bank", ["of", "the"], ""])] == [["the", "bank"], ["of", "the"], []]
    assert scorer.perplexity(["the bank", "of"]) == lm.perplexity(["the bank", "of"])
    at_each = scorer.substitutes(["the", "bank"], k=3)
    assert [len(words) for words in at_each] == [3, 3]
    assert scorer.substitutes("the bank", 1, k=3) == at_each[1] == scorer.substitutes("the bank", "bank", k=3)
    with pytest.raises(DataError, match="'river' is not among the sentence's tokens: the bank"):
        scorer.substitutes("the bank", "river")
    with pytest.raises(DataError, match="has no words"):
        scorer.substitutes("", 0)
    with pytest.raises(ConfigError, match="k is 0"):
        scorer.substitutes("the bank", k=0)
    with pytest.raises(TypeError, match="model is a NoneType"):
        elmo.load(None)  # type: ignore[arg-type]


def test_similarity_is_the_cosine_of_encoded_texts(embedder: Embedder) -> None:
    a, b = ["The cat sat .", "It rained ."], ["A dog ran .", "The cat sat .", ""]
    x, y = embedder.encode(a), embedder.encode(b)
    expected = [[float(u @ v) / max(float(np.linalg.norm(u) * np.linalg.norm(v)), 1e-9) for v in y] for u in x]
    for result in (embedder.similarity(a, b), embedder.similarity(x, y), embedder.similarity(torch.from_numpy(x), b)):
        assert isinstance(result, torch.Tensor)  # as in sentence-transformers
        np.testing.assert_allclose(result.numpy(), expected, atol=1e-6)
    assert result[0, 1] == pytest.approx(1, abs=1e-6)
    assert embedder.similarity("The cat sat .", a).shape == (1, 2)
    pairs = embedder.similarity_pairwise(a, b[:2])
    np.testing.assert_allclose(pairs.numpy(), [expected[0][0], expected[1][1]], atol=1e-6)


def test_similarity_takes_vectors_in_any_container(embedder: Embedder) -> None:
    """A read-only array is what a pandas table gives; a column of vectors is a list of arrays."""
    vectors = embedder.encode(["The cat sat .", "It rained .", "A dog ran ."])
    read_only, reversed_rows = vectors.copy(), vectors[::-1].copy()[::-1]
    read_only.flags.writeable = False
    expected = embedder.similarity(vectors, vectors)
    as_tensors = [torch.from_numpy(vector) for vector in vectors]
    for given in (read_only, reversed_rows, list(vectors), vectors.tolist(), as_tensors, tuple(vectors)):
        torch.testing.assert_close(embedder.similarity(given, vectors), expected, check_dtype=False)
    torch.testing.assert_close(embedder.similarity(vectors[0].tolist(), vectors), expected[:1], check_dtype=False)


def test_similarity_of_vectors_that_do_not_match_is_refused(embedder: Embedder) -> None:
    with pytest.raises(ConfigError, match="2 and 1 vectors"):
        embedder.similarity_pairwise(["a", "b"], ["c"])
    with pytest.raises(ConfigError, match="widths 32 and 3"):
        embedder.similarity(["a"], np.zeros((1, 3), dtype=np.float32))


def test_an_embedder_moves_to_a_device_with_its_state() -> None:
    embedder, expected = (golden_embedder("allennlp", state="carry") for _ in range(2))
    for one in (embedder, expected):
        one.embed(["The cat sat .", "It rained ."])
    assert embedder.to("cpu") is embedder
    np.testing.assert_array_equal(embedder.embed("It slept ."), expected.embed("It slept ."))
    with pytest.raises(ConfigError, match="device is 'nowhere'"):
        embedder.to("nowhere")
    assert embedder.embed("It slept .").shape == (3, 32)


def test_split_sentences_is_public() -> None:
    text = "One sentence. Another one!"
    assert [text[start:end] for start, end in elmo.split_sentences(text)] == ["One sentence.", "Another one!"]


@dataclass
class SpacyToken:
    text: str
    idx: int

    @property
    def is_space(self) -> bool:
        return self.text.isspace()


class SpacyDoc:
    """The attributes of a spaCy Doc that are read."""

    vocab = object()

    def __init__(self, text: str, pieces: list[str]) -> None:
        self.text, self.tokens, start = text, [], 0
        for piece in pieces:
            start = text.index(piece, start)
            self.tokens.append(SpacyToken(piece, start))
            start += len(piece)

    def __iter__(self) -> Any:
        return iter(self.tokens)


DOC = SpacyDoc("Don't  go", ["Do", "n't", " ", "go"])


def test_a_spacy_doc_is_a_tokenised_sentence(embedder: Embedder) -> None:
    expected = embedder.embed([["Do", "n't", "go"]])[0]
    np.testing.assert_array_equal(embedder.embed(DOC), expected)
    assert [v.shape for v in embedder.embed([DOC, "It rained.", ["a"]])] == [(3, 32), (3, 32), (1, 32)]


def test_a_doc_of_spacy_itself_is_a_tokenised_sentence(embedder: Embedder) -> None:
    spacy = pytest.importorskip("spacy")
    nlp = spacy.blank("en")
    np.testing.assert_array_equal(embedder.embed(nlp("Don't go")), embedder.embed([["Do", "n't", "go"]])[0])
    assert elmo.load("tiny-random", tokenizer=nlp, device="cpu").embed("Don't go").shape[0] == 3


@pytest.mark.parametrize(
    "tokenizer",
    [str.split, lambda text: [Token("Do", 0, 2), Token("n't", 2, 5), Token("go", 7, 9)], lambda text: DOC],
    ids=["strings", "Tokens", "Doc"],
)
def test_a_function_is_a_tokenizer(tokenizer: Any) -> None:
    embedder = elmo.load("tiny-random", tokenizer=tokenizer, device="cpu")
    tokens = embedder.tokenize("Don't  go")
    assert all("Don't  go"[token.start : token.end] == token.text for token in tokens)
    assert embedder.embed("Don't  go").shape[0] == len(tokens) == (2 if tokenizer is str.split else 3)
    assert embedder.tokenizer_name.startswith("<")


@pytest.mark.parametrize("tokenizer", [lambda text: text.lower().split(), lambda text: [1, 2]])
def test_a_tokenizer_function_that_changes_the_text_is_refused(tokenizer: Any) -> None:
    embedder = elmo.load("tiny-random", tokenizer=tokenizer, device="cpu")
    with pytest.raises(DataError, match="tokens"):
        embedder.embed("The cat")


def test_missing_values_are_an_error_that_names_their_positions(embedder: Embedder) -> None:
    texts = ["One .", None, "Two .", float("nan")]
    with pytest.raises(TypeError, match=r'2 of 4 items, at positions 1, 3\. missing="empty"'):
        embedder.encode(texts)
    assert [len(v) for v in embedder.embed(texts, missing="empty")] == [2, 0, 2, 0]
    assert not embedder.encode(np.array(texts, dtype=object), missing="empty")[1].any()
    with pytest.raises(ConfigError, match="missing='skip'"):
        embedder.embed(texts, missing="skip")


@pytest.mark.parametrize(
    ("texts", "num_warnings"),
    [(["The", "cat", "sat"], 1), (["The"], 0), (["The", "cat sat"], 0), ([["The"], ["cat"]], 0), ("The cat", 0)],
)
def test_words_that_are_read_as_sentences_give_one_warning(
    embedder: Embedder,
    scorer: Embedder,
    module: elmo.ElmoEmbedding,
    texts: Any,
    num_warnings: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for read in (embedder.embed, scorer.score, scorer.perplexity, module):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            read(texts)
        assert len(caplog.records) == num_warnings


def test_sentences_that_substitutes_reads_as_tokens_give_a_warning(
    scorer: Embedder, caplog: pytest.LogCaptureFixture
) -> None:
    for text in ("the bank", ["the", "bank"], ["1\u00a0000", " "]):  # French treebanks have the third
        scorer.substitutes(text)
    assert not caplog.records
    scorer.substitutes(["They sat.", "He ran."])
    (record,) = caplog.records
    assert "'They sat.', which contains a space, is read as one token" in record.message


def test_accents_as_separate_characters_give_one_warning(
    embedder: Embedder, scorer: Embedder, caplog: pytest.LogCaptureFixture
) -> None:
    embedder.embed(["Un café fermé .", "\u0958लम ."])  # NFC makes the letter of the last sentence longer
    assert not caplog.records
    decomposed = unicodedata.normalize("NFD", "Un café fermé .")
    for embed in (embedder.embed, embedder.encode, scorer.score, scorer.perplexity):
        caplog.clear()
        embed(["One .", decomposed])
        (record,) = caplog.records
        assert "Unicode form NFD" in record.message


@pytest.mark.parametrize(
    ("texts", "options", "num_warnings"),
    [
        ("It rained . " * 200, {}, 1),
        (["It rained .", "It rained . " * 200, "It rained . " * 300], {}, 1),
        ("It rained . " * 200, {"split": True}, 0),
        ([["It", "rained", "."] * 200], {}, 0),
        ("It rained . " * 20, {}, 0),
    ],
)
def test_a_document_that_is_read_as_one_sentence_gives_one_warning(
    embedder: Embedder, texts: Any, options: Any, num_warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        embedder.encode(texts, **options)
    assert len(caplog.records) == num_warnings
    if not options:
        embedder.embed(texts)
        assert len(caplog.records) == 2 * num_warnings


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_the_name_of_a_command_leads_to_its_function(verb: str) -> None:
    code = f"import elmo; elmo.{verb}('text.txt')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    function = re.search(r"elmo\.(\w+) in Python", done.stderr)
    assert function, done.stderr
    assert callable(getattr(elmo, function[1]))


@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize("layers", ["average", "all"])
def test_encode_splits_documents_into_sentences(embedder: Embedder, pooling: str, layers: str) -> None:
    documents = ["The cat sat. It rained on Monday!", "", "One."]
    options: Any = {"pooling": pooling, "layers": layers}
    vectors = embedder.encode(documents, split=True, **options)
    sentences = embedder.encode(["The cat sat.", "It rained on Monday!"], **options)
    expected = sentences.mean(axis=0) if pooling == "mean" else sentences.max(axis=0)
    np.testing.assert_allclose(vectors[0], expected, atol=1e-6)
    assert not vectors[1].any()
    np.testing.assert_allclose(vectors[2], embedder.encode("One.", **options), atol=1e-6)
    assert embedder.encode(documents[0], split=True, **options).shape == vectors.shape[1:]
    assert embedder.encode([], split=True, **options).shape == (0, *vectors.shape[1:])
    with pytest.raises(ConfigError, match=r"texts\[0\] is already tokenised"):
        embedder.encode([["The", "cat"]], split=True)


SNIPPET = """
import elmo
embedder = elmo.load()
reveal_type(embedder.embed("One ."))
reveal_type(embedder.embed(["One .", ["Two"]]))
reveal_type(embedder.embed("One .", output="torch"))
reveal_type(embedder.embed(["One ."], output="torch", layers="top"))
reveal_type(embedder.layers("One ."))
reveal_type(embedder.layers(["One ."], batch_size=3))
reveal_type(embedder.encode("One ."))
reveal_type(embedder.encode(["One ."], split=True))
reveal_type(embedder.encode(["One ."], convert_to_tensor=True))
reveal_type(embedder.score("One ."))
reveal_type(embedder.score(["One ."]))
reveal_type(embedder.substitutes("One .", 0))
reveal_type(embedder.substitutes("One ."))
reveal_type(embedder.similar("One .", 0, ["Two ."]))
reveal_type(embedder.similar("One .", "One", "corpus.txt").nearest)
reveal_type(elmo.train_bilm("text.txt", out="run"))
"""
ARRAY, TENSOR = "numpy.ndarray", "torch._tensor.Tensor"
REVEALED = [
    ARRAY, f"list[{ARRAY}", TENSOR, f"list[{TENSOR}", ARRAY, f"list[{ARRAY}", ARRAY, ARRAY, TENSOR,
    "elmo.embed.lm.Scores", "list[elmo.embed.lm.Scores", "list[elmo.embed.lm.Substitute", "list[list[",
    "elmo.embed.neighbors.SearchResult", "list[elmo.embed.neighbors.Neighbor",
    "elmo.pretrain.bilm_training.TrainingResult",
]  # fmt: skip


@pytest.mark.slow
def test_mypy_knows_the_type_of_each_call(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "snippet.py").write_text(SNIPPET)
    root = Path(elmo.__file__).parent.parent
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(root / "pyproject.toml"),
        str(tmp_path / "snippet.py"),
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    types = [
        line.split('Revealed type is "')[1].replace("builtins.", "")
        for line in done.stdout.splitlines()
        if "Revealed" in line
    ]
    assert done.returncode == 0, done.stdout
    assert len(types) == len(REVEALED)
    for revealed, expected in zip(types, REVEALED, strict=True):
        assert revealed.startswith(expected)
