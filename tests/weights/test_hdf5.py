"""weights.hdf5: published variants give the oracle's vectors; a damaged or hostile file is a WeightsError."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import oracle
import pytest
import torch
from published_models import SENTENCES, VOCAB, write_model

from elmo.embed.load import make_indexer
from elmo.errors import ConfigError, WeightsError
from elmo.model.config import HeadConfig
from elmo.text.batch import make_batch
from elmo.weights.formats import read_model
from elmo.weights.model_parts import build
from elmo.weights.published import read_published, write_published

ROOT = Path(__file__).resolve().parents[2]
CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX limits and paths")


def load(folder: Path):
    return read_published(folder / "options.json", folder / "weights.hdf5")


def vectors(folder: Path) -> list[np.ndarray]:
    """All layers of each sentence, computed by the network, with boundary positions."""
    parts = read_model(folder)
    batch = make_batch(SENTENCES, make_indexer(parts))
    with torch.no_grad():
        layers = build(parts)(torch.from_numpy(batch.ids), torch.from_numpy(batch.mask)).layers.numpy()
    return [layers[:, row, : int(batch.mask[row].sum())] for row in range(len(SENTENCES))]


def assert_equals_oracle(folder: Path, options: oracle.Options, weights: oracle.Weights) -> None:
    expected, _ = oracle.run(options, weights, SENTENCES, vocab=VOCAB)
    for computed, reference in zip(vectors(folder), expected, strict=True):
        assert computed.shape == reference.shape
        np.testing.assert_allclose(computed, reference, atol=1e-5)  # float32 against float64


def edit(folder: Path, change) -> None:
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        change(file)


def replace(folder: Path, name: str, **options) -> None:
    def change(file: h5py.File) -> None:
        old = file[name][...]
        del file[name]
        file.create_dataset(name, **({"data": old} | options))

    edit(folder, change)


# ---- published variants ----


@pytest.mark.parametrize("n_layers", [1, 2, 3, 4])
@pytest.mark.parametrize("n_highway", [0, 1, 2])
def test_layers_and_highways(tmp_path, n_layers, n_highway):
    choices = dict(char_input=True, n_layers=n_layers, n_highway=n_highway, max_chars=60 if n_highway else 50)
    assert_equals_oracle(tmp_path, *write_model(tmp_path, 10 * n_layers + n_highway, **choices))


@pytest.mark.parametrize(
    "choices",
    [
        dict(cnn_projection=False, lstm_projection=True),
        dict(cnn_projection=False, lstm_projection=False),
        dict(cnn_projection=True, lstm_projection=False, n_layers=3),
        dict(skip=True, n_layers=3, cell_clip=0.6, proj_clip=0.2),
        dict(skip=False, n_layers=3, cell_clip=None, proj_clip=None),
        dict(activation="tanh"),
        dict(activation="relu"),
        dict(bidirectional=False, n_layers=2),
        dict(bidirectional=False, n_layers=1, dumped_names=True),
        dict(bidirectional=False, n_layers=2, dumped_names=True),
        dict(bidirectional=True, n_layers=1, dumped_names=True),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_shapes_and_name_variants(tmp_path, choices, seed):
    assert_equals_oracle(tmp_path, *write_model(tmp_path, seed, char_input=True, **choices))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_word_level_model(tmp_path, bidirectional, n_layers):
    choices = dict(char_input=False, bidirectional=bidirectional, n_layers=n_layers, dumped_names=n_layers == 1)
    assert_equals_oracle(tmp_path, *write_model(tmp_path, 3, vocab=True, **choices))


def test_options_of_261_characters_without_optional_keys(tmp_path):
    options, weights = write_model(tmp_path, 4, char_input=True, n_layers=1, skip=False, cell_clip=None, proj_clip=None)
    minimal = json.loads(json.dumps(options))
    minimal["char_cnn"]["n_characters"] = 261
    for key in ("n_layers", "use_skip_connections", "cell_clip", "proj_clip"):
        del minimal["lstm"][key]
    (tmp_path / "options.json").write_text(json.dumps(minimal))
    assert_equals_oracle(tmp_path, options, weights)


@pytest.mark.parametrize("tied", [True, False])
def test_softmax_inside_the_weights_file(tmp_path, tied):
    _, weights = write_model(tmp_path, 5, vocab=True, char_input=False, softmax=True, tied=tied)
    parts = load(tmp_path)
    assert parts.config.head is not None
    assert parts.config.head.vocab_size == 11
    table = weights["embedding"] if tied else weights["softmax/W"]
    np.testing.assert_array_equal(parts.tensors["head.weight"].numpy(), table)
    np.testing.assert_array_equal(parts.tensors["head.bias"].numpy(), weights["softmax/b"])
    build(parts)


def test_softmax_in_a_separate_file_is_read_and_written(tmp_path):
    _, weights = write_model(tmp_path / "a", 6, vocab=True, char_input=True, softmax=True)
    write_published(tmp_path / "b", load(tmp_path / "a"))
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == [
        "options.json",
        "softmax_weights.hdf5",
        "vocab.txt",
        "weights.hdf5",
    ]
    second = load(tmp_path / "b")
    assert second.vocab == tuple(VOCAB)
    np.testing.assert_array_equal(second.tensors["head.weight"].numpy(), weights["softmax/W"])


def test_vocab_txt_is_read_without_a_warning_about_other_word_lists(tmp_path, caplog):
    write_model(tmp_path, 5, vocab=True, char_input=True, softmax=True)
    (tmp_path / "vocab_old.txt").write_text("the\n")
    assert read_published(tmp_path).vocab == tuple(VOCAB)
    assert not caplog.records


def test_vocabulary_of_another_model_is_refused(tmp_path):
    write_model(tmp_path, 5, vocab=True, char_input=True, softmax=True)
    (tmp_path / "vocab.txt").write_text("the\n")
    with pytest.raises(WeightsError, match="holds 1 words; the model has rows for 11"):
        load(tmp_path)


def test_token_vectors_in_a_character_model_are_refused(tmp_path):
    write_model(tmp_path, 7, char_input=True)
    edit(tmp_path, lambda file: file.create_dataset("embedding", data=np.zeros((5, 3), np.float32)))
    assert_refused(tmp_path, "'embedding'", "no place in the model")


def test_softmax_file_with_other_arrays_is_refused(tmp_path):
    write_model(tmp_path, 7, char_input=True)
    with h5py.File(tmp_path / "softmax_weights.hdf5", "w") as file:
        file["softmax/b"] = np.zeros(11, np.float32)
        file["other"] = np.zeros(11, np.float32)
    with pytest.raises(WeightsError, match="'other' has no place in the model"):
        load(tmp_path)


def test_softmax_without_its_bias_is_refused(tmp_path):
    write_model(tmp_path, 7, char_input=True)
    edit(tmp_path, lambda file: file.create_dataset("softmax/W", data=np.zeros((5, 3), np.float32)))
    with pytest.raises(WeightsError, match="no 'softmax/b'"):
        load(tmp_path)


# ---- writing ----


def datasets(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {
        k: (str(v.dtype), v.shape, v.tobytes()) for k, v in oracle.load(path.parent / "options.json", path)[1].items()
    }


@pytest.mark.parametrize("seed", range(8))
def test_write_after_read_is_bit_identical(tmp_path, seed):
    write_model(tmp_path / "a", seed, vocab=True)
    write_published(tmp_path / "b", load(tmp_path / "a"))
    assert datasets(tmp_path / "b" / "weights.hdf5") == datasets(tmp_path / "a" / "weights.hdf5")
    assert load(tmp_path / "b").config == load(tmp_path / "a").config


def test_forget_bias_in_the_weights_is_subtracted_when_written(tmp_path):
    options, weights = write_model(tmp_path / "a", 8, char_input=True)
    parts = load(tmp_path / "a")
    H = parts.config.lstm.cell_dim
    tensors = dict(parts.tensors)
    for name in tensors:
        if name.startswith("stacks.") and name.endswith(".bias"):
            tensors[name] = tensors[name].clone()
            tensors[name][2 * H : 3 * H] += 1.0
    lstm = dataclasses.replace(parts.config.lstm, forget_bias=0.0)
    with_forget_bias = dataclasses.replace(parts, config=dataclasses.replace(parts.config, lstm=lstm), tensors=tensors)
    write_published(tmp_path / "b", with_forget_bias)
    assert_equals_oracle(tmp_path / "b", options, weights)


# ---- damage ----


def test_file_truncated_at_forty_offsets_is_refused(tmp_path):
    write_model(tmp_path, 9, char_input=True, n_layers=2)
    path = tmp_path / "weights.hdf5"
    data = path.read_bytes()
    for offset in np.random.default_rng(0).integers(0, len(data), 40):
        path.write_bytes(data[:offset])
        start = time.process_time()
        with pytest.raises(WeightsError, match=r"weights\.hdf5"):
            load(tmp_path)
        assert time.process_time() - start < 2


FUZZ = """
import logging, sys
from pathlib import Path
import numpy as np
from elmo.errors import WeightsError
from elmo.weights.model_parts import build
from elmo.weights.published import read_published
logging.disable(logging.CRITICAL)
folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
data = (folder / "weights.hdf5").read_bytes()
mutant = folder / "mutant.hdf5"
refused = 0
for seed in range(first, last):
    print(seed, flush=True)
    rng = np.random.default_rng(seed)
    bad = bytearray(data)
    end = len(bad) if seed % 3 == 0 else min(len(bad), 6144)  # metadata is at the start
    for position in rng.integers(0, end, rng.integers(1, 9)):
        bad[position] = rng.integers(256)
    if seed % 5 == 0:
        bad = bad[: rng.integers(1, len(bad))]
    mutant.write_bytes(bad)
    try:
        build(read_published(folder / "options.json", mutant))
    except WeightsError:
        refused += 1
print("refused", refused)
"""


def fuzz(folder: Path, first: int, last: int) -> int:
    write_model(folder, 11, char_input=True, n_layers=1, n_highway=1, projection_dim=2, bidirectional=False)
    command = [sys.executable, "-c", FUZZ, str(folder), str(first), str(last)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"seed {lines[-1] if lines else '?'}: exit {done.returncode}\n{done.stderr[-2000:]}"
    return int(lines[-1].split()[1])


def test_mutated_files_are_refused_or_load_and_never_crash(tmp_path):
    assert fuzz(tmp_path, 0, 300) > 100


# ---- hostile files ----


@pytest.fixture
def model(tmp_path) -> Path:
    write_model(tmp_path, 12, char_input=True, n_layers=2, n_highway=1, bidirectional=True)
    return tmp_path


def assert_refused(folder: Path, *texts: str) -> None:
    with pytest.raises(WeightsError) as error:
        load(folder)
    assert all(text in str(error.value) for text in texts), error.value


def test_external_storage_is_refused_and_not_read(model):
    secret = model / "secret.bin"
    secret.write_bytes(np.full(4096, 7, np.float32).tobytes())

    def change(file: h5py.File) -> None:
        shape = file["char_embed"].shape
        del file["char_embed"]
        file.create_dataset("char_embed", shape, "f4", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])

    edit(model, change)
    os.chmod(secret, 0)
    assert_refused(model, "'char_embed'", "external storage", "not allowed")


def test_links_and_virtual_datasets_are_refused_by_name(model, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "other.hdf5"
    with h5py.File(other, "w") as file:
        file["x"] = np.zeros(3, np.float32)
    layout = h5py.VirtualLayout(shape=(3,), dtype="f4")
    layout[:] = h5py.VirtualSource(str(other), "x", shape=(3,))
    original = (model / "weights.hdf5").read_bytes()

    def soft(file: h5py.File) -> None:
        file["extra"] = h5py.SoftLink("/extra")

    def external(file: h5py.File) -> None:
        file["extra"] = h5py.ExternalLink(str(other), "x")

    def virtual(file: h5py.File) -> None:
        file.create_virtual_dataset("extra", layout)

    for change, word in ((soft, "link"), (external, "link"), (virtual, "virtual")):
        (model / "weights.hdf5").write_bytes(original)
        edit(model, change)
        assert_refused(model, "'extra'", word)


def test_group_inside_itself_is_refused(model):
    def change(file: h5py.File) -> None:
        file["CNN/cycle"] = file["CNN"]

    edit(model, change)
    assert_refused(model, "'CNN/cycle'", "contains itself")


def test_named_type_and_too_many_names_are_refused(model):
    original = (model / "weights.hdf5").read_bytes()
    edit(model, lambda file: file.__setitem__("type", np.dtype("f4")))
    assert_refused(model, "'type'", "neither group nor dataset")
    (model / "weights.hdf5").write_bytes(original)

    def many(file: h5py.File) -> None:
        for number in range(10_001):
            file.create_group(f"g{number}")

    edit(model, many)
    assert_refused(model, "more than 10,000 names")


def bomb(folder: Path, rows: int) -> None:
    """A file of a few kilobytes that declares an embedding of `rows` x 1024 floats, with matching options."""
    options = {"lstm": {"dim": 1024, "projection_dim": 1024, "n_layers": 1}, "bidirectional": False}
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(folder / "weights.hdf5", "w") as file:
        file.create_dataset("embedding", (rows, 1024), "f4", chunks=(1024, 1024), compression="gzip")
        file.create_dataset("RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0", (2048, 4096), "f4", chunks=True)
        file.create_dataset("RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B", (4096,), "f4", chunks=True)


@pytest.mark.parametrize("rows", [1 << 20, 1 << 28])
def test_declared_terabytes_are_refused_before_memory_is_allocated(tmp_path, rows):
    bomb(tmp_path, rows)
    start = time.process_time()
    with pytest.raises(WeightsError, match=r"declare|parameters"):
        load(tmp_path)
    assert time.process_time() - start < 1


@posix
def test_process_with_limited_memory_reports_an_error(tmp_path):
    bomb(tmp_path, 1 << 20)
    gigabytes = 2 if torch.version.cuda is None else 16  # the libraries of a CUDA build alone take several
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({gigabytes} << 30,) * 2)"
    code = f"{limit}; from elmo.cli.main import main; main()"
    for arguments in (["info", str(tmp_path)], ["convert", str(tmp_path), str(tmp_path / "out")]):
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 1, done.stderr
        assert "declare" in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_gzip_bomb_of_written_zeros_is_refused(tmp_path):
    write_model(
        tmp_path, 13, char_input=False, projection_dim=64, vocab_size=200_000, n_layers=1, lstm_projection=False
    )
    replace(tmp_path, "embedding", data=np.zeros((200_000, 64), np.float32), compression="gzip", chunks=(5_000, 64))
    with h5py.File(tmp_path / "weights.hdf5") as old, h5py.File(tmp_path / "packed.hdf5", "w") as new:
        for name in old:
            old.copy(name, new)
    os.replace(tmp_path / "packed.hdf5", tmp_path / "weights.hdf5")
    for name in ("W_0", "B"):
        for direction in (0, 1):
            replace(tmp_path, f"RNN_{direction}/RNN/MultiRNNCell/Cell0/LSTMCell/{name}", compression="gzip")
    assert_refused(tmp_path, "declare")


@pytest.mark.parametrize("storage", [dict(chunks=(64, 2)), dict(chunks=(64, 2), compression="gzip"), dict()])
def test_missing_chunks_of_a_dataset_are_not_read_as_zeros(model, storage):
    shape = h5py.File(model / "weights.hdf5")["char_embed"].shape

    def change(file: h5py.File) -> None:
        del file["char_embed"]
        empty = file.create_dataset("char_embed", shape, "f4", **storage)
        if storage:
            empty[:64] = 1.0

    edit(model, change)
    assert_refused(model, "char_embed", "truncated")


def test_gzip_shuffle_and_chunks_are_read(tmp_path):
    options, weights = write_model(tmp_path, 14, char_input=True)
    replace(tmp_path, "char_embed", compression="gzip", shuffle=True, chunks=(50, 2))
    replace(tmp_path, "CNN/b_cnn_0", chunks=True, fletcher32=True)
    assert_equals_oracle(tmp_path, options, weights)


@pytest.mark.parametrize("options", [dict(compression="lzf"), dict(scaleoffset=3)])
def test_other_filters_are_refused(model, options):
    replace(model, "char_embed", **options)
    assert_refused(model, "'char_embed'", "filter")


# ---- shapes, types, values ----


def test_missing_misshapen_and_extra_datasets(model):
    original = (model / "weights.hdf5").read_bytes()
    kernel = h5py.File(model / "weights.hdf5")[f"{CELL}/W_0"].shape
    edit(model, lambda file: file.__delitem__(f"{CELL}/W_0"))
    assert_refused(model, f"'{CELL}/W_0'", str(kernel))
    (model / "weights.hdf5").write_bytes(original)
    replace(model, f"{CELL}/W_0", data=np.zeros(kernel[::-1], np.float32))
    assert_refused(model, f"'{CELL}/W_0'", str(kernel), str(kernel[::-1]))
    (model / "weights.hdf5").write_bytes(original)
    edit(model, lambda file: file.create_dataset("other/thing", data=np.zeros(3, np.float32)))
    assert_refused(model, "'other/thing'", "no place in the model")


@pytest.mark.parametrize("dtype", ["<f2", ">f2", ">f4", "<f8", ">f8"])
def test_floats_of_either_byte_order_load(tmp_path, dtype):
    options, weights = write_model(tmp_path, 15, char_input=True)
    weights = {name: array.astype(dtype) for name, array in weights.items()}
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        for name, array in weights.items():
            file.create_dataset(name, data=array)
    assert_equals_oracle(tmp_path, options, weights)


@pytest.mark.parametrize("dtype", ["i1", "i4", "u2", "c8", "S4", "O", "?", [("a", "f4")]])
def test_other_types_are_refused(model, dtype):
    shape = h5py.File(model / "weights.hdf5")["char_embed"].shape
    data = np.full(shape, "x", object) if dtype == "O" else np.zeros(shape, dtype)
    replace(model, "char_embed", data=data, **({"dtype": h5py.string_dtype()} if dtype == "O" else {}))
    assert_refused(model, "'char_embed'", "expected float16, float32 or float64")


def test_scalar_and_null_datasets_are_refused(model):
    replace(model, "CNN/b_cnn_0", data=np.float32(1))
    assert_refused(model, "CNN/b_cnn_0", "shape ()")
    replace(model, "CNN/b_cnn_0", data=h5py.Empty("f4"))
    assert_refused(model, "CNN/b_cnn_0", "empty")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_nonfinite_values_are_counted_and_refused(model, value, caplog):
    def change(file: h5py.File) -> None:
        array = file["char_embed"][...].astype("f8")
        array[3, :2] = value
        del file["char_embed"]
        file["char_embed"] = array

    edit(model, change)
    parts = load(model)
    with pytest.raises(WeightsError, match=r"'token_encoder\.chars\.table' has 2 values"):
        build(parts)
    with caplog.at_level(logging.WARNING):
        build(parts, allow_nonfinite=True)
    assert any("2 values" in record.getMessage() for record in caplog.records)


class RunsCommand:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch '{self.marker}'",)


@pytest.mark.parametrize("saved_by", ["pickle", "torch", "torch_old"])
def test_a_pickle_under_any_name_is_refused_and_not_run(model, saved_by):
    marker = model / "ran"
    pickled = model / "pickled"
    if saved_by == "pickle":
        pickled.write_bytes(pickle.dumps(RunsCommand(marker)))
    else:
        torch.save({"x": RunsCommand(marker)}, pickled, _use_new_zipfile_serialization=saved_by == "torch")
    for name in (
        "weights.hdf5",
        "other.hdf5",
        "model.safetensors",
        "model.th",
        "model.zip",
        "model.pt",
        "model.tar.gz",
    ):
        (model / name).write_bytes(pickled.read_bytes())
        with pytest.raises(WeightsError):
            read_model(model / name)
    with pytest.raises(WeightsError):
        read_model(model / "options.json", model / "weights.hdf5")
    assert not marker.exists()


def test_adaptive_head_is_refused_by_the_published_layout(tmp_path):
    write_model(tmp_path / "a", 16, char_input=True)
    parts = load(tmp_path / "a")
    head = HeadConfig(vocab_size=11, kind="adaptive", cutoffs=(4,))
    parts = dataclasses.replace(parts, config=dataclasses.replace(parts.config, head=head))
    with pytest.raises(ConfigError, match="adaptive"):
        write_published(tmp_path / "b", parts)
    assert not (tmp_path / "b").exists()
