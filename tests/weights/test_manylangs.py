"""ELMoForManyLangs folders: made from torch modules with its parameter names, then read and computed in numpy."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from elmo.errors import WeightsError
from elmo.weights.manylangs import ManyLangsArrays, read_manylangs, read_manylangs_arrays

FILTERS = ((1, 3), (2, 5), (3, 4))
F, P, H, L = 12, 6, 10, 2
CHARS = {
    c: i
    for i, c in enumerate(
        ["a", "b", "é", "水", "\u3000", "\u2028", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
    )
}
WORDS = {w: i for i, w in enumerate(["<oov>", "<bos>", "<eos>", "<pad>", "ab", "水é"])}
SETTINGS = {
    "encoder": {"name": "elmo", "projection_dim": P, "cell_clip": 3, "proj_clip": 2.5, "dim": H, "n_layers": L},
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [list(pair) for pair in FILTERS],
        "n_highway": 2,
        "word_dim": 4,
        "char_dim": 7,
        "max_characters_per_token": 30,
    },
    "classifier": {"name": "sampled_softmax", "n_samples": 8192},
    "dropout": 0.1,
}


class TokenEmbedder(nn.Module):
    """Parameters named as in ELMoForManyLangs, computed by torch's own layers."""

    def __init__(self, word_dim: int, char_dim: int) -> None:
        super().__init__()
        if word_dim:
            self.word_emb_layer = nn.ModuleDict({"embedding": nn.Embedding(len(WORDS), word_dim)})
        if char_dim:
            self.char_emb_layer = nn.ModuleDict({"embedding": nn.Embedding(len(CHARS), char_dim)})
            self.convolutions = nn.ModuleList([nn.Conv1d(char_dim, count, width) for width, count in FILTERS])
            self.highways = nn.ModuleDict({"_layers": nn.ModuleList([nn.Linear(F, 2 * F) for _ in range(2)])})
        self.projection = nn.Linear(word_dim + (F if char_dim else 0), P)

    def forward(self, words: torch.Tensor, chars: torch.Tensor) -> torch.Tensor:
        parts = []
        if hasattr(self, "word_emb_layer"):
            parts.append(self.word_emb_layer["embedding"](words))  # (N, 4)
        if hasattr(self, "char_emb_layer"):
            x = self.char_emb_layer["embedding"](chars).transpose(1, 2)  # (N, E, C)
            x = torch.cat([conv(x).amax(-1).relu() for conv in self.convolutions], -1)  # (N, F)
            for layer in self.highways["_layers"]:  # type: ignore[attr-defined]
                new, keep = layer(x).split(F, -1)
                x = keep.sigmoid() * x + (1 - keep.sigmoid()) * new.relu()
            parts.append(x)
        return self.projection(torch.cat(parts, -1))  # (N, P)


def encoder() -> nn.Module:
    def cell() -> nn.ModuleDict:
        parts = {"input_linearity": nn.Linear(P, 4 * H, bias=False), "state_linearity": nn.Linear(P, 4 * H)}
        return nn.ModuleDict({**parts, "state_projection": nn.Linear(H, P, bias=False)})

    return nn.ModuleDict({f"{word}_layer_{k}": cell() for k in range(L) for word in ("forward", "backward")})


def write_dic(path: Path, entries: dict[str, int]) -> None:
    path.write_text("".join(f"{entry}\t{number}\n" for entry, number in entries.items()), encoding="utf-8", newline="")


def write_folder(
    folder: Path, word_dim: int = 4, char_dim: int = 7, legacy: bool = True, settings: dict | None = None
) -> tuple[TokenEmbedder, nn.Module]:
    torch.manual_seed(11)
    modules = TokenEmbedder(word_dim, char_dim), encoder()
    folder.mkdir(exist_ok=True)
    for module, name in zip(modules, ("token_embedder.pkl", "encoder.pkl"), strict=True):
        torch.save(module.state_dict(), folder / name, _use_new_zipfile_serialization=not legacy)
    if char_dim:
        write_dic(folder / "char.dic", CHARS)
    write_dic(folder / "word.dic", WORDS)
    config_path = "/users4/someone/configs/sizes.json"
    (folder / "config.json").write_text(json.dumps({"seed": 1, "gpu": 3, "config_path": config_path, "lr": 0.001}))
    if settings is not None:
        (folder / "sizes.json").write_text(json.dumps(settings))
    return modules


def numpy_tokens(model: ManyLangsArrays, words: np.ndarray, chars: np.ndarray) -> np.ndarray:
    """The token layer by the published formulas: x @ W, and g = sigmoid(x @ W_carry + b) lets the new value in."""
    t = model.arrays
    parts = [t["word_embed"][words]] if "word_embed" in t else []
    if "char_embed" in t:
        x = t["char_embed"][chars]  # (N, C, E)
        pooled = []
        for i, (width, _) in enumerate(FILTERS):
            windows = np.stack([x[:, k : x.shape[1] - width + 1 + k] for k in range(width)], 2)  # (N, windows, w, E)
            scores = np.einsum("nkwe,wef->nkf", windows, t[f"CNN/W_cnn_{i}"][0]) + t[f"CNN/b_cnn_{i}"]
            pooled.append(np.maximum(scores.max(1), 0))
        y = np.concatenate(pooled, -1)
        for k in range(2):
            gate = 1 / (1 + np.exp(-(y @ t[f"CNN_high_{k}/W_carry"] + t[f"CNN_high_{k}/b_carry"])))
            new = np.maximum(y @ t[f"CNN_high_{k}/W_transform"] + t[f"CNN_high_{k}/b_transform"], 0)
            y = gate * new + (1 - gate) * y
        parts.append(y)
    return np.concatenate(parts, -1) @ t["CNN_proj/W_proj"] + t["CNN_proj/b_proj"]


@pytest.mark.parametrize(("word_dim", "char_dim"), [(4, 7), (0, 7), (4, 0)])
@pytest.mark.parametrize("legacy", [True, False])
def test_token_layer_computes_the_same(tmp_path: Path, word_dim: int, char_dim: int, legacy: bool) -> None:
    embedder, _ = write_folder(tmp_path, word_dim, char_dim, legacy)
    model = read_manylangs_arrays(tmp_path)
    assert ("word_embed" in model.arrays, "char_embed" in model.arrays) == (word_dim > 0, char_dim > 0)
    rng = np.random.default_rng(0)
    words, chars = rng.integers(0, len(WORDS), 9), rng.integers(0, len(CHARS), (9, 15))
    with torch.no_grad():
        expected = embedder(torch.from_numpy(words), torch.from_numpy(chars)).numpy()
    np.testing.assert_allclose(numpy_tokens(model, words, chars), expected, atol=2e-6)  # float32 sums in another order


@pytest.mark.parametrize(("direction", "word"), [(0, "forward"), (1, "backward")])
@pytest.mark.parametrize("layer", [0, 1])
def test_lstm_step_computes_the_same(tmp_path: Path, direction: int, word: str, layer: int) -> None:
    """Gates are stored as i, f, g, o; the published order is i, g, f, o with the input first. torch's LSTMCell, which
    has no projection, confirms the order for a zero recurrent state."""
    _, stack = write_folder(tmp_path)
    model = read_manylangs_arrays(tmp_path)
    cell = stack[f"{word}_layer_{layer}"]
    reference = nn.LSTMCell(P, H)
    x, h, c = torch.randn(5, P), torch.randn(5, P), torch.randn(5, H)
    with torch.no_grad():
        gates = cell["input_linearity"](x) + cell["state_linearity"](h)
        i, f, g, o = gates.chunk(4, -1)
        memory = f.sigmoid() * c + i.sigmoid() * g.tanh()
        expected = cell["state_projection"](o.sigmoid() * memory.tanh()).numpy()
        reference.weight_ih.copy_(cell["input_linearity"].weight)
        reference.weight_hh.zero_()
        reference.bias_ih.copy_(cell["state_linearity"].bias)
        reference.bias_hh.zero_()
        no_state = reference(x, (torch.zeros(5, H), c))[1].numpy()
    t = {n: model.arrays[f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/{n}"] for n in ("W_0", "B", "W_P_0")}

    def step(state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        i, g, f, o = np.split(np.concatenate([x.numpy(), state], -1) @ t["W_0"] + t["B"], 4, -1)
        sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
        memory = sigmoid(f) * c.numpy() + sigmoid(i) * np.tanh(g)  # no forget bias: it is in B
        return memory, (sigmoid(o) * np.tanh(memory)) @ t["W_P_0"]

    np.testing.assert_allclose(step(h.numpy())[1], expected, atol=2e-6)
    np.testing.assert_allclose(step(np.zeros((5, P), np.float32))[0], no_state, atol=2e-6)
    assert read_manylangs(tmp_path).config.lstm.forget_bias == 0.0  # the biases include it


def test_lexicons_with_odd_characters_are_read(tmp_path: Path) -> None:
    write_folder(tmp_path)
    model = read_manylangs_arrays(tmp_path)
    assert model.char_lexicon == CHARS
    assert model.word_lexicon == WORDS


def test_empty_entry_is_the_ideographic_space(tmp_path: Path) -> None:
    write_folder(tmp_path)
    path = tmp_path / "char.dic"
    original = path.read_bytes()
    assert "\u3000\t4\n".encode() in original
    for lost in (b"\t4\r\n", b"4\n"):
        path.write_bytes(original.replace("\u3000\t4\n".encode(), lost))
        assert read_manylangs_arrays(tmp_path).char_lexicon == CHARS


def test_word_lexicon_is_none_without_word_vectors(tmp_path: Path) -> None:
    write_folder(tmp_path, word_dim=0)
    assert read_manylangs_arrays(tmp_path).word_lexicon is None
    shutil.rmtree(tmp_path)
    write_folder(tmp_path, char_dim=0)
    assert read_manylangs_arrays(tmp_path).char_lexicon is None


@pytest.mark.parametrize("place", ["sizes.json", "configs/sizes.json", "config.json"])
def test_settings_are_found_in_all_usual_files(tmp_path: Path, place: str) -> None:
    write_folder(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / place).write_text(json.dumps(SETTINGS))
    assert read_manylangs_arrays(tmp_path).settings == SETTINGS


def test_missing_settings_come_from_shapes_and_defaults(tmp_path: Path) -> None:
    write_folder(tmp_path)
    config = read_manylangs_arrays(tmp_path).settings
    assert config["encoder"] == {**SETTINGS["encoder"], "proj_clip": 3}
    assert config["token_embedder"] == {**SETTINGS["token_embedder"], "max_characters_per_token": 50}


def test_settings_file_outside_the_folder_is_not_read(tmp_path: Path) -> None:
    write_folder(tmp_path / "model")
    wrong = {**SETTINGS, "encoder": {**SETTINGS["encoder"], "dim": 99}}
    (tmp_path / "outside.json").write_text(json.dumps(wrong))
    for path in (str(tmp_path / "outside.json"), "../outside.json"):
        (tmp_path / "model" / "config.json").write_text(json.dumps({"config_path": path}))
        assert read_manylangs_arrays(tmp_path / "model").settings["encoder"]["dim"] == H


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("encoder", "dim", 4096),
        ("encoder", "n_layers", 3),
        ("encoder", "name", "lstm"),
        ("token_embedder", "word_dim", 0),
        ("token_embedder", "filters", [[1, 3], [2, 5]]),
        ("token_embedder", "n_highway", 1),
    ],
)
def test_settings_that_contradict_the_weights_are_refused(tmp_path: Path, part: str, key: str, value: object) -> None:
    write_folder(tmp_path, settings={**SETTINGS, part: {**SETTINGS[part], key: value}})
    with pytest.raises(WeightsError, match=rf"{part}\.{key}"):
        read_manylangs_arrays(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("char.dic", "a\t0\nb\t1\n", "has no <bos>"),
        ("char.dic", "a\tx\n", "char.dic:1: expected an entry, a tab and a number"),
        ("char.dic", "a\t-1\n", "expected an entry"),
        ("char.dic", "a\t0\nb\t99999999999999999999\n", "char.dic:2"),
        ("word.dic", "<oov>\t0\n<pad>\t6\n", r"numbers up to 6, the model has vectors for 0\.\.5"),
        ("word.dic", "", "has no <oov>"),
        ("config.json", "[" * 100_000, "not valid JSON"),
        ("config.json", "[]", "expected a JSON object"),
        ("config.json", '{"encoder": 3}', "'encoder' in its settings is not an object"),
    ],
)
def test_bad_text_files_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    write_folder(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(WeightsError, match=message):
        read_manylangs_arrays(tmp_path)


def test_invalid_utf8_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "char.dic").write_bytes(b"a\t0\n\xff\t1\n")
    with pytest.raises(WeightsError, match=r"not UTF-8 \(byte 4\)"):
        read_manylangs_arrays(tmp_path)


@pytest.mark.parametrize("name", ["encoder.pkl", "token_embedder.pkl", "char.dic", "word.dic"])
def test_error_names_missing_files(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(WeightsError, match=f"{name} does not exist"):
        read_manylangs_arrays(tmp_path)


def test_other_kinds_of_network_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path)
    torch.save({"encoder.weight_ih_l0": torch.zeros(4, 4)}, tmp_path / "encoder.pkl")
    with pytest.raises(WeightsError, match="only 'elmo' encoders"):
        read_manylangs_arrays(tmp_path)
    torch.save({"char_lstm.weight_ih_l0": torch.zeros(4, 4)}, tmp_path / "token_embedder.pkl")
    with pytest.raises(WeightsError, match="only the 'cnn' kind"):
        read_manylangs_arrays(tmp_path)
    torch.save({"projection.weight": torch.zeros(4, 4)}, tmp_path / "token_embedder.pkl")
    with pytest.raises(WeightsError, match="neither word nor character vectors"):
        read_manylangs_arrays(tmp_path)


class RunsCommand:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple:
        return os.system, (self.command,)


@pytest.mark.parametrize("legacy", [True, False])
def test_pickled_command_is_not_run(tmp_path: Path, legacy: bool) -> None:
    embedder, _ = write_folder(tmp_path)
    marker = tmp_path / "ran"
    hostile = {**embedder.state_dict(), "x": RunsCommand(f"touch {marker}")}
    torch.save(hostile, tmp_path / "token_embedder.pkl", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(WeightsError, match="not a plain file of tensors"):
        read_manylangs_arrays(tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["encoder.pkl", "token_embedder.pkl"])
@pytest.mark.parametrize("legacy", [True, False])
def test_truncated_pickles_are_refused(tmp_path: Path, name: str, legacy: bool) -> None:
    write_folder(tmp_path, legacy=legacy)
    original = (tmp_path / name).read_bytes()
    rng = random.Random(1)
    for size in [0, 1, 7, *(rng.randrange(len(original)) for _ in range(40))]:
        (tmp_path / name).write_bytes(original[:size])
        with pytest.raises(WeightsError):
            read_manylangs_arrays(tmp_path)


@pytest.mark.parametrize("name", ["encoder.pkl", "token_embedder.pkl", "char.dic", "config.json"])
@pytest.mark.parametrize("legacy", [True, False])
def test_flipped_bytes_are_refused_or_read(tmp_path: Path, name: str, legacy: bool) -> None:
    write_folder(tmp_path, legacy=legacy, settings=SETTINGS)
    path = tmp_path / name
    original = path.read_bytes()
    arrays = read_manylangs_arrays(tmp_path).arrays
    rng = random.Random(2)
    for _ in range(500):
        mutant = bytearray(original)
        mutant[rng.randrange(len(mutant))] ^= 1 << rng.randrange(8)
        path.write_bytes(mutant)
        try:
            mutant_arrays = read_manylangs_arrays(tmp_path).arrays
        except WeightsError:
            continue
        if not legacy:  # the newer format has checksums: what loads is correct
            for key, array in arrays.items():
                np.testing.assert_array_equal(mutant_arrays[key], array)


def test_storage_that_claims_more_than_its_file_is_refused(tmp_path: Path) -> None:
    """Only the element count in the pickle is changed, to 8 GiB."""
    write_folder(tmp_path)
    buffer = io.BytesIO()
    torch.save({"projection.weight": torch.zeros(70_000)}, buffer, _use_new_zipfile_serialization=False)
    count = b"J" + (70_000).to_bytes(4, "little")
    original = buffer.getvalue()
    assert original.count(count) >= 1
    (tmp_path / "token_embedder.pkl").write_bytes(original.replace(count, b"J" + (2**31 - 1).to_bytes(4, "little")))
    with pytest.raises(WeightsError):
        read_manylangs_arrays(tmp_path)
