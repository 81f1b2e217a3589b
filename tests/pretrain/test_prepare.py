"""Preparing text: the contents of the folder, held-out sentences, reuse, workers, bad text, and damaged folders."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import ConfigError, DataError, OutputError
from elmo.files import file_lock
from elmo.pretrain.data.corpus import Reading
from elmo.pretrain.data.prepare import prepare
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.prepared import PreparedData, Split, open_prepared
from elmo.pretrain.data.stateless_random import derive_key, permutation
from elmo.pretrain.data.type_table import char_rows
from elmo.text.chars import BEGIN_SENTENCE, END_SENTENCE, boundary_row, encode_token

ROOT = Path(__file__).resolve().parent.parent.parent
TRAIN = ROOT / "tests" / "fixtures" / "bilm-tf" / "train"


def prepare_text(folder: Path, text: str, name: str = "prepared", **options) -> PreparedData:
    path = folder / "text.txt"
    path.write_text(text, encoding="utf-8")
    options = {"heldout": 0.0, "min_count": 1, **options}
    return prepare(PrepareConfig(files=(str(path),), **options), folder / name, num_workers=1)


def sentences_of(data: PreparedData, split: Split) -> list[list[str]]:
    sentences = []
    for number in range(len(split.shards)):
        tokens, offsets = split.shard(number)
        words = data.type_words(tokens)
        sentences += [words[a:b] for a, b in pairwise(offsets)]
    return sentences


def test_the_reference_corpus_with_its_vocabulary(tmp_path):
    vocab = str(TRAIN / "vocab.txt")
    config = PrepareConfig(files=(str(TRAIN / "data.txt"),), vocab_path=vocab, heldout=0, max_chars=10)
    data = prepare(config, tmp_path / "out", num_workers=1)
    lines = (TRAIN / "data.txt").read_text(encoding="utf-8").splitlines()
    assert sentences_of(data, data.train) == [line.split() for line in lines]
    assert (data.train.num_sentences, data.train.num_tokens) == (len(lines), sum(len(line.split()) for line in lines))
    assert data.vocab.words == (TRAIN / "vocab.txt").read_text(encoding="utf-8").split()
    words = data.type_words(np.arange(data.num_types))
    assert words[: data.vocab_size] == data.vocab.words, "a type id below V is the vocabulary id"
    counts = Counter(word for line in lines for word in line.split())
    assert words[data.vocab_size :] == sorted(
        set(counts) - set(data.vocab.words), key=lambda word: (-counts[word], word)
    )
    assert data.type_chars.shape == (data.num_types, 10)
    assert data.type_chars[data.bos].tolist() == boundary_row(BEGIN_SENTENCE, 10).tolist()
    assert data.type_chars[data.eos].tolist() == boundary_row(END_SENTENCE, 10).tolist()
    for number, word in enumerate(words):
        if number not in (data.bos, data.eos):
            assert data.type_chars[number].tolist() == encode_token(word, 10).tolist()
    expected = sum(n for word, n in counts.items() if word not in data.vocab.words) / sum(counts.values())
    assert data.manifest["unknown_share"]["train"] == pytest.approx(expected)


def test_special_words_anywhere_in_a_vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text("</S>\n<S>\nthe\n<UNK>\n", encoding="utf-8")
    data = prepare_text(tmp_path, "the cat\n", vocab_path=str(tmp_path / "vocab.txt"))
    assert (data.eos, data.bos, data.unk, data.vocab_size, data.num_types) == (0, 1, 3, 4, 5)
    assert data.type_chars[1, 1] == BEGIN_SENTENCE + 1
    assert data.type_chars[3].tolist() == encode_token("<UNK>").tolist()


@settings(max_examples=40)
@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1), min_size=1), min_size=1))
def test_any_words_can_be_read_back(sentences):
    with tempfile.TemporaryDirectory() as folder:
        text = "".join(" ".join(s) + "\n" for s in sentences)
        data = prepare_text(Path(folder), text, reading=Reading(specials="escape"), max_vocab=6)
        escaped = {special: f"&lt;{special[1:-1]}&gt;" for special in ("<S>", "</S>", "<UNK>")}
        expected = [[escaped.get(word, word) for word in line.split()] for line in text.split("\n") if line.split()]
        assert sentences_of(data, data.train) == expected


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30)), st.integers(3, 60))
def test_char_rows_equal_encode_token(words, max_chars):
    rows = char_rows([word.encode() for word in words], max_chars)
    assert rows.tolist() == [encode_token(word, max_chars).tolist() for word in words]


# ---- held-out text -------------------------------------------------------------------------------------------------

MANY = "".join(f"sentence number {i % 700} .\n" for i in range(1000))  # 300 of them twice


def test_the_choice_of_heldout_sentences_depends_on_each_sentence_alone(tmp_path):
    data = prepare_text(tmp_path, MANY, heldout=0.2)
    heldout, train = (set(map(tuple, sentences_of(data, split))) for split in (data.heldout, data.train))
    assert not heldout & train, "equal sentences are in the same split"
    assert 0.1 < data.heldout.num_sentences / 1000 < 0.3
    assert data.heldout.num_sentences + data.train.num_sentences == 1000
    longer = prepare_text(tmp_path, MANY + "".join(f"more {i}\n" for i in range(100)), "longer", heldout=0.2)
    assert heldout <= set(map(tuple, sentences_of(longer, longer.heldout))), "more text does not move a sentence"
    other = prepare_text(tmp_path, MANY, "seed", heldout=0.2, seed=1)
    assert heldout != set(map(tuple, sentences_of(other, other.heldout)))


def test_heldout_words_do_not_enter_the_vocabulary(tmp_path):
    data = prepare_text(tmp_path, "".join(f"w{i} the\n" for i in range(500)), heldout=0.1)
    heldout_words = {sentence[0] for sentence in sentences_of(data, data.heldout)}
    assert heldout_words
    assert not heldout_words & set(data.vocab.words)
    assert data.manifest["unknown_share"]["heldout"] == pytest.approx(0.5)


def test_heldout_text_has_a_maximum_and_a_minimum(tmp_path):
    data = prepare_text(tmp_path, "".join(f"w{i}\n" for i in range(500)), heldout=0.5, max_heldout=10)
    assert data.heldout.num_sentences == 10
    few = prepare_text(tmp_path, "".join(f"w{i}\n" for i in range(20)), "few", heldout=1e-9)
    assert few.heldout.num_sentences == 1
    one = prepare_text(tmp_path, "the same\n" * 30, "one", heldout=0.999)
    assert (one.train.num_sentences, one.heldout.num_sentences) == (30, 0), "never all sentences"


def test_heldout_files_and_sources(tmp_path, caplog):
    for name, text in (("a", "a one\na two\n"), ("b", "b one\n"), ("x", "x one\nx two\nb one\n"), ("y", "y one\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    files, heldout = tuple(str(tmp_path / n) for n in "ab"), tuple(str(tmp_path / n) for n in "xy")
    data = prepare(PrepareConfig(files=files, heldout_files=heldout), tmp_path / "out", num_workers=1)
    assert [s[0] for s in sentences_of(data, data.heldout)] == ["x", "x", "b", "y"]
    assert data.heldout_sources() == {heldout[0]: range(3), heldout[1]: range(3, 4)}
    assert [(s["sentences"], s["heldout_sentences"]) for s in data.manifest["sources"]] == [
        (2, 0),
        (1, 0),
        (0, 3),
        (0, 1),
    ]
    assert data.manifest["repeated_heldout"] == 1
    assert caplog.records, "a held-out sentence that is also training text gives a warning"
    with pytest.raises(ConfigError, match="both training and held-out"):
        prepare(PrepareConfig(files=files, heldout_files=files[:1]), tmp_path / "other")


# ---- reuse ---------------------------------------------------------------------------------------------------------


def test_the_same_text_and_options_reuse_the_folder(tmp_path):
    data = prepare_text(tmp_path, MANY, heldout=0.1)
    before = (data.folder / "manifest.json").stat().st_mtime_ns
    reused = prepare_text(tmp_path, MANY, heldout=0.1)  # the text file is written again: same bytes, other time
    assert reused.fingerprint == data.fingerprint
    assert (data.folder / "manifest.json").stat().st_mtime_ns == before
    assert prepare_text(tmp_path, MANY, "elsewhere", heldout=0.1).fingerprint == data.fingerprint


def test_the_error_for_other_text_or_options_lists_the_differences(tmp_path):
    prepare_text(tmp_path, MANY)
    with pytest.raises(OutputError, match=r"max_chars: 50 then, 60 now\n  min_count: 1 then, 3 now"):
        prepare_text(tmp_path, MANY, max_chars=60, min_count=3)
    with pytest.raises(OutputError, match=r"text\.txt: differs from the text that was prepared"):
        prepare_text(tmp_path, MANY.replace("7", "8"))
    (tmp_path / "mine").mkdir()
    with pytest.raises(OutputError, match="is not prepared text"):
        prepare_text(tmp_path, MANY, "mine")


def test_added_removed_and_reordered_files_are_named_by_their_paths(tmp_path):
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(f"only {name}\n" * 3 + MANY, encoding="utf-8")
    paths = {name: str(tmp_path / f"{name}.txt") for name in "abcd"}

    def again(files: str, heldout: str) -> str:
        config = PrepareConfig(files=tuple(paths[n] for n in files), heldout_files=tuple(paths[n] for n in heldout))
        with pytest.raises(OutputError) as caught:
            prepare(config, tmp_path / "out", num_workers=1)
        *lines, _ = caught.value.hint.replace(str(tmp_path) + "/", "").split("\n  ")
        return "; ".join(lines)

    prepare(PrepareConfig(files=(paths["a"], paths["b"]), heldout_files=(paths["c"],)), tmp_path / "out", num_workers=1)
    assert again("abd", "c") == "d.txt: new"
    assert again("a", "c") == "b.txt: no longer named"
    assert again("da", "c") == "d.txt: new; b.txt: no longer named"
    assert again("ba", "c") == "the order of the files differs"
    swapped = "c.txt: heldout then, train now; b.txt: train then, heldout now; the order of the files differs"
    assert again("ac", "b") == swapped
    (tmp_path / "b.txt").rename(tmp_path / "e.txt")  # the same text under another name
    paths["b"] = str(tmp_path / "e.txt")
    assert again("abd", "c") == "d.txt: new"
    config = PrepareConfig(files=(paths["a"], paths["b"]), heldout_files=(paths["c"],))
    assert prepare(config, tmp_path / "out", num_workers=1).heldout.num_sentences == 1003


def test_overwrite_replaces_the_folder(tmp_path):
    prepare_text(tmp_path, MANY)
    (tmp_path / "text.txt").write_text("other text\n", encoding="utf-8")
    config = PrepareConfig(files=(str(tmp_path / "text.txt"),), heldout=0)
    assert prepare(config, tmp_path / "prepared", overwrite=True).train.num_tokens == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["prepared", "text.txt"], "no temporary file remains"


def test_workers_do_not_change_the_result(tmp_path):
    lines = [f"the w{i % 5000} of {'abc' * (i % 9)} ." for i in range(450_000)]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")  # more than one job
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("\n".join(lines[:99]).encode()))
    config = PrepareConfig(files=(str(tmp_path / "a.txt"), str(tmp_path / "b.txt.gz")), shard_tokens=1_000_000)
    one = prepare(config, tmp_path / "one", num_workers=1)
    two = prepare(config, tmp_path / "two", num_workers=2)
    assert one.fingerprint == two.fingerprint
    assert len(one.train.shards) == 2
    assert one.train.num_sentences + one.heldout.num_sentences == 450_099
    assert one.heldout.num_sentences <= 10_000


# ---- bad text ------------------------------------------------------------------------------------------------------


def test_bad_files_are_named_in_the_error_and_no_folder_remains(tmp_path):
    (tmp_path / "good.txt").write_text(MANY, encoding="utf-8")
    bad = {
        "latin.txt": (b"fine\ncaf\xe9 x\n", r"latin\.txt:2: byte 8 \(0xe9\)"),
        "cut.txt.gz": (gzip.compress(MANY.encode())[:-30], r"cut\.txt\.gz: cannot be read past byte"),
        "empty.txt": (b"", r"empty\.txt contains no sentence"),
        "blank.txt": (b"\n\n \n", r"blank\.txt contains no sentence"),
        "special.txt": (b"a b\na <UNK>\n", r"special\.txt:2: the word <UNK>"),
    }
    for name, (content, message) in bad.items():
        (tmp_path / name).write_bytes(content)
        config = PrepareConfig(files=(str(tmp_path / "good.txt"), str(tmp_path / name)))
        with pytest.raises(DataError, match=message):
            prepare(config, tmp_path / "out", num_workers=1)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    config = PrepareConfig(files=(str(tmp_path / "*.txt*"),), reading=Reading(errors="skip"), heldout=0)
    data = prepare(config, tmp_path / "out", num_workers=1)
    assert data.train.num_sentences == 1000, "no text of a bad file is used"
    skipped = {Path(source["path"]).name for source in data.manifest["sources"] if source["skipped"]}
    assert skipped == set(bad)


def test_no_training_text_is_an_error(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    config = PrepareConfig(files=(str(tmp_path / "a"),), reading=Reading(errors="skip"))
    with pytest.raises(DataError, match="not one sentence"):
        prepare(config, tmp_path / "out")


def test_replaced_bytes_are_counted(tmp_path):
    (tmp_path / "a").write_bytes(b"caf\xe9 x\n")
    config = PrepareConfig(files=(str(tmp_path / "a"),), reading=Reading(errors="replace"), min_count=1)
    data = prepare(config, tmp_path / "out")
    assert sentences_of(data, data.train) == [["caf\ufffd", "x"]]
    assert data.manifest["sources"][0]["replaced_characters"] == 1


def test_one_token_and_one_very_long_line(tmp_path):
    assert prepare_text(tmp_path, "word\n", heldout=0.01).train.num_positions == 2
    long = prepare_text(tmp_path, "the cat " * 1_500_000, "long")  # 12 MB: more than a job
    assert (long.train.num_sentences, long.train.num_tokens) == (1, 3_000_000)


def test_rare_words_beyond_max_types_become_unknown(tmp_path):
    text = "the cat sat\n" * 10 + "".join(f"rare{i} the\n" for i in range(100))
    data = prepare_text(tmp_path, text, max_types=30)
    assert data.num_types == 6
    assert data.manifest["forgotten_types"] == 100
    assert sentences_of(data, data.train)[-1] == ["<UNK>", "the"]
    assert data.train.num_tokens == 230, "no token is lost"


def test_standard_input_is_prepared(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MANY.encode())))
    data = prepare(PrepareConfig(files=("-",)), tmp_path / "out")
    assert data.train.num_sentences + data.heldout.num_sentences == 1000
    with pytest.raises(OutputError, match="standard input: cannot be compared"):
        prepare(PrepareConfig(files=("-",)), tmp_path / "out")


# ---- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["train-00000.tokens.npy", "train-00000.offsets.npy", "type_chars.npy", "types.bin"])
@pytest.mark.parametrize("damage", ["truncate", "empty", "delete"])
def test_a_damaged_file_is_named_in_the_error(tmp_path, name, damage):
    path = prepare_text(tmp_path, MANY).folder / name
    if damage == "delete":
        path.unlink()
    else:
        os.truncate(path, 0 if damage == "empty" else path.stat().st_size - 1)
    message = {"truncate": "cut short or changed", "empty": "is empty", "delete": "No such file"}[damage]
    with pytest.raises(DataError, match=f"{name}.*{message}"):
        open_prepared(path.parent)


def test_changed_bytes_are_detected_with_verify(tmp_path):
    folder = prepare_text(tmp_path, MANY).folder
    content = bytearray((folder / "train-00000.tokens.npy").read_bytes())
    content[-3] ^= 1
    (folder / "train-00000.tokens.npy").write_bytes(content)
    open_prepared(folder)
    with pytest.raises(DataError, match=r"train-00000\.tokens\.npy is damaged"):
        open_prepared(folder, verify=True)
    (folder / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes()[::-1])
    with pytest.raises(DataError, match=r"vocab\.txt is damaged"):
        open_prepared(folder)


def test_changed_bytes_are_detected_when_the_folder_is_used_again(tmp_path):
    data = prepare_text(tmp_path, MANY)
    path = data.folder / "train-00000.tokens.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train-00000\.tokens\.npy is damaged"):
        prepare_text(tmp_path, MANY)


@pytest.mark.parametrize(("key", "value"), [("size", 5), ("unk", 0), ("bos", 1)])
def test_a_manifest_that_contradicts_the_vocabulary_is_an_error(tmp_path, key, value):
    folder = prepare_text(tmp_path, MANY).folder
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["vocab"][key] = value
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(DataError, match=rf"vocab\.{key} is {value}; vocab\.txt has"):
        open_prepared(folder)


def test_a_second_process_that_prepares_a_folder_is_refused_and_names_the_first(tmp_path):
    with file_lock(tmp_path / ".prepared.lock", "", ""):
        with pytest.raises(OutputError, match=rf"prepared is being prepared by process {os.getpid()} on"):
            prepare_text(tmp_path, MANY)
    assert not (tmp_path / "prepared").exists()
    data = prepare_text(tmp_path, MANY)
    with file_lock(tmp_path / ".prepared.lock", "", ""):  # a finished folder is only read
        assert prepare_text(tmp_path, MANY).fingerprint == data.fingerprint


def test_a_text_whose_name_is_not_utf8_is_prepared(tmp_path):
    path = tmp_path / "caf\udce9.txt"
    try:
        path.write_text("a b c\n" * 30, encoding="utf-8")
    except (OSError, UnicodeError):
        pytest.skip("the file system allows only UTF-8 names")
    data = prepare(PrepareConfig(files=(str(path),), heldout=0), tmp_path / "out")
    assert data.manifest["sources"][0]["path"] == str(path)


def test_an_invalid_manifest_is_an_error(tmp_path):
    folder = prepare_text(tmp_path, MANY).folder
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for content, message in (
        ("{", "not valid JSON"),
        ("[]", "expected a JSON object"),
        ("{}", "does not describe prepared text"),
        (json.dumps(manifest | {"version": 99}), "has version 99"),
        (json.dumps({k: v for k, v in manifest.items() if k != "files"}), "files is missing"),
    ):
        (folder / "manifest.json").write_text(content, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            open_prepared(folder)
    shutil.rmtree(folder)
    with pytest.raises(DataError, match="No such file"):
        open_prepared(folder)


# ---- random numbers and the command --------------------------------------------------------------------------------


def test_permutation_equals_integer_arithmetic():
    def mix(value: int) -> int:
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
        return value ^ value >> 31

    key = mix((mix((1 + 0x9E3779B97F4A7C15) % 2**64) + 2 + 0x9E3779B97F4A7C15) % 2**64)
    assert derive_key(1, 2) == key
    assert permutation(100, key).tolist() == sorted(range(100), key=lambda i: mix(i ^ key))
    assert sorted(permutation(1000, 7)) == list(range(1000))
    assert derive_key(1, 2) != derive_key(2, 1) != derive_key(1)


def elmo(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "elmo", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, encoding="utf-8")


def test_the_command_prepares_and_checks_text(tmp_path):
    (tmp_path / "a.txt").write_text("It's one. It's two.\n" * 50, encoding="utf-8")
    done = elmo("prepare", "a.txt", "--tokenize", "default", "--out", "out", "--heldout", "0", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["sentences"], summary["words"], summary["vocabulary"]) == (100, 400, 8)
    assert open_prepared(tmp_path / "out").train.num_tokens == 400
    check = elmo("prepare", "a.txt", "--check", cwd=tmp_path)
    assert check.returncode == 0
    assert "looks untokenised" in check.stdout
    (tmp_path / "bad.txt").write_bytes(b"\xff\n")
    bad = elmo("prepare", "bad.txt", "--check", "--json", cwd=tmp_path)
    assert bad.returncode == 1
    assert "bad.txt:1: byte 0" in json.loads(bad.stdout)["errors"][0]
    other = elmo("prepare", "a.txt", "--out", "out", cwd=tmp_path)
    assert other.returncode == 1
    assert "tokenize: 'default' then, None now" in other.stderr
    assert elmo("prepare", "a.txt", cwd=tmp_path).returncode == 2
