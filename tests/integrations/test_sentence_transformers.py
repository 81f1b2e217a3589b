"""ElmoModule in sentence-transformers itself: it encodes as the embedder does, trains, saves and loads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

import elmo
from elmo.errors import ConfigError, WeightsError
from elmo.integrations.sentence_transformers import ElmoModule
from elmo.weights.lookup import tiny_random

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["The cat sat on the mat.", "", "One", "Ünïcödé 漢字 🙂 " + "a" * 300, "It rained, she said; nobody asked why."]


def make_model(pooling: str = "mean", **options: Any) -> SentenceTransformer:
    module = ElmoModule("tiny-random", **options)
    pool = Pooling(module.get_embedding_dimension(), pooling_mode=pooling)
    return SentenceTransformer(modules=[module, pool], device="cpu")


@pytest.fixture(scope="module")
def embedder() -> elmo.Embedder:
    return elmo.load("tiny-random", device="cpu")


@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_encode_gives_the_vectors_of_the_embedder(embedder: elmo.Embedder, batch_size: int) -> None:
    result = make_model().encode(TEXTS, batch_size=batch_size)
    np.testing.assert_allclose(result, embedder.encode(TEXTS), atol=1e-5)


def test_token_vectors_maximum_and_the_top_layer_are_those_of_the_embedder(embedder: elmo.Embedder) -> None:
    filled = [text for text in TEXTS if text]
    model = make_model("max", top_only=True)
    expected = embedder.encode(filled, layers="top", pooling="max")
    np.testing.assert_allclose(model.encode(filled), expected, atol=1e-5)
    tokens = model.encode(filled, output_value="token_embeddings")
    for vectors, wanted in zip(tokens, embedder.embed(filled, layers="top"), strict=True):
        np.testing.assert_allclose(vectors[: len(wanted)].numpy(), wanted, atol=1e-5)


def test_prompts_and_the_longest_length_are_applied(embedder: elmo.Embedder) -> None:
    model = make_model(max_seq_length=3)
    assert model.max_seq_length == 3
    expected = embedder.encode([["The", "cat", "sat"]])
    np.testing.assert_allclose(model.encode(["cat sat down"], prompt="The "), expected, atol=1e-5)


@pytest.mark.parametrize("length", [0, -1, 2.5, True])
def test_a_longest_length_that_would_drop_tokens_is_refused(length: Any) -> None:
    with pytest.raises(ConfigError, match=f"max_seq_length is {length}"):
        make_model(max_seq_length=length)


def test_training_does_not_change_the_parts_of_a_model_that_is_already_read() -> None:
    parts = tiny_random()
    before = {name: tensor.clone() for name, tensor in parts.tensors.items()}
    module = ElmoModule(parts, requires_grad=True)
    with torch.no_grad():
        for parameter in module.bilm.parameters():
            parameter.zero_()
    assert all(torch.equal(parts.tensors[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("requires_grad", [False, True])
def test_the_trainer_trains_the_mix_and_if_asked_the_bilm(tmp_path: Path, requires_grad: bool) -> None:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = make_model(requires_grad=requires_grad)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pairs = Dataset.from_dict({"anchor": ["The cat", "A river", "Money"], "positive": ["A dog", "The lake", "A loan"]})
    settings = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path), max_steps=3, learning_rate=0.01, report_to="none", use_cpu=True, save_strategy="no"
    )
    loss = MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model=model, args=settings, train_dataset=pairs, loss=loss).train()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert "0.mix.weights" in changed
    assert any(name.startswith("0.bilm") for name in changed) == requires_grad


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_trained_model_is_saved_and_loaded(tmp_path: Path, requires_grad: bool) -> None:
    model = make_model(requires_grad=requires_grad, layer_norm="token", dropout=0.25, max_seq_length=9)
    with torch.no_grad():
        model[0].mix.weights.copy_(torch.tensor([0.3, -1.0, 2.0]))
        model[0].mix.gamma.fill_(1.5)
        if requires_grad:
            next(model[0].bilm.stacks.parameters()).mul_(1.1)
    expected = model.encode(TEXTS)
    for _ in range(2):  # the second time, over the first
        model.save(str(tmp_path / "model"))
    loaded = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    np.testing.assert_array_equal(loaded.encode(TEXTS), expected)
    assert loaded[0].mix.dropout == 0.25
    assert next(loaded[0].bilm.parameters()).requires_grad == requires_grad
    biLM = elmo.load(tmp_path / "model" / "0_ElmoModule" / "bilm", device="cpu")
    assert biLM.dim == model[0].get_embedding_dimension()


def test_what_cannot_be_saved_or_loaded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tokenizer is a function"):
        ElmoModule("tiny-random", tokenizer=str.split).save(str(tmp_path))
    with pytest.raises(WeightsError, match=r"elmo_module\.json"):
        ElmoModule.load(str(tmp_path))


def test_the_example_trains_the_mix_and_loads_the_same_model() -> None:
    command = [sys.executable, ROOT / "examples" / "sentence_transformers_module.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"vectors \(4, \d+\), difference after loading (\S+)", done.stdout)
    assert found, done.stdout
    assert float(found[1]) == 0
    weights = re.search(r"weight of each layer after: +\[(.*)\]", done.stdout)
    assert weights, done.stdout
    numbers = [float(number) for number in weights[1].split(",")]
    assert sum(numbers) == pytest.approx(1, abs=0.01)
    assert max(numbers) - min(numbers) > 0.05, "the mean of the layers is where training begins"


def test_the_guide_runs_as_shown() -> None:
    guide = (ROOT / "docs" / "guides" / "scikit-learn.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^(<!-- not run: needs two GPUs -->\n)?```python\n(.*?)^```$", guide, re.M | re.S)
    assert len(blocks) >= 5
    names: dict[str, Any] = {}
    for is_skipped, code in blocks:
        if not is_skipped:
            exec(compile(code, "guide", "exec"), names)
