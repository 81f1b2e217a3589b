"""TensorFlow checkpoints read without TensorFlow; TensorFlow wrote the fixtures (make_tf_checkpoint.py)."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tf_files import entry, footer, make_block, make_table

from elmo.errors import WeightsError
from elmo.weights.crc32c import crc32c, masked_crc32c
from elmo.weights.tf_checkpoint import (
    find_prefix,
    is_bilm_variable,
    published_names,
    read_tf_arrays,
)
from elmo.weights.tf_index import read_index
from elmo.weights.tf_table import table_entries

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tf_checkpoint"
VARIANTS = ("bilm", "sharded", "one_layer", "forward_words")
LSTM_PARTS = ("W_0", "B", "W_P_0")


def expected(variant: str) -> dict[str, np.ndarray]:
    with np.load(FIXTURES / variant / "expected.npz") as arrays:
        return {name.replace("|", "/"): arrays[name] for name in arrays.files}


@pytest.fixture
def bilm(tmp_path: Path) -> Path:
    """A copy of the two-layer checkpoint that a test may damage."""
    shutil.copytree(FIXTURES / "bilm", tmp_path / "bilm")
    return tmp_path / "bilm" / "model.ckpt-1"


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_tensor_equals_what_tensorflow_reads(variant: str) -> None:
    arrays = read_tf_arrays(FIXTURES / variant / "model.ckpt-1")
    assert arrays.keys() == expected(variant).keys()
    for name, array in expected(variant).items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_index_gives_types_and_shapes(variant: str) -> None:
    _, _, entries = read_index(FIXTURES / variant / "model.ckpt-1.index")
    listed = {name: (entry.type_name, entry.shape) for name, entry in entries.items()}
    assert listed == {name: (array.dtype.name, array.shape) for name, array in expected(variant).items()}


def test_sharded_fixture_has_several_data_files() -> None:
    assert len(list((FIXTURES / "sharded").glob("*.data-*"))) == 4


@pytest.mark.parametrize(
    "name", ["", "checkpoint", "model.ckpt-1", "model.ckpt-1.index", "model.ckpt-1.data-00000-of-00001"]
)
def test_prefix_is_found_from_any_of_its_files(name: str) -> None:
    assert find_prefix(FIXTURES / "bilm" / name) == FIXTURES / "bilm" / "model.ckpt-1"


def test_checkpoint_file_with_a_path_on_another_machine(bilm: Path) -> None:
    (bilm.parent / "checkpoint").write_text('model_checkpoint_path: "/home/someone/run 7/model.ckpt-1"\n')
    assert find_prefix(bilm.parent) == bilm


@pytest.mark.parametrize("path", ["..", "../", "checkpoint", ".", "x/../../checkpoint", "\x00", "nothing"])
def test_checkpoint_file_cannot_name_another_folder(bilm: Path, path: str) -> None:
    (bilm.parent / "checkpoint").write_text(f'model_checkpoint_path: "{path}"\n')
    with pytest.raises(WeightsError):
        find_prefix(bilm.parent)


def test_highest_step_is_used_without_a_checkpoint_file(bilm: Path) -> None:
    (bilm.parent / "checkpoint").unlink()
    for path in list(bilm.parent.glob("model.ckpt-1.*")):
        shutil.copy(path, path.with_name(path.name.replace("ckpt-1", "ckpt-12")))
        shutil.copy(path, path.with_name(path.name.replace("ckpt-1", "ckpt-9")))
    assert find_prefix(bilm.parent).name == "model.ckpt-12"


def test_only_selected_tensors_are_read(bilm: Path) -> None:
    assert list(read_tf_arrays(bilm, lambda name: name == "lm/softmax/b")) == ["lm/softmax/b"]


def test_published_names_of_a_bilm() -> None:
    arrays = published_names(read_tf_arrays(FIXTURES / "bilm"))
    cells = {f"RNN_{d}/RNN/MultiRNNCell/Cell{k}/LSTMCell/{part}" for d in (0, 1) for k in (0, 1) for part in LSTM_PARTS}
    cnn = {f"CNN/{kind}_cnn_{i}" for kind in "Wb" for i in range(3)}
    highway = {f"CNN_high_{k}/{kind}_{part}" for k in (0, 1) for kind in "Wb" for part in ("carry", "transform")}
    rest = {"char_embed", "CNN_proj/W_proj", "CNN_proj/b_proj", "softmax/W", "softmax/b"}
    assert arrays.keys() == cells | cnn | highway | rest
    raw = expected("bilm")
    cell = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/"
    tensorflow = "lm/RNN_1/rnn/multi_rnn_cell/cell_1/lstm_cell/"
    np.testing.assert_array_equal(arrays[cell + "W_0"], raw[tensorflow + "kernel"])
    np.testing.assert_array_equal(arrays[cell + "B"], raw[tensorflow + "bias"])
    np.testing.assert_array_equal(arrays[cell + "W_P_0"], raw[tensorflow + "projection/kernel"])


def test_published_names_of_one_layer_and_of_one_direction() -> None:
    one_layer = published_names(read_tf_arrays(FIXTURES / "one_layer"))
    names = {f"RNN_{d}/RNN/MultiRNNCell/Cell0/LSTMCell/{part}" for d in (0, 1) for part in LSTM_PARTS}
    assert {name for name in one_layer if name.startswith("RNN")} == names
    forward = published_names(read_tf_arrays(FIXTURES / "forward_words", is_bilm_variable))
    names = {f"RNN_0/RNN/MultiRNNCell/Cell{k}/LSTMCell/{part}" for k in (0, 1) for part in LSTM_PARTS}
    assert forward.keys() == names | {"embedding", "softmax/W", "softmax/b"}


def test_variable_of_the_language_model_without_a_place_is_refused() -> None:
    raw = read_tf_arrays(FIXTURES / "bilm")
    with pytest.raises(WeightsError, match=r"'lm/CNN_high_0/W_other' has no place in the model"):
        published_names({**raw, "lm/CNN_high_0/W_other": np.zeros(3, np.float32)})
    published_names({**raw, "lm/char_embed/Adagrad": raw["lm/char_embed"], "global_step": np.zeros(())})


def test_published_names_refuse_a_checkpoint_of_another_model() -> None:
    with pytest.raises(WeightsError, match=r"no bilm-tf model.*dense/kernel"):
        published_names({"dense/kernel": np.zeros(3, np.float32)})


def test_published_names_refuse_two_variables_of_one_name() -> None:
    raw = expected("bilm")
    raw["lm/rnn/multi_rnn_cell/cell_0/lstm_cell/bias"] = np.zeros(48, np.float32)
    with pytest.raises(WeightsError, match="both"):
        published_names(raw)


def slow_crc32c(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def test_crc32c_of_the_standard_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@given(st.integers(0, 5000), st.integers(0, 2**32))
def test_crc32c_equals_the_bitwise_definition(size: int, seed: int) -> None:
    data = random.Random(seed).randbytes(size)
    assert crc32c(data) == slow_crc32c(data)


def test_crc32c_over_several_chunks_equals_the_bitwise_definition() -> None:
    data = random.Random(1).randbytes((4 << 20) + 1029)
    register = crc32c(data[: 4 << 20]) ^ 0xFFFFFFFF
    for byte in data[4 << 20 :]:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    assert crc32c(data) == register ^ 0xFFFFFFFF


# Damaged and hostile files are always a WeightsError.


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
def test_truncated_files_are_refused(bilm: Path, suffix: str) -> None:
    path = bilm.with_name(bilm.name + suffix)
    original = path.read_bytes()
    rng = random.Random(3)
    for size in [0, 1, 47, 48, *(rng.randrange(len(original)) for _ in range(40))]:
        path.write_bytes(original[:size])
        with pytest.raises(WeightsError):
            read_tf_arrays(bilm)


def test_flipped_bytes_are_detected(bilm: Path) -> None:
    index, data = (bilm.with_name(bilm.name + suffix) for suffix in (".index", ".data-00000-of-00001"))
    rng = random.Random(4)
    arrays = expected("bilm")
    for path in (index, data):
        original = path.read_bytes()
        for _ in range(250):
            mutant = bytearray(original)
            mutant[rng.randrange(len(mutant))] ^= 1 << rng.randrange(8)
            path.write_bytes(mutant)
            try:
                mutant_arrays = read_tf_arrays(bilm)
            except WeightsError:
                continue
            for name, array in arrays.items():  # the flipped byte has no meaning, such as footer padding
                np.testing.assert_array_equal(mutant_arrays[name], array)
        path.write_bytes(original)


def test_changed_block_with_a_correct_checksum_is_read_or_refused(bilm: Path) -> None:
    """A hostile writer can change a block and store the matching checksum."""
    index = bilm.with_name(bilm.name + ".index")
    block = make_block(list(table_entries(index.read_bytes(), "fixture")))
    rng = random.Random(5)
    outcomes = set()
    for _ in range(500):
        mutant = bytearray(block)
        for _ in range(rng.choice((1, 1, 2, 5))):
            mutant[rng.randrange(len(mutant))] = rng.randrange(256)
        index.write_bytes(make_table(bytes(mutant)))
        try:
            read_tf_arrays(bilm)
            outcomes.add("read")
        except WeightsError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_error_names_the_missing_data_file(bilm: Path) -> None:
    bilm.with_name(bilm.name + ".data-00000-of-00001").unlink()
    with pytest.raises(WeightsError, match="data-00000-of-00001 is missing"):
        read_tf_arrays(bilm)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("needs 4398046511104 bytes", {"shape": (1 << 20, 1 << 20), "size": 12}),
        ("should be at", {"shape": (1 << 20, 1 << 20), "size": 4 << 40}),
        ("claims the shape", {"shape": (1 << 62, 1 << 62)}),
        ("claims the shape", {"shape": (1,) * 17}),
        ("should be at", {"offset": 1 << 60}),
        ("data file 9 of 1", {"shard": 9}),
        ("overlaps", {"offset": 4}),
        ("in slices", {"extra": b"\x3a\x00"}),
        ("number runs past", {"extra": b"\x08" + b"\xff" * 12}),
        ("number runs past", {"extra": b"\x08"}),
        ("unknown kind 3", {"extra": b"\x0b"}),
        ("claims 127 bytes", {"extra": b"\x12\x7f"}),
        ("checksum", {"crc": 5}),
    ],
)
def test_hostile_entries_are_refused(tmp_path: Path, message: str, change: dict) -> None:
    prefix = tmp_path / "model"
    data = np.arange(6, dtype="<f4").tobytes()
    (tmp_path / "model.data-00000-of-00001").write_bytes(data)
    good = entry(shape=(3,), size=12, offset=0, crc=masked_crc32c(data[:12]))
    fields = {"shape": (3,), "size": 12, "offset": 12, "crc": masked_crc32c(data[12:])}
    header = b"\x08\x01"
    (tmp_path / "model.index").write_bytes(
        make_table(make_block([(b"", header), (b"a", good), (b"b", entry(**fields))]))
    )
    assert read_tf_arrays(prefix)["b"].tolist() == [3.0, 4.0, 5.0]
    bad = entry(**{**fields, **change})
    (tmp_path / "model.index").write_bytes(make_table(make_block([(b"", header), (b"a", good), (b"b", bad)])))
    with pytest.raises(WeightsError, match=message):
        read_tf_arrays(prefix)


@pytest.mark.parametrize(
    ("message", "table"),
    [
        ("snappy", lambda block: make_table(block, compression=1)),
        ("unknown compression", lambda block: make_table(block, compression=7)),
        ("restart points", lambda block: make_table(block[:-4] + b"\xff\xff\xff\x7f")),
        ("reaches outside", lambda block: make_table(b"\x00\x01\x7f" + block[3:])),
        ("reaches outside", lambda block: make_table(b"\x05" + block[1:])),
        ("out of order", lambda block: make_table(make_block([(b"", b"\x08\x01"), (b"b", b""), (b"a", b"")]))),
        ("no header", lambda block: make_table(make_block([(b"a", b"")]))),
        ("data files", lambda block: make_table(make_block([(b"", b"\x08\xff\xff\xff\x7f")]))),
        ("not a variable name", lambda block: make_table(make_block([(b"", b"\x08\x01"), (b"\xff", b"")]))),
        ("at most 4096", lambda block: make_table(make_block([(b"", b"\x08\x01"), (b"x" * 5000, b"")]))),
        ("overlap or are out of order", lambda block: make_table(block, blocks_listed=3)),
        ("is empty", lambda block: make_table(make_block([]))),
        ("does not end like", lambda block: b"\x80\x02}q\x00." * 20),
        ("should be at", lambda block: make_table(block)[:-48] + footer(1 << 40, 1 << 40)),
    ],
)
def test_hostile_tables_are_refused(tmp_path: Path, message: str, table) -> None:
    (tmp_path / "model.index").write_bytes(table(make_block([(b"", b"\x08\x01")])))
    with pytest.raises(WeightsError, match=message):
        read_index(tmp_path / "model.index")


def test_v1_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt").write_bytes(make_table(make_block([(b"", b"")])))
    with pytest.raises(WeightsError, match="V1 checkpoint"):
        read_tf_arrays(tmp_path / "model.ckpt")


def test_missing_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="does not exist"):
        read_tf_arrays(tmp_path / "model.ckpt")
    with pytest.raises(WeightsError, match="no TensorFlow checkpoint"):
        read_tf_arrays(tmp_path)


def test_big_endian_and_small_types_are_read(tmp_path: Path) -> None:
    float16 = np.array([1.5, -2.0], dtype=">f2").tobytes()
    bfloat16 = np.array([0x3FC0, 0xC000], dtype=">u2").tobytes()  # 1.5 and -2 in bfloat16
    (tmp_path / "model.data-00000-of-00001").write_bytes(float16 + bfloat16)
    entries = [
        (b"", b"\x08\x01\x10\x01"),
        (b"bfloat16", entry(shape=(2,), size=4, offset=4, crc=masked_crc32c(bfloat16), dtype=14)),
        (b"float16", entry(shape=(2,), size=4, offset=0, crc=masked_crc32c(float16), dtype=19)),
    ]
    (tmp_path / "model.index").write_bytes(make_table(make_block(entries)))
    arrays = read_tf_arrays(tmp_path / "model")
    assert arrays["float16"].tolist() == arrays["bfloat16"].tolist() == [1.5, -2.0]
    assert (arrays["float16"].dtype, arrays["bfloat16"].dtype) == (np.float16, np.float32)
