"""Format detection: every format is detected, odd paths work, and anything else is a WeightsError."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import oracle
import pytest
import test_allennlp_archive as allennlp
import test_manylangs as manylangs
import torch
from published_models import SENTENCES, VOCAB, options_of, write_model

from elmo.embed.load import make_indexer
from elmo.errors import ElmoError, WeightsError
from elmo.text.batch import make_batch
from elmo.weights.formats import detect, read_model
from elmo.weights.lookup import tiny_random
from elmo.weights.model_parts import build
from elmo.weights.published import write_published
from elmo.weights.store import save_store
from elmo.weights.tf_checkpoint import find_prefix, published_names, read_tf_arrays

CHECKPOINTS = Path(__file__).parents[1] / "fixtures" / "tf_checkpoint"


@pytest.fixture
def published(tmp_path) -> Path:
    write_model(tmp_path / "published", 1, char_input=True, vocab=True)
    return tmp_path / "published"


def test_each_format_is_detected(tmp_path, published):
    save_store(tmp_path / "ours", tiny_random())
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.write(published / "options.json", "options.json")
    torch.save({"x": torch.zeros(1)}, tmp_path / "model.th")
    (tmp_path / "outer").mkdir()
    shutil.copytree(published, tmp_path / "outer" / "inner")
    (tmp_path / "outer" / "__MACOSX").mkdir()
    (tmp_path / "manylangs").mkdir()
    (tmp_path / "manylangs" / "encoder.pkl").touch()
    for path, kind in {
        tmp_path / "ours": "elmo",
        tmp_path / "ours" / "model.safetensors": "elmo",
        published: "hdf5",
        published / "weights.hdf5": "hdf5",
        published / "options.json": "hdf5",
        tmp_path / "packed.zip": "zip",
        tmp_path / "model.th": "allennlp",
        tmp_path / "outer": "nested",
        tmp_path / "manylangs": "manylangs",
        CHECKPOINTS / "bilm": "tensorflow",
        CHECKPOINTS / "bilm" / "model.ckpt-1.index": "tensorflow",
    }.items():
        assert detect(path) == kind, path


def test_folder_options_and_weights_paths_give_the_same_model(tmp_path, published):
    expected = read_model(published)
    (tmp_path / "outer").mkdir()
    shutil.copytree(published, tmp_path / "outer" / "inner")
    renamed = tmp_path / "renamed"
    shutil.copytree(published, renamed)
    (renamed / "weights.hdf5").rename(renamed / "elmo_2x2_weights.hdf5")
    (renamed / "options.json").rename(renamed / "elmo_2x2_options.json")
    for parts in (
        read_model(published / "weights.hdf5"),
        read_model(published / "options.json"),
        read_model(published / "options.json", published / "weights.hdf5"),
        read_model(str(published)),
        read_model(tmp_path / "outer"),
        read_model(renamed),
        read_model(renamed / "elmo_2x2_weights.hdf5"),
        read_model(renamed / "elmo_2x2_options.json"),
    ):
        assert parts.config == expected.config
        assert parts.vocab == tuple(VOCAB)
        for name, tensor in expected.tensors.items():
            np.testing.assert_array_equal(parts.tensors[name].numpy(), tensor.numpy())


@pytest.mark.skipif(os.name == "nt", reason="names that Windows forbids")
@pytest.mark.parametrize("name", ["with spaces", "emoji 🐱 ünï", "new\nline", "-dash", "quo'te\"", "[glob*?]", "%s{}"])
def test_odd_paths_work(tmp_path, name):
    folder = tmp_path / name
    write_model(folder / "published", 1, char_input=True, vocab=True)
    parts = read_model(folder / "published" / "weights.hdf5")
    assert parts.vocab == tuple(VOCAB)
    save_store(folder / name, parts)
    build(read_model(folder / name))


def test_path_that_is_not_a_model(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "model.pt").write_bytes(b"\x80\x02}q\x00.")
    for path, word in (
        (tmp_path / "none", "No such file"),
        (tmp_path / "text.txt" / "x", "Not a directory"),
        (tmp_path / "empty", "no model found"),
        (tmp_path / "text.txt", "not a model file of a supported format"),
        (tmp_path / "model.pt", "not a model file of a supported format"),
        (tmp_path / "nul\0byte", "null"),
        (tmp_path / ("x" * 300), "too long"),
    ):
        with pytest.raises(WeightsError, match=word):
            read_model(path)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_unreadable_folder_is_reported(published):
    published.chmod(0)
    with pytest.raises(WeightsError, match="Permission denied"):
        read_model(published)
    published.chmod(0o700)


@pytest.mark.skipif(os.name == "nt", reason="no fifo")
def test_fifo_and_device_do_not_hang(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(WeightsError, match="neither a file nor a folder"):
            read_model(path)


@pytest.mark.skipif(os.name == "nt", reason="symbolic links")
def test_cyclic_links_are_refused(tmp_path):
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "inner").symlink_to(tmp_path / "loop")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    for path in (tmp_path / "loop", tmp_path / "self"):
        with pytest.raises(WeightsError):
            read_model(path)


def test_error_for_an_ambiguous_folder_names_the_files(published):
    shutil.copy(published / "weights.hdf5", published / "other.hdf5")
    with pytest.raises(WeightsError, match=r"2 weights .*other\.hdf5, weights\.hdf5"):
        read_model(published)


def test_weights_without_options(published):
    (published / "options.json").unlink()
    with pytest.raises(WeightsError, match="no options file next to it"):
        read_model(published / "weights.hdf5")
    with pytest.raises(WeightsError, match=r"0 options .*none"):
        read_model(published)


@pytest.mark.parametrize("variant", ["bilm", "sharded", "one_layer", "forward_words"])
def test_checkpoint_with_options_builds_a_network(tmp_path, variant):
    folder = tmp_path / variant
    shutil.copytree(CHECKPOINTS / variant, folder)
    with pytest.raises(ElmoError, match="options files next to the checkpoint"):
        read_model(folder)
    arrays = published_names(read_tf_arrays(find_prefix(folder)))
    (folder / "options.json").write_text(json.dumps(options_of(arrays)))
    parts = read_model(folder)
    assert parts.format == "tensorflow"
    model = build(parts)
    assert (model.head is not None) == ("softmax/b" in arrays)
    for name, array in arrays.items():
        if name.endswith("Cell0/LSTMCell/W_0"):
            direction = int(name[4])
            kernel = parts.tensors[f"stacks.{direction}.layers.0.kernel"]
            np.testing.assert_array_equal(kernel.numpy(), array)


def test_allennlp_archive_gives_the_vectors_of_the_oracle(tmp_path):
    parts = read_model(allennlp.archive(tmp_path / "model.tar.gz"))
    assert parts.format == "allennlp"
    assert [round(gamma, 6) for _, gamma in parts.mixes] == [1.5, 0.25]
    fixture = oracle.load(allennlp.FIXTURE / "options.json", allennlp.FIXTURE / "lm_weights.hdf5")
    expected, _ = oracle.run(*fixture, SENTENCES)
    batch = make_batch(SENTENCES, make_indexer(parts))
    with torch.no_grad():
        layers = build(parts)(torch.from_numpy(batch.ids), torch.from_numpy(batch.mask)).layers.numpy()
    for row, reference in enumerate(expected):
        np.testing.assert_allclose(
            layers[:, row, : reference.shape[1]], reference, atol=1e-5
        )  # float32 against float64


@pytest.mark.parametrize(("word_dim", "char_dim"), [(4, 7), (0, 7), (4, 0)])
def test_manylangs_folder_builds_a_network_with_the_same_token_layer(tmp_path, word_dim, char_dim):
    settings = json.loads(json.dumps(manylangs.SETTINGS))
    settings["token_embedder"] |= {"word_dim": word_dim, "char_dim": char_dim}
    if not char_dim:
        settings["token_embedder"] |= {"filters": [], "n_highway": 0}
    module, _ = manylangs.write_folder(tmp_path / "m", word_dim, char_dim, settings=settings)
    parts = read_model(tmp_path / "m")
    assert parts.format == "manylangs"
    sentences = [["ab", "水é", "unseen", "b"], ["é"]]
    batch = make_batch(sentences, make_indexer(parts))
    rows = torch.from_numpy(batch.ids)[0].long()  # (T, W)
    width = parts.config.chars.max_chars if parts.config.chars else 0
    chars = rows[:, :width] - 1  # (T, C)
    words = rows[:, -1] - 1 if parts.config.words else rows[:, 0]  # (T,)
    with torch.no_grad():
        expected = module(words, chars)  # (T, P)
        token_layer = build(parts)(torch.from_numpy(batch.ids), torch.from_numpy(batch.mask)).layers[0, 0]  # (T, 2P)
    torch.testing.assert_close(token_layer, torch.cat([expected, expected], dim=-1), rtol=1e-5, atol=1e-5)
    save_store(tmp_path / "ours", parts)
    second = read_model(tmp_path / "ours")
    assert (second.lexicon, second.config) == (parts.lexicon, parts.config)
    with pytest.raises(ElmoError, match="another token layer"):
        write_published(tmp_path / "back", parts)
