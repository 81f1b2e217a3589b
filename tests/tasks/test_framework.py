"""What all six tasks stand on: settings, words, vectors files, cached layers, the input part of a model, batches."""

from __future__ import annotations

import lzma
from dataclasses import replace

import numpy as np
import pytest
import tiny_tasks
import torch
from hypothesis import given
from hypothesis import strategies as st

import elmo
from elmo.errors import ConfigError, DataError, OutputError
from elmo.tasks.batches import group, plan_epoch
from elmo.tasks.config import make_config
from elmo.tasks.elmo_input import make_inputs
from elmo.tasks.layer_cache import LayerSource, model_sha256
from elmo.tasks.raw_text import read_raw
from elmo.tasks.run import new_run
from elmo.tasks.task import TASKS, load_task
from elmo.tasks.token_batch import BatchMaker, TokenBatch, to_device
from elmo.tasks.word_vectors import read_vectors
from elmo.tasks.word_vocabulary import UNKNOWN, Symbols, char_ids, make_symbols, start_vectors

SENTENCES = [["The", "bank", "of", "the", "river", "."], ["Yes"], ["A", "bank", "."]]


@pytest.fixture(scope="module")
def embedder():
    return elmo.load("tiny-random", device="cpu")


def config_with(**sections):
    return make_config(load_task("ner"), sections)


# ---- settings and tasks ----------------------------------------------------------------------------------------------


def test_task_names_are_suggested():
    with pytest.raises(ConfigError, match="no task 'nerr'") as caught:
        load_task("nerr")
    assert "'ner'" in caught.value.hint


@pytest.mark.parametrize("name", ["ner", "sst"])
def test_a_task_answers_to_its_name(name):
    task = load_task(name)
    assert task.name == name
    assert name in TASKS
    make_config(task)  # its defaults are settings that exist


@pytest.mark.parametrize(
    ("sections", "message", "hint"),
    [
        ({"train": {"epoch": 3}}, "'train.epoch'", "'train.epochs'"),
        ({"model": {"hidden": 3}}, "'model.hidden'", "'model.hidden_dim'"),
        ({"elmo": {"mode": "frosen"}}, "frosen", "'frozen'"),
        ({"train": {"epochs": "many"}}, "train.epochs is 'many'; expected a whole number", ""),
        ({"elmo": {"dropout": 2.0}}, "elmo.dropout is 2.0; expected 0 to 1", ""),
        ({"data": {"fraction": 0.0}}, "data.fraction", ""),
        ({"words": {"dim": 0}, "chars": {"num_filters": 0}}, "no input", "words.dim"),
        ({"train": 3}, "expected a table", ""),
    ],
)
def test_bad_settings_are_named(sections, message, hint):
    with pytest.raises(ConfigError) as caught:
        config_with(**sections)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_settings_go_to_plain_values_and_back():
    config = config_with(elmo={"mode": "frozen", "place": "both"}, optim={"lr": 1}, words={"vectors": "off"})
    assert make_config(load_task("ner"), config.to_dict()) == config
    assert config.optim.lr == 1.0
    assert config.words.vectors is None


# ---- words and vectors -----------------------------------------------------------------------------------------------


def test_vectors_are_read_with_and_without_a_first_line(tmp_path):
    lines = "the 1 2 3\nBank 4 5 6\n. . 7 8 9\nthe 0 0 0\nrare 1 1 1\n"
    plain, headed = tmp_path / "plain.txt", tmp_path / "headed.txt.xz"
    plain.write_text(lines, encoding="utf-8")
    headed.write_bytes(lzma.compress(f"5 3\n{lines}".encode()))
    for path in (plain, headed):
        table = read_vectors(path, ["The", "Bank", ". ."])
        assert table.dim == 3
        assert table.find("THE").tolist() == [1, 2, 3]  # lower-cased, and the first of two
        assert table.find("Bank").tolist() == [4, 5, 6]
        assert table.find(". .").tolist() == [7, 8, 9]
        assert table.find("rare") is None
    assert set(read_vectors(plain, ["rare"], extra=1).rows) == {"the", "rare"}


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"the 1 2\nbank 1\n", ":2: 1 numbers"),
        (b"the 1 x\n", ":1: could not convert"),
        (b"the 1 nan\n", ":1: a number that is not finite"),
        (b"\xff\xfe 1 2\n", ":1: byte 0 (0xff) is not UTF-8"),
        (b"the\nbank 1 2\n", ":1: no numbers after the word; expected word2vec's text format"),
        (b"", ": no vector"),
    ],
)
def test_bad_vectors_are_named_with_their_line(tmp_path, content, place):
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_vectors(path, ["the", "bank"])
    assert f"{path}{place}" in caught.value.message


def test_damaged_vectors_are_named(tmp_path):
    path = tmp_path / "vectors.txt.xz"
    path.write_bytes(lzma.compress(b"the 1 2\n" * 1000)[:-20])
    with pytest.raises(DataError, match=r"vectors\.txt\.xz: cannot be read past"):
        read_vectors(path, ["the"])


def test_symbols_keep_frequent_words_and_those_with_vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("river 1 1\ndevword 2 2\nextra 3 3\n", encoding="utf-8")
    training, other = [["a", "a", "once", "River"]], [["devword", "never"]]
    assert make_symbols(training, other, None, min_count=2).words == ("a",)
    table = read_vectors(path, ["a", "once", "River", "devword", "never"], extra=3)
    symbols = make_symbols(training, other, table, min_count=2)
    assert set(symbols.words) == {"a", "River", "devword", "river", "extra"}
    assert symbols.id("RIVER") == symbols.id("river")
    assert symbols.id("never") == UNKNOWN
    start = start_vectors(symbols, table, 2, seed=0)
    assert start[symbols.id("River")].tolist() == [1, 1]
    assert not start[0].any()


def test_chance_vectors_depend_on_word_and_seed_alone():
    few, many = Symbols(["b"]), Symbols(["a", "b"])
    first, second = start_vectors(few, None, 5, seed=1), start_vectors(many, None, 5, seed=1)
    assert np.array_equal(first[few.id("b")], second[many.id("b")])
    assert not np.array_equal(first, start_vectors(few, None, 5, seed=2))


def test_long_words_keep_both_ends():
    ids = char_ids("abcdefgh", 5)
    assert bytes(i - 1 for i in ids[1:-1]) == b"abcgh"
    assert len(char_ids("\ud800", 5)) == 5  # a lone surrogate is three bytes


# ---- layers of a frozen biLM -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["memory", "disk", "off"])
def test_cached_layers_are_the_embedders(embedder, tmp_path, cache):
    source = LayerSource(embedder, model_sha256(embedder), cache=cache, cache_dir=tmp_path)
    source.prepare(SENTENCES[:2])
    found = source.layers([*SENTENCES, []], T=7)  # the third was not prepared
    assert found.shape == (3, 4, 7, embedder.dim)
    for row, sentence in enumerate(SENTENCES):
        expected = torch.from_numpy(embedder.layers([sentence])[0])
        # float16 keeps eleven bits
        torch.testing.assert_close(found[:, row, : len(sentence)].float(), expected, rtol=1e-3, atol=1e-4)
        assert not found[:, row, len(sentence) :].any()
    assert not found[:, 3].any()


def test_layers_laid_out_on_a_device_are_the_same(embedder, tmp_path):
    source = LayerSource(embedder, model_sha256(embedder))
    source.prepare(SENTENCES[:2])
    source.prepare(SENTENCES)  # knows two of them already
    rows = [[SENTENCES[2], SENTENCES[1]], [SENTENCES[0]], [], [[], SENTENCES[2]]]
    before = source.joined(rows, T=8)
    source.lay_out(torch.device("cpu"))
    assert torch.equal(source.joined(rows, T=8), before)
    assert torch.equal(before[:, 0, 3], source.layers([SENTENCES[1]], T=1)[:, 0, 0])
    assert before[:, 1, :6].any()
    assert source.joined([[["never", "seen"]]], T=2).any()


def test_rows_of_several_sentences_read_as_one_row_of_words(embedder):
    maker = maker_for(embedder, "frozen")
    joined = maker.joined([[SENTENCES[2], SENTENCES[1]], [SENTENCES[0]]])
    whole = maker.tokens([[*SENTENCES[2], *SENTENCES[1]], SENTENCES[0]])
    for name in ("words", "mask", "chars"):
        assert torch.equal(getattr(joined, name), getattr(whole, name))
    alone = maker.tokens([SENTENCES[1]])
    torch.testing.assert_close(joined.layers[:, 0, 3], alone.layers[:, 0, 0])
    assert not torch.allclose(whole.layers[:, 0, 3], alone.layers[:, 0, 0])  # read in another sentence


def test_layers_on_disk_are_found_again_by_model_and_text(embedder, tmp_path):
    LayerSource(embedder, model_sha256(embedder), cache="disk", cache_dir=tmp_path).prepare(SENTENCES)
    (file,) = tmp_path.iterdir()
    before = file.stat().st_mtime_ns
    again = LayerSource(embedder, model_sha256(embedder), cache="disk", cache_dir=tmp_path)
    again.prepare(SENTENCES)
    assert file.stat().st_mtime_ns == before
    again.prepare([["other", "text"]])
    assert len(list(tmp_path.iterdir())) == 2


def test_damaged_layers_on_disk_are_refused(embedder, tmp_path):
    LayerSource(embedder, model_sha256(embedder), cache="disk", cache_dir=tmp_path).prepare(SENTENCES)
    (file,) = tmp_path.iterdir()
    np.save(file, np.zeros((2, 3), dtype=np.float16))
    again = LayerSource(embedder, model_sha256(embedder), cache="disk", cache_dir=tmp_path)
    with pytest.raises(DataError, match="expected float16"):
        again.prepare(SENTENCES)
    for damage in (b"", file.read_bytes()[:-1], b"no array at all"):
        file.write_bytes(damage)
        with pytest.raises(DataError, match="damaged") as caught:
            again.prepare(SENTENCES)
        assert str(file) in caught.value.message


def test_a_cache_folder_that_cannot_be_made_is_named(embedder, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        LayerSource(embedder, model_sha256(embedder), cache="disk", cache_dir=tmp_path / "file").prepare(SENTENCES)


# ---- the input part of a model ---------------------------------------------------------------------------------------


def maker_for(embedder, mode):
    symbols = Symbols(["the", "bank", "."])
    source = LayerSource(embedder, model_sha256(embedder), cache="off") if mode == "frozen" else None
    indexer = embedder.indexer if mode == "tuned" else None
    return BatchMaker(symbols, {"tag": ("O",)}, max_chars=10, source=source, indexer=indexer)


@pytest.mark.parametrize("place", ["input", "output", "both"])
@pytest.mark.parametrize("layers", ["all", "top"])
def test_elmo_enters_where_it_is_asked_for(embedder, place, layers):
    config = config_with(elmo={"mode": "frozen", "place": place, "layers": layers, "penalty": 1.0})
    inputs = make_inputs(config, np.zeros((5, 7), dtype=np.float32), embedder).eval()
    D = embedder.dim
    assert inputs.dim == 7 + config.chars.num_filters + (D if place != "output" else 0)
    assert inputs.output_dim == (D if place != "input" else 0)
    embedded = inputs(maker_for(embedder, "frozen").tokens(SENTENCES))
    assert embedded.vectors.shape == (3, 6, inputs.dim)
    assert inputs.at_output(torch.zeros(3, 6, 2), embedded).shape == (3, 6, 2 + inputs.output_dim)
    assert set(inputs.mixes()) == ({"input", "output"} if place == "both" else {place})
    expected = [0, 0, 1] if layers == "top" else [1 / 3] * 3
    assert all(mix["weights"] == pytest.approx(expected) for mix in inputs.mixes().values())
    assert float(torch.as_tensor(inputs.penalty()).detach()) == 0.0  # equal weights are not pulled anywhere


@pytest.mark.parametrize("mode", ["none", "frozen", "tuned"])
def test_neighbours_and_padding_change_nothing(embedder, mode):
    config = config_with(elmo={"mode": mode, "place": "both"}, words={"dim": 4})
    torch.manual_seed(0)
    start = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    model = elmo.load("tiny-random", device="cpu") if mode == "tuned" else embedder
    inputs = make_inputs(config, start, None if mode == "none" else model).eval()
    maker = maker_for(model, mode)
    together = inputs(maker.tokens(SENTENCES))
    for row, sentence in enumerate(SENTENCES):
        alone = inputs(maker.tokens([sentence]))
        n = len(sentence)
        torch.testing.assert_close(together.vectors[row, :n], alone.vectors[0], rtol=1e-4, atol=1e-5)
        assert not together.vectors[row, n:].any()
        if mode != "none":
            ours = inputs.at_output(torch.zeros(3, 6, 0), together)[row]
            theirs = inputs.at_output(torch.zeros(1, n, 0), alone)[0]
            torch.testing.assert_close(ours[:n], theirs, rtol=1e-4, atol=1e-5)
            assert not ours[n:].any()


def test_tuned_and_frozen_layers_are_the_same_numbers(embedder):
    model = elmo.load("tiny-random", device="cpu")
    frozen = make_inputs(config_with(elmo={"mode": "frozen"}, words={"dim": 0}), None, embedder).eval()
    tuned = make_inputs(config_with(elmo={"mode": "tuned"}, words={"dim": 0}), None, model).eval()
    tuned.chars.load_state_dict(frozen.chars.state_dict())
    a = frozen(maker_for(embedder, "frozen").tokens(SENTENCES)).vectors
    b = tuned(maker_for(model, "tuned").tokens(SENTENCES)).vectors
    torch.testing.assert_close(a, b, rtol=2e-3, atol=1e-3)  # the frozen ones went through float16
    b.sum().backward()
    assert all(p.grad is not None for p in tuned.bilm.stacks.parameters())
    assert tuned.input_mix.weights.grad is not None
    assert not any(p.requires_grad for p in embedder.model.parameters())


def test_fixed_word_vectors_do_not_learn():
    start = np.ones((3, 4), dtype=np.float32)
    fixed = make_inputs(config_with(words={"tuned": False}), start, None)
    assert not fixed.words.weight.requires_grad
    assert make_inputs(config_with(words={"tuned": True}), start, None).words.weight.requires_grad


def test_batches_move_with_all_their_tensors():
    batch = TokenBatch(words=torch.zeros(1, 2), mask=torch.ones(1, 2))
    moved = to_device((replace(batch), [3, "x"], None), torch.device("meta"))
    assert moved[0].words.device.type == "meta"
    assert moved[1:] == ([3, "x"], None)


def test_unseen_labels_have_no_number(embedder):
    maker = maker_for(embedder, "none")
    assert maker.number("tag", "O") == 0
    assert maker.number("tag", "B-PER") == -1


# ---- batches, raw text, whole runs -----------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 60), min_size=1, max_size=80), st.integers(1, 9), st.integers(0, 200), st.integers(0, 5))
def test_an_epoch_has_every_example_once_within_its_limits(sizes, batch_size, max_tokens, epoch):
    plan = plan_epoch(sizes, batch_size, seed=3, epoch=epoch, max_tokens=max_tokens)
    assert sorted(i for batch in plan for i in batch) == list(range(len(sizes)))
    assert plan == plan_epoch(sizes, batch_size, seed=3, epoch=epoch, max_tokens=max_tokens)
    for batch in plan:
        assert len(batch) <= batch_size
        assert not max_tokens or len(batch) == 1 or len(batch) * max(sizes[i] for i in batch) <= max_tokens


def test_epochs_differ_and_like_sizes_sit_together():
    sizes = [n % 50 + 1 for n in range(400)]
    first, second = (plan_epoch(sizes, 8, seed=0, epoch=e) for e in (0, 1))
    assert first != second
    spread = [max(sizes[i] for i in batch) - min(sizes[i] for i in batch) for batch in first]
    assert sum(spread) / len(spread) < 12  # of 49 where chance alone decided, and 1 where length alone did
    assert group([0, 1, 2], [5, 5, 5], 2) == [[0, 1], [2]]


def test_raw_text_is_cut_into_sentences_and_tokens():
    examples = read_raw(load_task("ner"), [["Ada left. It rained."], ["One more."]])
    assert [e.tokens for e in examples] == [("Ada", "left", "."), ("It", "rained", "."), ("One", "more", ".")]
    with pytest.raises(DataError, match="Text 2"):
        read_raw(load_task("ner"), [["fine"], [" "]])


def test_a_share_of_the_data_keeps_labels_and_is_drawn_by_seed(tmp_path):
    runs = [
        new_run(tiny_tasks.settings(tmp_path, "ner", {"data": {"fraction": 0.4}, "train": {"seed": seed}}))
        for seed in (0, 0, 1, 2, 3)
    ]
    chosen = [splits.train for _, splits in runs]
    assert all(len(examples) == 2 for examples in chosen)
    assert chosen[0] == chosen[1]
    assert any(examples != chosen[0] for examples in chosen[2:])
    assert all(len(run.labels["tag"]) == 7 for run, _ in runs)
