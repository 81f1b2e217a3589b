"""The parts that all six tasks share: settings, vocabulary, word vectors, cached layers, model input, batches."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace

import numpy as np
import pytest
import small_runs
import tiny_tasks
import torch
from hypothesis import given
from hypothesis import strategies as st

import elmo
from elmo.embed.model_checksum import vectors_checksum
from elmo.errors import ConfigError, DataError, OutputError
from elmo.tasks.batches import plan_epoch, split_into_batches
from elmo.tasks.config import make_config
from elmo.tasks.elmo_input import make_inputs
from elmo.tasks.layer_cache import LayerSource
from elmo.tasks.raw_text import read_raw, read_raw_lines
from elmo.tasks.run import new_run, read_splits
from elmo.tasks.task import TASKS, load_task, read_file
from elmo.tasks.token_batch import BatchMaker, TokenBatch, to_device
from elmo.tasks.word_vectors import read_vectors
from elmo.tasks.word_vocabulary import UNKNOWN, WordVocabulary, build_vocabulary, encode_chars, initial_vectors

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
def test_a_task_is_loaded_by_name_and_has_valid_defaults(name):
    task = load_task(name)
    assert task.name == name
    assert name in TASKS
    make_config(task)


@pytest.mark.parametrize(
    ("sections", "message", "hint"),
    [
        ({"train": {"epoch": 3}}, "'train.epoch'", "'train.epochs'"),
        ({"model": {"hidden": 3}}, "'model.hidden'", "'model.hidden_dim'"),
        ({"elmo": {"mode": "frosen"}}, "frosen", "'frozen'"),
        ({"train": {"epochs": "many"}}, "train.epochs is 'many'; expected a whole number", ""),
        ({"elmo": {"dropout": 2.0}}, "elmo.dropout is 2.0; expected a number from 0 to 1", ""),
        ({"data": {"fraction": 0.0}}, "data.fraction", ""),
        ({"words": {"dim": 0}, "chars": {"num_filters": 0}}, "no input", "words.dim"),
        ({"train": 3}, "expected a table", ""),
    ],
)
def test_invalid_settings_are_an_error_with_their_name(sections, message, hint):
    with pytest.raises(ConfigError) as caught:
        config_with(**sections)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_settings_to_plain_values_and_back_is_identity():
    config = config_with(elmo={"mode": "frozen", "place": "both"}, optim={"lr": 1}, words={"vectors": "off"})
    assert make_config(load_task("ner"), config.to_dict()) == config
    assert config.optim.lr == 1.0
    assert config.words.vectors is None


# ---- words and vectors -----------------------------------------------------------------------------------------------


def test_vectors_are_read_with_and_without_a_header(tmp_path):
    lines = "the 1 2 3\nBank 4 5 6\n. . 7 8 9\nthe 0 0 0\nrare 1 1 1\n"
    without_header, with_header = tmp_path / "plain.txt", tmp_path / "header.txt.xz"
    without_header.write_text(lines, encoding="utf-8")
    with_header.write_bytes(lzma.compress(f"5 3\n{lines}".encode()))
    for path in (without_header, with_header):
        vectors = read_vectors(path, ["The", "Bank", ". ."])
        assert vectors.dim == 3
        assert vectors.lookup("THE").tolist() == [1, 2, 3]  # in lower case, the first of two vectors
        assert vectors.lookup("Bank").tolist() == [4, 5, 6]
        assert vectors.lookup(". .").tolist() == [7, 8, 9]
        assert vectors.lookup("rare") is None
    assert set(read_vectors(without_header, ["rare"], extra=1).row_of) == {"the", "rare"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"the 1 2\nbank 1\n", ":2: 1 numbers"),
        (b"the 1 x\n", ":1: could not convert"),
        (b"the 1 nan\n", ":1: a number that is not finite"),
        (b"\xff\xfe 1 2\n", ":1: byte 0 (0xff) is not UTF-8"),
        (b"the\nbank 1 2\n", ":1: no numbers after the word; expected word2vec's text format"),
        (b"", ": the file has no vector"),
    ],
)
def test_invalid_vectors_are_an_error_with_their_line(tmp_path, content, message):
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_vectors(path, ["the", "bank"])
    assert f"{path}{message}" in caught.value.message


def test_a_damaged_file_of_vectors_is_an_error(tmp_path):
    path = tmp_path / "vectors.txt.xz"
    path.write_bytes(lzma.compress(b"the 1 2\n" * 1000)[:-20])
    with pytest.raises(DataError, match=r"vectors\.txt\.xz: cannot be read past"):
        read_vectors(path, ["the"])


def test_the_vocabulary_has_frequent_words_and_words_with_vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("river 1 1\ndevword 2 2\nextra 3 3\n", encoding="utf-8")
    training, other = [["a", "a", "once", "River"]], [["devword", "never"]]
    assert build_vocabulary(training, other, None, min_count=2).words == ("a",)
    vectors = read_vectors(path, ["a", "once", "River", "devword", "never"], extra=3)
    vocabulary = build_vocabulary(training, other, vectors, min_count=2)
    assert set(vocabulary.words) == {"a", "River", "devword", "river", "extra"}
    assert vocabulary.id("RIVER") == vocabulary.id("river")
    assert vocabulary.id("never") == UNKNOWN
    initial = initial_vectors(vocabulary, vectors, 2, seed=0)
    assert initial[vocabulary.id("River")].tolist() == [1, 1]
    assert not initial[0].any()


def test_random_vectors_depend_only_on_word_and_seed():
    small, large = WordVocabulary(["b"]), WordVocabulary(["a", "b"])
    first, second = initial_vectors(small, None, 5, seed=1), initial_vectors(large, None, 5, seed=1)
    assert np.array_equal(first[small.id("b")], second[large.id("b")])
    assert not np.array_equal(first, initial_vectors(small, None, 5, seed=2))


def test_long_words_lose_their_middle():
    ids = encode_chars("abcdefgh", 5)
    assert bytes(i - 1 for i in ids[1:-1]) == b"abcgh"
    assert len(encode_chars("\ud800", 5)) == 5  # a lone surrogate has three bytes


# ---- layers of a frozen biLM -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["memory", "disk", "off"])
def test_cached_layers_equal_those_of_the_embedder(embedder, tmp_path, cache):
    source = LayerSource(embedder, vectors_checksum(embedder), cache=cache, cache_dir=tmp_path)
    source.prepare(SENTENCES[:2])
    layers = source.layers([*SENTENCES, []], T=7)  # the third was not prepared
    assert layers.shape == (3, 4, 7, embedder.dim)
    for row, sentence in enumerate(SENTENCES):
        expected = torch.from_numpy(embedder.layers([sentence])[0])
        # float16 has eleven significant bits
        torch.testing.assert_close(layers[:, row, : len(sentence)].float(), expected, rtol=1e-3, atol=1e-4)
        assert not layers[:, row, len(sentence) :].any()
    assert not layers[:, 3].any()


def test_layers_laid_out_on_a_device_are_the_same(embedder, tmp_path):
    source = LayerSource(embedder, vectors_checksum(embedder))
    source.prepare(SENTENCES[:2])
    source.prepare(SENTENCES)  # two of them are already prepared
    rows = [[SENTENCES[2], SENTENCES[1]], [SENTENCES[0]], [], [[], SENTENCES[2]]]
    before = source.joined(rows, T=8)
    source.copy_to_device(torch.device("cpu"))
    assert torch.equal(source.joined(rows, T=8), before)
    assert torch.equal(before[:, 0, 3], source.layers([SENTENCES[1]], T=1)[:, 0, 0])
    assert before[:, 1, :6].any()
    assert source.joined([[["never", "seen"]]], T=2).any()


def test_a_text_of_several_sentences_is_one_row(embedder):
    maker = maker_for(embedder, "frozen")
    joined = maker.joined([[SENTENCES[2], SENTENCES[1]], [SENTENCES[0]]])
    single = maker.tokens([[*SENTENCES[2], *SENTENCES[1]], SENTENCES[0]])
    for name in ("word_ids", "mask", "char_ids", "char_rows"):
        assert torch.equal(getattr(joined, name), getattr(single, name))
    alone = maker.tokens([SENTENCES[1]])
    torch.testing.assert_close(joined.layers[:, 0, 3], alone.layers[:, 0, 0])
    assert not torch.allclose(single.layers[:, 0, 3], alone.layers[:, 0, 0])  # embedded as one sentence


def test_each_distinct_word_has_one_row_of_characters_in_the_order_of_the_batch(embedder):
    maker = maker_for(embedder, "frozen")
    maker.tokens([["zebra", "sat", "the"]])  # known before, in another order
    batch = maker.tokens([["the", "cat", "the"], ["zebra", "cat"]])
    assert batch.char_rows.tolist() == [[1, 2, 1], [3, 2, 0]]
    lengths = (batch.char_ids != 0).sum(dim=1) - 2  # without the boundary marks
    assert lengths.tolist() == [-2, 3, 3, 5]
    assert torch.equal(batch.char_ids[2], maker.tokens([["cat", "zebra"]]).char_ids[1])


def test_in_bfloat16_the_gradients_of_a_frequent_word_are_not_lost(embedder):
    """A thousand gradients of one are a thousand; in bfloat16, the sum would stop at 256."""
    inputs = make_inputs(config_with(words={"dim": 0}), None, None)
    tokens = maker_for(embedder, "none").tokens([["the"] * 1000])
    features = []
    inputs.chars.register_forward_hook(lambda module, args, output: features.append(output) or output.retain_grad())
    with torch.autocast("cpu", torch.bfloat16):
        vectors = inputs(tokens).vectors
    vectors.sum().backward()
    assert features[0].dtype == torch.bfloat16
    assert features[0].grad[1].max() == 1000


def test_the_disk_cache_is_reused_for_the_same_model_and_text(embedder, tmp_path):
    LayerSource(embedder, vectors_checksum(embedder), cache="disk", cache_dir=tmp_path).prepare(SENTENCES)
    (file,) = tmp_path.iterdir()
    before = file.stat().st_mtime_ns
    second = LayerSource(embedder, vectors_checksum(embedder), cache="disk", cache_dir=tmp_path)
    second.prepare(SENTENCES)
    assert file.stat().st_mtime_ns == before
    second.prepare([["other", "text"]])
    assert len(list(tmp_path.iterdir())) == 2


def test_a_damaged_disk_cache_is_an_error(embedder, tmp_path):
    LayerSource(embedder, vectors_checksum(embedder), cache="disk", cache_dir=tmp_path).prepare(SENTENCES)
    (file,) = tmp_path.iterdir()
    np.save(file, np.zeros((2, 3), dtype=np.float16))
    second = LayerSource(embedder, vectors_checksum(embedder), cache="disk", cache_dir=tmp_path)
    with pytest.raises(DataError, match="expected float16"):
        second.prepare(SENTENCES)
    for damage in (b"", file.read_bytes()[:-1], b"no array at all"):
        file.write_bytes(damage)
        with pytest.raises(DataError, match="damaged") as caught:
            second.prepare(SENTENCES)
        assert str(file) in caught.value.message


def test_a_cache_folder_that_cannot_be_created_is_an_error(embedder, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        LayerSource(embedder, vectors_checksum(embedder), cache="disk", cache_dir=tmp_path / "file").prepare(SENTENCES)


# ---- the input of a model --------------------------------------------------------------------------------------------


def maker_for(embedder, mode):
    vocabulary = WordVocabulary(["the", "bank", "."])
    source = LayerSource(embedder, vectors_checksum(embedder), cache="off") if mode == "frozen" else None
    indexer = embedder.indexer if mode == "tuned" else None
    return BatchMaker(vocabulary, {"tag": ("O",)}, max_chars=10, source=source, indexer=indexer)


@pytest.mark.parametrize("place", ["input", "output", "both"])
@pytest.mark.parametrize("layers", ["all", "top"])
def test_elmo_is_at_the_chosen_place(embedder, place, layers):
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
    assert float(torch.as_tensor(inputs.penalty()).detach()) == 0.0  # zero for the initial weights


@pytest.mark.parametrize("mode", ["none", "frozen", "tuned"])
def test_vectors_do_not_depend_on_padding_and_neighbours(embedder, mode):
    config = config_with(elmo={"mode": mode, "place": "both"}, words={"dim": 4})
    torch.manual_seed(0)
    word_vectors = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    model = elmo.load("tiny-random", device="cpu") if mode == "tuned" else embedder
    inputs = make_inputs(config, word_vectors, None if mode == "none" else model).eval()
    maker = maker_for(model, mode)
    together = inputs(maker.tokens(SENTENCES))
    for row, sentence in enumerate(SENTENCES):
        alone = inputs(maker.tokens([sentence]))
        n = len(sentence)
        torch.testing.assert_close(together.vectors[row, :n], alone.vectors[0], rtol=1e-4, atol=1e-5)
        assert not together.vectors[row, n:].any()
        if mode != "none":
            in_batch = inputs.at_output(torch.zeros(3, 6, 0), together)[row]
            expected = inputs.at_output(torch.zeros(1, n, 0), alone)[0]
            torch.testing.assert_close(in_batch[:n], expected, rtol=1e-4, atol=1e-5)
            assert not in_batch[n:].any()


def test_tuned_and_frozen_layers_are_equal(embedder):
    model = elmo.load("tiny-random", device="cpu")
    frozen = make_inputs(config_with(elmo={"mode": "frozen"}, words={"dim": 0}), None, embedder).eval()
    tuned = make_inputs(config_with(elmo={"mode": "tuned"}, words={"dim": 0}), None, model).eval()
    tuned.chars.load_state_dict(frozen.chars.state_dict())
    a = frozen(maker_for(embedder, "frozen").tokens(SENTENCES)).vectors
    b = tuned(maker_for(model, "tuned").tokens(SENTENCES)).vectors
    torch.testing.assert_close(a, b, rtol=2e-3, atol=1e-3)  # frozen layers are stored in float16
    b.sum().backward()
    assert all(p.grad is not None for p in tuned.bilm.stacks.parameters())
    assert tuned.input_mix.weights.grad is not None
    assert not any(p.requires_grad for p in embedder.model.parameters())


def test_fixed_word_vectors_are_not_trained():
    word_vectors = np.ones((3, 4), dtype=np.float32)
    fixed = make_inputs(config_with(words={"tuned": False}), word_vectors, None)
    assert not fixed.words.weight.requires_grad
    assert make_inputs(config_with(words={"tuned": True}), word_vectors, None).words.weight.requires_grad


def test_to_device_moves_all_tensors_of_a_batch():
    batch = TokenBatch(word_ids=torch.zeros(1, 2), mask=torch.ones(1, 2))
    moved = to_device((replace(batch), [3, "x"], None), torch.device("meta"))
    assert moved[0].word_ids.device.type == "meta"
    assert moved[1:] == ([3, "x"], None)


def test_unknown_labels_have_the_id_minus_one(embedder):
    maker = maker_for(embedder, "none")
    assert maker.label_id("tag", "O") == 0
    assert maker.label_id("tag", "B-PER") == -1


# ---- batches, raw text, runs -----------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 60), min_size=1, max_size=80), st.integers(1, 9), st.integers(0, 200), st.integers(0, 5))
def test_an_epoch_has_every_example_once_within_its_limits(sizes, batch_size, max_tokens, epoch):
    plan = plan_epoch(sizes, batch_size, seed=3, epoch=epoch, max_tokens=max_tokens)
    assert sorted(i for batch in plan for i in batch) == list(range(len(sizes)))
    assert plan == plan_epoch(sizes, batch_size, seed=3, epoch=epoch, max_tokens=max_tokens)
    for batch in plan:
        assert len(batch) <= batch_size
        assert not max_tokens or len(batch) == 1 or len(batch) * max(sizes[i] for i in batch) <= max_tokens


def test_epochs_differ_and_batches_have_similar_sizes():
    sizes = [n % 50 + 1 for n in range(400)]
    first, second = (plan_epoch(sizes, 8, seed=0, epoch=e) for e in (0, 1))
    assert first != second
    spread = [max(sizes[i] for i in batch) - min(sizes[i] for i in batch) for batch in first]
    assert sum(spread) / len(spread) < 12  # about 49 for random batches, 1 for batches sorted by size
    assert split_into_batches([0, 1, 2], [5, 5, 5], 2) == [[0, 1], [2]]


def test_raw_text_is_split_into_sentences_and_tokens():
    examples = read_raw(load_task("ner"), [["Ada left. It rained."], ["One more."]])
    assert [e.tokens for e in examples] == [("Ada", "left", "."), ("It", "rained", "."), ("One", "more", ".")]
    with pytest.raises(DataError, match="Text 2: the text is empty"):
        read_raw(load_task("ner"), [["fine"], [" "]])


def test_examples_of_a_file_have_the_numbers_of_their_lines():
    lines = ["Ada left. It rained.", " ", "One more."]
    examples = read_raw_lines(load_task("ner"), lines, "in.txt")
    assert [(number, e.tokens[0]) for number, e in examples] == [(0, "Ada"), (0, "It"), (2, "One")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("only one", "in.txt:3 has 1 field; expected 2: premise and hypothesis."),
        ("one\t ", "in.txt:3: the hypothesis is empty; expected at least one word."),
    ],
)
def test_a_line_that_is_no_example_is_named_as_in_the_file(line, message):
    with pytest.raises(DataError) as caught:
        read_raw_lines(load_task("snli"), ["", "a man\tsleeps", line], "in.txt")
    assert caught.value.message == message


def test_a_share_of_the_data_has_all_labels_and_depends_on_the_seed(tmp_path):
    runs = [
        new_run(tiny_tasks.settings(tmp_path, "ner", {"data": {"fraction": 0.4}, "train": {"seed": seed}}))
        for seed in (0, 0, 1, 2, 3)
    ]
    shares = [splits.train for _, splits in runs]
    assert all(len(examples) == 2 for examples in shares)
    assert shares[0] == shares[1]
    assert any(examples != shares[0] for examples in shares[2:])
    assert all(len(run.labels["tag"]) == 7 for run, _ in runs)


@pytest.mark.parametrize("name", ["sst", "snli", "squad"])
def test_raw_text_is_read_with_the_chosen_tokenizer(tmp_path, name):
    text = "東京が好き。"
    pair = {"label": "neutral", "premise": text, "hypothesis": text}
    squad = {"data": [{"paragraphs": [{"context": text, "qas": [{"question": text}]}]}]}
    path = tmp_path / "file.tsv"
    content = {"sst": f"{text}\t4\n", "snli": json.dumps(pair), "squad": json.dumps(squad)}[name]
    path.write_text(content, encoding="utf-8")
    task = load_task(name)
    assert {len(sentence) for sentence in read_file(task, path, None)[0].sentences} == {2}  # default: English
    assert all(sentence[0] == "東" for sentence in read_file(task, path, "unicode")[0].sentences)
    assert make_config(task, {"data": {"tokenizer": "unicode"}}).data.tokenizer == "unicode"
    with pytest.raises(ConfigError, match="no tokenizer 'unicod'"):
        make_config(task, {"data": {"tokenizer": "unicod"}})


ANN = '"sentences": [["Ann", "left", "."], ["She", "ran", "."]]'
LINKED = f'{{{ANN}, "clusters": [[[0, 0], [3, 3]]]}}\n'
QUESTION = '{"data": [{"paragraphs": [{"context": "Ann left.", "qas": [{"question": "Who?"}]}]}]}'


@pytest.mark.parametrize("split", ["train", "dev", "test"])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("coref", LINKED + f"{{{ANN}}}\n", "1 of 2 documents have no clusters, the first is document 2"),
        ("coref", f'{{{ANN}, "clusters": [[[0, 0]]]}}\n', "no document has a cluster of two or more mentions"),
        ("coref", "1\tAnn\tAnn\tPROPN\t_\n2\tleft\tleave\tVERB\t_\n", "no document has a cluster of two or more"),
        ("squad", QUESTION, "no question has an answer"),
    ],
)
def test_a_file_without_labels_is_refused_with_its_name(tmp_path, split, name, content, message):
    config = small_runs.small_config(tmp_path, name)
    bad = tmp_path / "bad.data"
    bad.write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_splits(load_task(name), replace(config, data=replace(config.data, **{split: str(bad)})))
    assert caught.value.message.startswith(f"{bad}: {message}")
    assert read_file(load_task(name), bad, None)  # `elmo task predict --examples` does not use labels


@pytest.mark.parametrize("name", ["ner", "srl", "coref"])
def test_a_tokenizer_for_tokenised_files_is_refused(name):
    with pytest.raises(ConfigError, match=f"the files of the task {name} are tokenised"):
        make_config(load_task(name), {"data": {"tokenizer": "unicode"}})
