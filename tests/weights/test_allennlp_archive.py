"""AllenNLP models that contain an ELMo: made from the published fixture under AllenNLP's names, then read."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import tarfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from peer_models import PREFIX, allennlp_state, write_tar

from elmo.errors import WeightsError
from elmo.weights.allennlp_archive import read_allennlp, read_allennlp_arrays

FIXTURE = Path(__file__).parents[2] / "elmo" / "golden" / "allennlp"
MIX = "text_field_embedder.token_embedder_elmo._elmo.scalar_mix_"


def published() -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}

    def add(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()]

    with h5py.File(FIXTURE / "lm_weights.hdf5") as file:
        file.visititems(add)
    return arrays


def state_dict(prefix: str = PREFIX) -> dict[str, torch.Tensor]:
    """The parameters of AllenNLP's model after it loads the fixture."""
    return allennlp_state(json.loads((FIXTURE / "options.json").read_text()), published(), prefix)


def tagger() -> dict[str, torch.Tensor]:
    """A complete tagger: the ELMo with two mixes, and other parameters."""
    state = state_dict()
    for k, (weights, gamma) in enumerate((((0.1, -0.2, 0.7), 1.5), ((0.0, 0.0, 9.0), 0.25))):
        for i, weight in enumerate(weights):
            state[f"{MIX}{k}.scalar_parameters.{i}"] = torch.tensor([weight])
        state[f"{MIX}{k}.gamma"] = torch.tensor([gamma])
    state["encoder._module.weight_ih_l0"] = torch.randn(75, 32)
    state["tag_projection_layer._module.bias"] = torch.randn(5)
    state["vocab.counts"] = torch.arange(4)  # integer buffers are ignored, here and in the ELMo
    state[PREFIX + "_token_embedder._beginning_of_sentence_characters"] = torch.arange(50)
    state[PREFIX + "_word_embedding.weight"] = torch.randn(9, 16)  # a cache of token vectors
    return state


def saved(state: object, *, legacy: bool = False) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


def archive(path: Path, **changes: bytes) -> Path:
    config = {"model": {"text_field_embedder": {"token_embedders": {"elmo": {"options_file": "gone/options.json"}}}}}
    members = {
        "config.json": json.dumps(config).encode(),
        "weights.th": saved(tagger()),
        "vocabulary/labels.txt": b"O\nB-PER\n",
        "files_to_archive.json": b'{"model.text_field_embedder.token_embedders.elmo.options_file": "options.json"}',
        "fta/model.text_field_embedder.token_embedders.elmo.options_file": (FIXTURE / "options.json").read_bytes(),
        **changes,
    }
    return write_tar(path, members)


def check_arrays(arrays: dict[str, np.ndarray]) -> None:
    expected = published()
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        if name.endswith("/B"):
            array[128:192] += 1  # the third gate of four is the forget gate
        assert arrays[name].flags.c_contiguous
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)


@pytest.mark.parametrize("legacy", [False, True])
def test_state_dict_gives_the_published_arrays(tmp_path: Path, legacy: bool) -> None:
    path = tmp_path / "best.th"
    path.write_bytes(saved(tagger(), legacy=legacy))
    model = read_allennlp_arrays(path)
    check_arrays(model.arrays)
    assert read_allennlp(path).config.lstm.forget_bias == 0.0  # the biases include it
    assert model.prefix == PREFIX
    assert [gamma for _, gamma in model.mixes] == [1.5, 0.25]
    np.testing.assert_allclose([weights for weights, _ in model.mixes], [[0.1, -0.2, 0.7], [0, 0, 9]], rtol=1e-7)


def test_options_are_inferred_from_the_shapes(tmp_path: Path) -> None:
    path = tmp_path / "best.th"
    path.write_bytes(saved(tagger()))
    assert read_allennlp_arrays(path).options == json.loads((FIXTURE / "options.json").read_text())


def test_archive_gives_arrays_and_its_options(tmp_path: Path) -> None:
    options = json.loads((FIXTURE / "options.json").read_text())
    options["lstm"]["cell_clip"] = 7.5
    options["char_cnn"] |= {"activation": "tanh", "max_characters_per_token": 40}
    name = "fta/model.text_field_embedder.token_embedders.elmo.options_file"
    model = read_allennlp_arrays(archive(tmp_path / "model.tar.gz", **{name: json.dumps(options).encode()}))
    check_arrays(model.arrays)
    assert model.options == options


def test_options_nested_in_config_json_are_found(tmp_path: Path) -> None:
    options = json.loads((FIXTURE / "options.json").read_text())
    options["lstm"]["proj_clip"] = 2
    members = {"config.json": json.dumps({"a": [{"b": options}]}).encode(), "weights.th": saved(tagger())}
    assert read_allennlp_arrays(write_tar(tmp_path / "model.tar.gz", members)).options["lstm"]["proj_clip"] == 2


def test_options_that_contradict_the_weights_are_refused(tmp_path: Path) -> None:
    options = json.loads((FIXTURE / "options.json").read_text())
    options["lstm"]["n_layers"] = 3
    members = {"options.json": json.dumps(options).encode(), "weights.th": saved(tagger())}
    with pytest.raises(WeightsError, match="does not fit"):
        read_allennlp_arrays(write_tar(tmp_path / "model.tar.gz", members))


def test_serialization_folder(tmp_path: Path) -> None:
    (tmp_path / "best.th").write_bytes(saved(tagger()))
    (tmp_path / "config.json").write_text("{}")
    parts = read_allennlp(tmp_path)
    assert parts.source == str(tmp_path / "best.th")
    assert len(parts.mixes) == 2


@pytest.mark.parametrize("prefix", ["", "_elmo_lstm.", "_text_field_embedder.token_embedder_tokens._elmo._elmo_lstm."])
def test_any_prefix(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "x.th"
    path.write_bytes(saved({"model": state_dict(prefix)}))  # and a state dict one level down
    model = read_allennlp_arrays(path)
    check_arrays(model.arrays)
    assert (model.prefix, model.mixes) == (prefix, [])


def test_shared_elmo_counts_once_and_different_ones_need_a_prefix(tmp_path: Path) -> None:
    path = tmp_path / "x.th"
    first, second = state_dict("a._elmo_lstm."), state_dict("b._elmo_lstm.")
    path.write_bytes(saved({**first, **second}))
    assert read_allennlp_arrays(path).prefix == "a._elmo_lstm."
    second["b._elmo_lstm._token_embedder._projection.bias"] += 1
    path.write_bytes(saved({**first, **second}))
    with pytest.raises(WeightsError, match=r"several different ELMos.*\n.*a\._elmo_lstm\., b\._elmo_lstm\."):
        read_allennlp_arrays(path)
    del first["a._elmo_lstm._token_embedder._projection.bias"]
    path.write_bytes(saved({**first, **second}))
    with pytest.raises(WeightsError, match="several different ELMos"):
        read_allennlp_arrays(path)
    arrays = read_allennlp_arrays(path, "b._elmo_lstm.").arrays
    np.testing.assert_array_equal(arrays["CNN_proj/b_proj"], published()["CNN_proj/b_proj"] + 1)
    with pytest.raises(WeightsError, match="no ELMo under 'c'"):
        read_allennlp_arrays(path, "c")


def test_half_precision_weights_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.th"
    path.write_bytes(saved({key: value.bfloat16() for key, value in state_dict().items()}))
    model = read_allennlp_arrays(path)
    assert model.arrays["CNN_proj/b_proj"].dtype == np.float32
    np.testing.assert_allclose(model.arrays["CNN_proj/b_proj"], published()["CNN_proj/b_proj"], rtol=2**-8)


def test_error_names_missing_and_misshapen_parameters(tmp_path: Path) -> None:
    path = tmp_path / "x.th"
    key = PREFIX + "_elmo_lstm.backward_layer_1.state_linearity.bias"
    for change, message in (
        ({key: None}, f"no '{key}'"),
        ({key: torch.zeros(255)}, r"\(255,\), expected \(256,\)"),
        ({PREFIX + "_token_embedder._highways._layers.0.weight": torch.zeros(248)}, r"expected \(248, 124\)"),
        ({PREFIX + "_elmo_lstm.backward_layer_1.input_linearity.weight": None}, "2 forward and 1 backward"),
        ({PREFIX + "_token_embedder.char_conv_1.weight": None}, "numbered"),
        ({PREFIX + "_token_embedder._char_embedding_weights": None}, "contains no ELMo"),
        ({PREFIX + "_token_embedder._char_embedding_weights": torch.zeros(262, 4).long()}, "tensor of floats"),
    ):
        state = {name: tensor for name, tensor in {**tagger(), **change}.items() if tensor is not None}
        path.write_bytes(saved(state))
        with pytest.raises(WeightsError, match=message):
            read_allennlp_arrays(path)


# Damaged and hostile files are always a WeightsError, and no code in them runs.


class RunsCommand:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple:
        return os.system, (self.command,)


@pytest.mark.parametrize("legacy", [False, True])
def test_pickled_command_is_not_run(tmp_path: Path, legacy: bool) -> None:
    marker = tmp_path / "ran"
    path = tmp_path / "best.th"
    for hostile in (
        saved({**tagger(), "x": RunsCommand(f"touch {marker}")}, legacy=legacy),
        pickle.dumps(RunsCommand(f"touch {marker}"), protocol=2),
    ):
        path.write_bytes(hostile)
        with pytest.raises(WeightsError, match="not a plain file of tensors"):
            read_allennlp_arrays(path)
        with pytest.raises(WeightsError, match="not a plain file of tensors"):
            read_allennlp_arrays(archive(tmp_path / "model.tar.gz", **{"weights.th": hostile}))
    assert not marker.exists()


@pytest.mark.parametrize("legacy", [False, True])
def test_truncated_state_dicts_are_refused(tmp_path: Path, legacy: bool) -> None:
    data = saved(tagger(), legacy=legacy)
    path = tmp_path / "best.th"
    rng = random.Random(1)
    for size in [0, 1, 5, *(rng.randrange(len(data)) for _ in range(40))]:
        path.write_bytes(data[:size])
        with pytest.raises(WeightsError):
            read_allennlp_arrays(path)


@pytest.mark.parametrize("legacy", [False, True])
def test_flipped_bytes_in_state_dicts(tmp_path: Path, legacy: bool) -> None:
    """The zip format has checksums, so what loads is correct; the older format has none and may load other numbers."""
    data = saved(state_dict(), legacy=legacy)
    path = tmp_path / "best.th"
    rng = random.Random(2)
    for turn in range(500):
        mutant = bytearray(data)
        position = rng.randrange(len(mutant)) if turn % 2 else rng.randrange(6000)  # mostly the pickles at the start
        mutant[position] ^= 1 << rng.randrange(8)
        path.write_bytes(mutant)
        try:
            arrays = read_allennlp_arrays(path).arrays
        except WeightsError:
            continue
        if not legacy:
            check_arrays(arrays)


def test_truncated_archives_are_refused(tmp_path: Path) -> None:
    data = archive(tmp_path / "model.tar.gz").read_bytes()
    path = tmp_path / "cut.tar.gz"
    rng = random.Random(3)
    for size in [2, 10, *(rng.randrange(2, len(data) - 2000) for _ in range(40))]:
        path.write_bytes(data[:size])
        with pytest.raises(WeightsError):
            read_allennlp_arrays(path)


@pytest.mark.parametrize("packed", [True, False])
def test_flipped_bytes_in_archives(tmp_path: Path, packed: bool) -> None:
    data = archive(tmp_path / "model.tar.gz").read_bytes()
    data = data if packed else gzip.decompress(data)
    path = tmp_path / "flipped.tar.gz"
    rng = random.Random(4)
    for turn in range(250):
        mutant = bytearray(data)
        mutant[rng.randrange(len(mutant)) if turn % 2 else rng.randrange(3000)] ^= 1 << rng.randrange(8)
        path.write_bytes(mutant)
        try:
            check_arrays(read_allennlp_arrays(path).arrays)
        except WeightsError:
            continue


@pytest.mark.parametrize(
    "name", ["../weights.th", "/tmp/weights.th", "a/../../weights.th", "..\\weights.th", "C:/w.th"]
)
def test_member_names_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    path = write_tar(tmp_path / "model.tar.gz", {name: saved(tagger())})
    with pytest.raises(WeightsError, match="leads outside"):
        read_allennlp_arrays(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("weights.th")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(WeightsError, match="link or device"):
        read_allennlp_arrays(path)


def test_decompression_bombs_are_refused_early(tmp_path: Path) -> None:
    path = tmp_path / "model.tar.gz"
    info = tarfile.TarInfo("weights.th")
    info.size = 4 << 30
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(info.tobuf() + bytes(1 << 20))
    with pytest.raises(WeightsError, match="4,294,967,296 bytes"):
        read_allennlp_arrays(path)


def test_bomb_in_a_member_header_is_refused(tmp_path: Path) -> None:
    """A long-name header is read into memory by tarfile itself before any member is seen."""
    path = tmp_path / "model.tar.gz"
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(info.tobuf())
        for _ in range(100):
            file.write(bytes(1 << 20))
    with pytest.raises(WeightsError, match="bomb"):
        read_allennlp_arrays(path)


def test_tensor_larger_than_its_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.th"
    state = state_dict()
    state[PREFIX + "_token_embedder._char_embedding_weights"] = torch.zeros(1).expand(1 << 20, 1 << 12)  # 16 GiB
    path.write_bytes(saved(state))
    with pytest.raises(WeightsError, match="claims 17,180,"):
        read_allennlp_arrays(path)


def test_nested_json_and_second_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="not valid JSON"):
        read_allennlp_arrays(archive(tmp_path / "a.tar.gz", **{"config.json": b"[" * 100_000}))
    with pytest.raises(WeightsError, match="more than one"):
        read_allennlp_arrays(archive(tmp_path / "b.tar.gz", **{"second/weights.th": b""}))
    with pytest.raises(WeightsError, match="larger than"):
        read_allennlp_arrays(archive(tmp_path / "c.tar.gz", **{"config.json": b" " * (2 << 20)}))


def test_file_that_is_not_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="does not exist"):
        read_allennlp_arrays(tmp_path / "nothing.th")
    with pytest.raises(WeightsError, match=r"neither weights\.th"):
        read_allennlp_arrays(write_tar(tmp_path / "model.tar.gz", {"readme": b"hello"}))
    with pytest.raises(WeightsError, match=r"neither weights\.th"):
        read_allennlp_arrays(tmp_path)
    (tmp_path / "x.th").write_bytes(saved([1, 2, 3]))
    with pytest.raises(WeightsError, match="no named tensors"):
        read_allennlp_arrays(tmp_path / "x.th")
