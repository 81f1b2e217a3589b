"""Properties of model files: what is written is read back equal, and no array of a file is ignored."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import h5py
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from peer_models import (
    WORDS,
    allennlp_state,
    random_manylangs,
    random_model,
    write_archive,
    write_manylangs,
)
from published_models import options_of
from safetensors.torch import load_file, save_file
from scale import scaled
from tf_files import write_checkpoint

import elmo
from elmo.errors import ConfigError, WeightsError
from elmo.files import sha256_file
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, CharConfig, HeadConfig, LSTMConfig, WordConfig
from elmo.weights.formats import read_model
from elmo.weights.model_parts import Lexicon, ModelParts, build
from elmo.weights.published import write_published
from elmo.weights.store import save_store
from elmo.weights.tf_checkpoint import is_bilm_variable, published_names, read_tf_arrays

VOCAB = ("<S>", "</S>", "<UNK>", "a", "bb", "ccc")
TOKENS = [["a", "ccc", "bb", "a-unknown"], ["bb"]]
sizes = st.sampled_from([1, 2, 3])  # few values, so that sizes coincide often


@st.composite
def configs(draw: st.DrawFn) -> BiLMConfig:
    """Random shapes; projections between equal sizes are drawn too."""
    chars = CharConfig(
        char_dim=draw(sizes),
        max_chars=draw(st.sampled_from([6, 50])),
        filters=tuple(draw(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=2))),
        activation=draw(st.sampled_from(["relu", "tanh"])),
        num_highways=draw(st.integers(0, 2)),
    )
    lstm = LSTMConfig(
        num_layers=draw(st.integers(1, 3)),
        cell_dim=draw(sizes),
        proj_dim=draw(sizes),
        project=draw(st.sampled_from([None, True])),
        cell_clip=draw(st.sampled_from([None, 0.5, 3.0])),
        proj_clip=draw(st.sampled_from([None, 0.5, 3.0])),
        skip=draw(st.booleans()),
        forget_bias=draw(st.sampled_from([0.0, 1.0])),
    )
    reads_words = draw(st.booleans())
    head = draw(st.none() | st.just(HeadConfig(vocab_size=len(VOCAB))))
    if head and reads_words and draw(st.booleans()):
        head = HeadConfig(vocab_size=len(VOCAB), tied=True)
    return BiLMConfig(
        chars=None if reads_words else chars,
        words=WordConfig(num_words=len(VOCAB), word_dim=lstm.proj_dim) if reads_words else None,
        lstm=lstm,
        bidirectional=draw(st.booleans()),
        project_tokens=draw(st.sampled_from([None, True])),
        head=head,
    )


def random_parts(config: BiLMConfig, seed: int) -> ModelParts:
    generator = torch.Generator().manual_seed(seed)
    shapes = {name: tensor.shape for name, tensor in BiLM(config).state_dict().items()}
    if config.head and config.head.tied:
        del shapes["head.weight"]
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    vocab = VOCAB if config.words or config.head else None
    return ModelParts(config=config, tensors=tensors, vocab=vocab)


def same_network(a: ModelParts, b: ModelParts, atol: float = 0.0) -> None:
    first, second = build(a), build(b)
    ids = torch.arange(1, 1 + 2 * 4 * first.config.row_width).reshape(2, 4, -1) % len(VOCAB) + 1
    with torch.no_grad():
        torch.testing.assert_close(second(ids).layers, first(ids).layers, atol=atol, rtol=0)
        if first.head is not None:
            hidden, targets = torch.ones(3, first.config.lstm.proj_dim), torch.tensor([0, 1, 2])
            found, expected = second.head.log_probs(hidden, targets), first.head.log_probs(hidden, targets)
            torch.testing.assert_close(found, expected, atol=atol, rtol=0)


def check_round_trips(config: BiLMConfig, seed: int) -> None:
    parts = random_parts(config, seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_store(folder / "ours", parts)
        again = read_model(folder / "ours")
        assert again.config == config
        assert again.tensors.keys() == parts.tensors.keys()
        same_network(parts, again)
        save_store(folder / "int8", parts, storage="int8")
        save_store(folder / "int8_again", read_model(folder / "int8"), storage="int8")
        same_network(read_model(folder / "int8"), read_model(folder / "int8_again"))
        try:
            write_published(folder / "published", parts)
        except ConfigError:
            assert config.words is not None  # the layout has no place for a word table and a projection
            assert config.projects_tokens
        else:
            # the subtraction of the forget bias rounds; its effect may grow from step to step
            same_network(parts, read_model(folder / "published"), atol=0.0 if config.lstm.forget_bias == 1 else 1e-4)


@hypothesis.given(configs(), st.integers(0, 2**32 - 1))
@hypothesis.settings(max_examples=4)
def test_what_is_written_is_read_back_equal(config: BiLMConfig, seed: int) -> None:
    check_round_trips(config, seed)


@pytest.mark.slow("properties")
@pytest.mark.timeout(3600)
def test_what_is_written_is_read_back_equal_for_many_shapes(record_property: Any) -> None:
    num_models = 0

    @hypothesis.given(configs(), st.integers(0, 2**32 - 1))
    @hypothesis.settings(max_examples=scaled(300))
    def check(config: BiLMConfig, seed: int) -> None:
        nonlocal num_models
        num_models += 1
        check_round_trips(config, seed)

    check()
    record_property("models", num_models)


def test_lexicon_is_read_back_equal(tmp_path: Path) -> None:
    source = read_model(write_manylangs(tmp_path / "m", *random_manylangs()))
    save_store(tmp_path / "ours", source)
    assert read_model(tmp_path / "ours").lexicon == source.lexicon
    assert isinstance(source.lexicon, Lexicon)


# ---- perturbation: change one array of a file; the vectors or scores change, or the file is refused ----

SENTENCE = ["the", "cat", *WORDS[-1:]]


def outputs(path: Path) -> list[np.ndarray]:
    """All layers of a sentence, and the scores of the words if there is a softmax."""
    embedder = elmo.load(path, device="cpu", tokenizer="whitespace")
    arrays = [embedder.layers([SENTENCE])[0]]
    head = embedder.model.head
    if head is not None:
        with torch.no_grad():
            hidden = torch.ones(head.vocab_size, embedder.model.config.lstm.proj_dim)
            arrays.append(head.log_probs(hidden, torch.arange(head.vocab_size)).numpy())
    return arrays


def check_perturbed(path: Path, before: list[np.ndarray], what: str) -> None:
    try:
        after = outputs(path)
    except WeightsError:
        return
    assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True)), f"{what} has no effect"


def changed(array: Any) -> Any:
    """Other values of the same size. Constant shifts could cancel, as the bias of a softmax does."""
    noise = np.random.default_rng(7).uniform(0.5, 1.5, tuple(array.shape)).astype(np.float32)
    return array * torch.from_numpy(noise) + 0.1 if isinstance(array, torch.Tensor) else array * noise + 0.1


SHAPES = [{"dim": 12}, {"dim": 4, "filters": [[1, 1], [3, 3]]}, {"dim": 4, "n_layers": 1, "n_highway": 2}]


@pytest.mark.parametrize("choices", SHAPES)
@pytest.mark.parametrize("has_projections", [True, False])
def test_every_dataset_of_an_hdf5_file_has_an_effect(tmp_path: Path, choices: dict, has_projections: bool) -> None:
    import oracle

    options, weights = random_model(**choices, softmax=True)
    if not has_projections and choices["dim"] == 4:
        weights = {name: array for name, array in weights.items() if not name.endswith("W_P_0")}
    oracle.write(tmp_path, options, weights)
    (tmp_path / "vocab.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *(f"w{k}" for k in range(8))]) + "\n")
    path = tmp_path / "weights.hdf5"
    original, before = path.read_bytes(), outputs(tmp_path)
    for name in weights:
        path.write_bytes(original)
        with h5py.File(path, "r+") as file:
            file[name][...] = changed(file[name][()])
        check_perturbed(tmp_path, before, name)


@pytest.mark.parametrize("choices", SHAPES)
def test_every_parameter_of_an_allennlp_archive_has_an_effect(tmp_path: Path, choices: dict) -> None:
    options, weights = random_model(**choices)
    state = allennlp_state(options, weights)
    before = outputs(write_archive(tmp_path / "model.tar.gz", options, state))
    for name, tensor in state.items():
        path = write_archive(tmp_path / "model.tar.gz", options, {**state, name: changed(tensor)})
        check_perturbed(path, before, name)


@pytest.mark.parametrize("choices", SHAPES)
@pytest.mark.parametrize(("words", "chars"), [(True, True), (True, False)])
def test_every_parameter_of_a_manylangs_folder_has_an_effect(
    tmp_path: Path, choices: dict, words: bool, chars: bool
) -> None:
    folder = write_manylangs(tmp_path, *random_manylangs(words=words, chars=chars, **choices))
    before = outputs(folder)
    for file_name in ("token_embedder.pkl", "encoder.pkl"):
        state = torch.load(folder / file_name)
        for name, tensor in state.items():
            torch.save({**state, name: changed(tensor)}, folder / file_name)
            check_perturbed(folder, before, name)
        torch.save(state, folder / file_name)


@pytest.mark.parametrize("variant", ["bilm", "one_layer"])
def test_every_variable_of_a_tensorflow_checkpoint_has_an_effect(tmp_path: Path, variant: str) -> None:
    fixture = Path(__file__).parents[1] / "fixtures" / "tf_checkpoint" / variant
    arrays = {name: array for name, array in read_tf_arrays(fixture).items() if is_bilm_variable(name)}
    arrays = {name: array / 10 for name, array in arrays.items()}  # so that no cell is saturated
    (tmp_path / "options.json").write_text(json.dumps(options_of(published_names(arrays))))
    size = len(arrays["lm/softmax/b"])
    (tmp_path / "vocab.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *(f"w{k}" for k in range(size - 3))]) + "\n")
    write_checkpoint(tmp_path / "model.ckpt-1", arrays)
    before = outputs(tmp_path)
    for name in arrays:
        write_checkpoint(tmp_path / "model.ckpt-1", {**arrays, name: changed(arrays[name])})
        check_perturbed(tmp_path, before, name)


@pytest.mark.parametrize("storage", ["float32", "int8"])
def test_every_tensor_of_our_folder_has_an_effect(tmp_path: Path, storage: str) -> None:
    config = BiLMConfig(
        chars=CharConfig(filters=((1, 2), (2, 2)), char_dim=3, num_highways=1),
        lstm=LSTMConfig(cell_dim=4, proj_dim=4, project=True),
        project_tokens=True,
        head=HeadConfig(vocab_size=len(VOCAB)),
    )
    save_store(tmp_path / "m", random_parts(config, 3), storage=storage)
    before = outputs(tmp_path / "m")
    for file_name in ("model.safetensors", "head.safetensors"):
        for name, tensor in load_file(tmp_path / "m" / file_name).items():
            copy = tmp_path / "copy"
            shutil.copytree(tmp_path / "m", copy)
            tensors = load_file(copy / file_name)
            tensors[name] = tensor.flip(0) + 1 if tensor.dtype == torch.int8 else changed(tensor).to(tensor.dtype)
            save_file(tensors, copy / file_name)
            check_perturbed(copy, before, f"{name}, with its old checksum")
            manifest = json.loads((copy / "manifest.json").read_text())
            file_path = copy / file_name
            manifest["files"][file_name] = {"sha256": sha256_file(file_path), "bytes": file_path.stat().st_size}
            (copy / "manifest.json").write_text(json.dumps(manifest))
            check_perturbed(copy, before, name)
            shutil.rmtree(copy)
