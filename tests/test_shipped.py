"""The shipped models in elmo/models: their size, loading time, vectors, scores and model cards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process_cli import run_in_process

import elmo
from elmo.embed.lm import LanguageModel
from elmo.weights.catalogue import OWN_MODELS
from elmo.weights.formats import read_model
from elmo.weights.model_folders import SHIPPED_FOLDER, shipped_model
from elmo.weights.store import read_store

ROOT = Path(__file__).resolve().parent.parent
SENTENCE = "The bank of the river was steep ."
SMALL_AND_LARGE = ("english-small", "english")
ENGLISH = ("--hardware", "one H200", "--recipe")
CARDS = {  # script, run, options, file in docs/
    "english": (
        "model_card.py",
        "english_second",
        (*ENGLISH, "runs/english_second/recipe.toml", "--minutes", "21"),
        "model_card.md",
    ),
    "english-small": (
        "model_card.py",
        "english_small",
        (*ENGLISH, "runs/english_small/recipe.toml", "--minutes", "18.9", "--compare", "runs/english_second/records"),
        "model_card_english_small.md",
    ),
    "many": ("languages_card.py", "many_cpu", (), "model_card_many.md"),
}
pytestmark = pytest.mark.skipif(shipped_model() is None, reason="elmo/models contains no model")


@pytest.fixture(scope="module")
def embedder() -> elmo.Embedder:
    return elmo.load(device="cpu")


def test_the_package_is_small_enough_for_a_wheel():
    files = [path for path in SHIPPED_FOLDER.parent.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    # a wheel of 95 MB: compression saves 9% of the files; `run.py wheel` measures the wheel itself
    assert sum(path.stat().st_size for path in files) <= 104_000_000


def test_default_is_a_trained_model_of_the_documented_size(embedder):
    assert embedder.trained
    assert embedder.dim == OWN_MODELS["english"].dim >= 512
    assert len(embedder.vocab) >= 100_000
    assert embedder.embed(SENTENCE).shape == (8, embedder.dim)


def test_vectors_of_a_word_depend_on_its_context(embedder):
    a, b = (v[1] for v in embedder.embed([SENTENCE, "The bank lent them the money ."], layers="top"))
    cosine = float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert -1 < cosine < 0.98


def test_a_sentence_is_more_likely_than_its_words_reversed(embedder):
    lm = LanguageModel(embedder)
    forwards, reversed_ = lm.scores([SENTENCE.split(), SENTENCE.split()[::-1]])
    assert forwards.log_prob > reversed_.log_prob + 5
    assert len(lm.substitutes(SENTENCE.split(), 1, k=5)[0]) == 5


def test_a_function_word_is_not_the_best_substitute_of_a_noun(embedder):
    tokens = ["The", "bank", "raised", "its", "interest", "rates", "."]
    (substitutes,) = LanguageModel(embedder).substitutes(tokens, 1, k=5)
    assert substitutes[0].word == "ECB"
    assert not {"and", '"', ",", "of"} & {s.word for s in substitutes}


@pytest.fixture(scope="module")
def small() -> elmo.Embedder:
    return elmo.load("english-small", device="cpu")


def test_english_small_has_the_vocabulary_of_english_and_an_eighth_of_its_size(embedder, small):
    sizes = [sum(path.stat().st_size for path in (SHIPPED_FOLDER / name).iterdir()) for name in SMALL_AND_LARGE]
    assert 7 * sizes[0] < sizes[1]
    assert small.trained
    assert small.vocab.words == embedder.vocab.words
    assert small.dim == OWN_MODELS["english-small"].dim
    assert small.layers(SENTENCE).shape == (3, 8, small.dim)


def test_english_small_prefers_a_sentence_to_its_words_reversed_and_knows_substitutes(small):
    lm = LanguageModel(small)
    forwards, reversed_ = lm.scores([SENTENCE.split(), SENTENCE.split()[::-1]])
    assert forwards.log_prob > reversed_.log_prob + 5
    (substitutes,) = lm.substitutes(["They", "sat", "on", "the", "bank", "of", "the", "river", "."], 4, k=5)
    assert {"edge", "side", "banks"} <= {s.word for s in substitutes}


@pytest.mark.parametrize("name", ["english", "english-small"])
def test_the_model_card_is_complete(name):
    card = (SHIPPED_FOLDER / name / "README.md").read_text(encoding="utf-8")
    for title in ("Text", "What was filtered", "Training", "Held-out perplexity", "Probes", "Biases and limits"):
        assert f"## {title}" in card
    assert "not measured" not in card


@pytest.mark.parametrize("name", CARDS)
def test_the_card_is_what_its_script_writes_from_the_records(name, tmp_path):
    script, run, options, card = CARDS[name]
    folder = f"runs/{run}"
    command = [
        sys.executable,
        f"runs/{script}",
        folder,
        "--model",
        f"elmo/models/{name}",
        "--records",
        f"{folder}/records",
    ]
    done = subprocess.run(
        [*command, *options, "--out", tmp_path / "card.md"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "card.md").read_text(encoding="utf-8").replace(str(tmp_path / "card.md"), f"docs/{card}")
    assert (ROOT / "docs" / card).read_text(encoding="utf-8") == written, " ".join(command)
    assert (SHIPPED_FOLDER / name / "README.md").read_text(encoding="utf-8") == written


@pytest.fixture(scope="module")
def many() -> elmo.Embedder:
    return elmo.load("many", device="cpu")


def test_many_is_small_and_of_the_documented_size(many):
    assert sum(path.stat().st_size for path in (SHIPPED_FOLDER / "many").iterdir()) <= 25_000_000
    assert many.trained
    assert (many.dim, many.tokenizer_name) == (OWN_MODELS["many"].dim, "unicode")


def test_many_reads_several_languages_in_one_list(many):
    texts = ["Wir saßen auf der Bank.", "L'avocat a mangé un avocat.", "नदी में नावें हैं।"]
    assert [vectors.shape for vectors in many.embed(texts)] == [(6, 256), (7, 256), (5, 256)]
    alone = [many.embed(text) for text in texts]
    for one, together in zip(alone, many.embed(texts), strict=True):
        np.testing.assert_allclose(one, together, atol=1e-5)


@pytest.mark.parametrize(
    "sentence",
    [
        "Der alte Mann saß auf der Bank und las die Zeitung .",
        "Le vieil homme lisait le journal dans son jardin .",
        "El hombre leía el periódico en su casa .",
        "Старик сидел на скамейке и читал газету .",
        "Bu sabah çocuklar okula gitti .",
        "यह एक पुराना घर है ।",
        "كان الرجل في البيت .",
        "The old man was reading the paper in his garden .",
    ],
)
def test_many_prefers_a_sentence_to_its_words_reversed(many, sentence):
    forwards, reversed_ = LanguageModel(many).scores([sentence.split(), sentence.split()[::-1]])
    assert forwards.log_prob > reversed_.log_prob + 3


def test_the_card_of_many_has_every_language():
    card = (SHIPPED_FOLDER / "many" / "README.md").read_text(encoding="utf-8")
    for code in OWN_MODELS["many"].languages:
        assert f"\n| {code} |" in card
    for title in ("Languages", "Parts of speech", "Word senses", "Training", "Biases and limits", "Text and licences"):
        assert f"## {title}" in card


@pytest.mark.slow
def test_export_to_the_published_layout_and_back_is_identity(capsys, tmp_path):
    done = run_in_process(capsys, "convert", "default", "--out", str(tmp_path / "pair"), "--to", "hdf5")
    assert done.returncode == 0, done.stderr
    ours, published = read_store(shipped_model()), read_model(tmp_path / "pair")
    assert published.vocab == ours.vocab
    assert published.config == ours.config
    assert all(torch.equal(published.tensors[name], tensor) for name, tensor in ours.tensors.items())


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="POSIX accounting")
def test_loading_and_the_first_sentence_take_under_three_seconds():
    import resource

    def processor_seconds() -> float:  # of child processes only, because other work on this machine must not count
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    code = f"import elmo; elmo.load(device='cpu').embed({SENTENCE!r})"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times = []
    for _ in range(4):  # the first run may compile kernels
        start = processor_seconds()
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)
        times.append(processor_seconds() - start)
    assert min(times[1:]) < 3.0, times
