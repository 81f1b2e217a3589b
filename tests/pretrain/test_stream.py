"""Batches for the language model, compared with a slow implementation of the reference's rule; prediction counts."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import ConfigError, DataError
from elmo.pretrain.data.prepare import prepare
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.data.sentence_order import SHUFFLE_WINDOW
from elmo.pretrain.data.stream import ContinuousStream, LMBatch, sentence_batches

WORDS = ["the", "cat", "sat", ".", "dog", "Ā", "x" * 60]
WINDOWS = [0, 5, SHUFFLE_WINDOW]  # shard by shard, several groups, all sentences together
sentence_lists = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), min_size=1, max_size=12)


def prepared(folder: Path, sentences: list[list[str]], num_shards: int = 1, **options) -> PreparedData:
    """Prepares sentences, with several shards if needed; a text this small has one job, so `split_into` makes them."""
    vocab = folder / "vocab.txt"
    vocab.write_text("<S>\n</S>\n<UNK>\nthe\n.\ncat\n", encoding="utf-8")
    text = folder / "text.txt"
    text.write_text("".join(" ".join(s) + "\n" for s in sentences), encoding="utf-8")
    config = PrepareConfig(files=(str(text),), vocab_path=str(vocab), heldout=0.0, **options)
    data = prepare(config, folder / "prepared", num_workers=1)
    return split_into(data, num_shards) if num_shards > 1 else data


def split_into(data: PreparedData, num_shards: int) -> PreparedData:
    """Rewrites the training shard as several shards."""
    tokens, offsets = map(np.array, data.train.shard(0))
    bounds = np.linspace(0, len(offsets) - 1, num_shards + 1).astype(int)
    shards = []
    for number, (low, high) in enumerate(pairwise(bounds)):
        name = f"train-{number:05d}"
        np.save(data.folder / f"{name}.tokens.npy", tokens[offsets[low] : offsets[high]])
        np.save(data.folder / f"{name}.offsets.npy", offsets[low : high + 1] - offsets[low])
        for kind in ("tokens", "offsets"):
            size = (data.folder / f"{name}.{kind}.npy").stat().st_size
            data.manifest["files"][f"{name}.{kind}.npy"] = {"size": size, "sha256": ""}
        shards.append({"sentences": int(high - low), "tokens": int(offsets[high] - offsets[low])})
    data.manifest["train"]["shards"] = shards
    return PreparedData(data.folder, data.manifest)


def slow_rows(sentences, num_rows: int, num_steps: int, *, backward: bool, num_epochs: int):
    """The rule of the reference implementation with Python lists: (inputs, targets) of each complete batch."""
    remaining = iter([["</S>", *s[::-1], "<S>"] if backward else ["<S>", *s, "</S>"] for s in sentences] * num_epochs)
    rows: list[list[tuple[str, str]]] = [[] for _ in range(num_rows)]
    while True:
        batch = []
        for row in rows:
            while len(row) < num_steps:
                sentence = next(remaining, None)
                if sentence is None:
                    return
                row += pairwise(sentence)
            batch.append(row[:num_steps])
            del row[:num_steps]
        yield [[i for i, _ in row] for row in batch], [[t for _, t in row] for row in batch]


def words_of(data: PreparedData, ids: np.ndarray) -> list[list[str]]:
    return np.array(data.type_words(ids), dtype=object).reshape(ids.shape).tolist()


def same(a: LMBatch, b: LMBatch) -> bool:
    pairs = [(getattr(a, d), getattr(b, d)) for d in ("forward", "backward")]
    return all(
        np.array_equal(x.inputs, y.inputs)
        and np.array_equal(x.targets, y.targets)
        and np.array_equal(x.resets, y.resets)
        for x, y in pairs
    )


def test_stream_yields_the_reference_arrays(tmp_path):
    # ids: <S> 0, </S> 1, <UNK> 2, the 3, . 4; "unknown" and "th" are types outside the vocabulary: <UNK> as targets
    data = prepared(tmp_path, [["the", "unknown", "."], ["th", "."], ["the"]])
    th, unknown = (data.type_words(np.arange(data.num_types)).index(word) for word in ("th", "unknown"))
    assert min(th, unknown) >= data.vocab_size
    first, second = islice(ContinuousStream(data, 2, 3, shuffle=False), 2)
    # row 0: <S> the unknown | . then "the" | ; row 1: <S> th . | then, the text starting over, "the unknown ."
    assert first.forward.inputs.tolist() == [[0, 3, unknown], [0, th, 4]]
    assert first.forward.targets.tolist() == [[3, 2, 4], [2, 4, 1]]
    assert second.forward.inputs.tolist() == [[4, 0, 3], [0, 3, unknown]]
    assert second.forward.targets.tolist() == [[1, 3, 1], [3, 2, 4]]
    # reversed: </S> . unknown the <S> | </S> . th <S> | </S> the <S>
    assert first.backward.inputs.tolist() == [[1, 4, unknown], [1, 4, th]]
    assert first.backward.targets.tolist() == [[4, 2, 3], [4, 2, 0]]
    assert second.backward.inputs.tolist() == [[3, 1, 3], [1, 4, unknown]]
    assert second.backward.targets.tolist() == [[0, 3, 0], [4, 2, 3]]
    assert not first.forward.resets.any()
    assert first.forward.mask is None


@settings(max_examples=40)
@given(sentences=sentence_lists, num_rows=st.integers(1, 5), num_steps=st.integers(1, 7), num_shards=st.integers(1, 3))
def test_stream_without_shuffling_equals_the_slow_implementation(sentences, num_rows, num_steps, num_shards):
    with tempfile.TemporaryDirectory() as folder:
        data = prepared(Path(folder), sentences, min(num_shards, len(sentences)))
        stream = ContinuousStream(data, num_rows, num_steps, shuffle=False, num_epochs=3)
        slow = [slow_rows(sentences, num_rows, num_steps, backward=b, num_epochs=3) for b in (False, True)]
        vocab_words = set(data.vocab.words)
        num_batches = 0
        for batch, *expected in zip(stream, *slow, strict=True):
            num_batches += 1
            for direction, (inputs, targets) in zip((batch.forward, batch.backward), expected, strict=True):
                assert words_of(data, direction.inputs) == inputs
                expected_targets = [[word if word in vocab_words else "<UNK>" for word in row] for row in targets]
                assert words_of(data, direction.targets) == expected_targets
        num_positions = 3 * sum(len(s) + 1 for s in sentences)
        assert num_batches <= num_positions // (num_rows * num_steps)


@settings(max_examples=30)
@given(
    sentences=sentence_lists,
    num_rows=st.integers(1, 5),
    num_steps=st.integers(1, 7),
    seed=st.integers(0, 9),
    window=st.sampled_from(WINDOWS),
)
def test_every_sentence_occurs_once_per_epoch_in_both_directions(sentences, num_rows, num_steps, seed, window):
    with tempfile.TemporaryDirectory() as folder:
        data = prepared(Path(folder), sentences, min(3, len(sentences)))
        stream = ContinuousStream(
            data, num_rows, num_steps, seed=seed, num_epochs=2, last="pad", reset=1.0, shuffle_window=window
        )
        rows: dict[str, list[list]] = {
            "forward": [[] for _ in range(num_rows)],
            "backward": [[] for _ in range(num_rows)],
        }
        predictions = np.zeros(2, dtype=int)
        for batch in stream:
            predictions += batch.num_predictions
            for name, sentences_by_row in rows.items():
                direction = getattr(batch, name)
                mask = np.ones_like(direction.resets) if direction.mask is None else direction.mask
                for r in range(num_rows):
                    for t in np.flatnonzero(mask[r]):
                        if direction.resets[r, t]:
                            sentences_by_row[r].append([])
                        sentences_by_row[r][-1].append(int(direction.inputs[r, t]))
        assert predictions.tolist() == [2 * sum(len(s) + 1 for s in sentences)] * 2
        assert data.train.num_positions == sum(len(s) + 1 for s in sentences)
        for name, step in (("forward", 1), ("backward", -1)):
            read = [tuple(data.type_words(np.array(s[1:], dtype=int)))[::step] for row in rows[name] for s in row]
            assert Counter(read) == Counter({s: 2 * n for s, n in Counter(map(tuple, sentences)).items()})


@settings(max_examples=30)
@given(
    sentences=sentence_lists,
    num_steps=st.integers(1, 7),
    stop=st.integers(0, 15),
    shuffle=st.booleans(),
    window=st.sampled_from(WINDOWS),
    reset=st.sampled_from([0.0, 0.4, 1.0]),
)
def test_stream_stopped_anywhere_continues_bit_for_bit(sentences, num_steps, stop, shuffle, window, reset):
    with tempfile.TemporaryDirectory() as folder:
        data = prepared(Path(folder), sentences, min(3, len(sentences)))

        def stream() -> ContinuousStream:
            return ContinuousStream(data, 3, num_steps, shuffle=shuffle, shuffle_window=window, reset=reset, seed=5)

        uninterrupted = list(islice(stream(), 20))
        first = stream()
        list(islice(first, stop))
        state = first.state()
        list(islice(first, 2))  # later batches do not change the saved state
        second = stream()
        second.restore(state)
        rest = list(islice(second, 20 - stop))
        assert all(same(a, b) for a, b in zip(uninterrupted[stop:], rest, strict=True))
        assert [b.epoch for b in uninterrupted[stop:]] == [b.epoch for b in rest]


@pytest.mark.parametrize("world_size", [2, 4])
def test_the_rows_of_all_ranks_equal_those_of_one_process(tmp_path, world_size):
    data = prepared(tmp_path, [["the"] * n for n in range(1, 30)], 3)
    single = ContinuousStream(data, 8, 5, seed=3, reset=0.5)
    ranks = [
        ContinuousStream(data, 8 // world_size, 5, seed=3, reset=0.5, rank=r, world_size=world_size)
        for r in range(world_size)
    ]
    for _ in range(40):
        batch, rank_batches = next(single), [next(rank) for rank in ranks]
        for name in ("forward", "backward"):
            for field in ("inputs", "targets", "resets"):
                together = np.concatenate([getattr(getattr(part, name), field) for part in rank_batches])
                assert np.array_equal(getattr(getattr(batch, name), field), together)
    ranks[0].restore(single.state())  # the state does not depend on the number of processes


def test_shuffling_depends_on_seed_direction_and_epoch(tmp_path):
    sentences = [[f"w{i}"] for i in range(50)]
    data = prepared(tmp_path, sentences, 2)

    def order(seed: int, direction: str) -> list[str]:
        batches = islice(ContinuousStream(data, 1, 2, seed=seed), 100)
        return [data.type_words(getattr(batch, direction).inputs)[1] for batch in batches]

    one = order(1, "forward")
    assert one == order(1, "forward")
    assert one[:50] != one[50:] != order(2, "forward")[50:]
    assert one != order(1, "backward")
    assert sorted(one[:50]) == sorted(one[50:]) == sorted(s[0] for s in sentences)


def test_the_first_batches_of_an_epoch_hold_sentences_of_all_shards(tmp_path):
    # shards follow the files: a model that reads shard after shard adapts to one source and forgets the others
    data = prepared(tmp_path, [[f"w{i:03d}"] for i in range(400)], 4)
    batch = next(ContinuousStream(data, 20, 4))
    for direction in (batch.forward, batch.backward):
        shards = Counter(int(word[1:]) // 100 for word in data.type_words(direction.inputs.ravel()) if word[0] == "w")
        assert set(shards) == {0, 1, 2, 3}
        assert max(shards.values()) <= 20, "40 sentences, ten per shard expected"


def shards_in_order(data: PreparedData, window: int, epoch: int = 0) -> list[int]:
    """The shard of each sentence of an epoch, for sentences of one word w000..w099 in four shards."""
    batches = list(islice(ContinuousStream(data, 1, 2, shuffle_window=window), 100 * (epoch + 1)))[100 * epoch :]
    return [int(data.type_words(batch.forward.inputs)[1][1:]) // 25 for batch in batches]


def test_a_shuffle_window_mixes_groups_of_shards_and_zero_reads_shard_by_shard(tmp_path):
    data = prepared(tmp_path, [[f"w{i:03d}"] for i in range(100)], 4)
    one_by_one = shards_in_order(data, 0)
    assert [set(one_by_one[i : i + 25]) for i in range(0, 100, 25)] == [{s} for s in one_by_one[::25]]
    in_pairs = shards_in_order(data, 50)
    groups = [set(in_pairs[:50]), set(in_pairs[50:])]
    assert len(groups[0]) == len(groups[1]) == 2, "two groups of two shards"
    assert groups[0].isdisjoint(groups[1])
    assert len({frozenset(shards_in_order(data, 50, epoch)[:50]) for epoch in range(6)}) > 1, "groups change per epoch"


def test_an_order_longer_than_a_block_continues_after_each_block(tmp_path):
    data = prepared(tmp_path, [["the"]] * 40_000 + [["cat"]] * 40_000, 3)
    whole = ContinuousStream(data, 80, 20, num_epochs=1)
    batches = list(whole)
    assert len(batches) == 100
    words = Counter(np.concatenate([b.forward.inputs.ravel() for b in batches]).tolist())
    assert sorted(words.values()) == [40_000, 40_000, 80_000]  # the, cat, <S>
    first = ContinuousStream(data, 80, 20, num_epochs=1)
    list(islice(first, 85))  # 68,000 sentences: the second block of 65,536
    second = ContinuousStream(data, 80, 20, num_epochs=1)
    second.restore(first.state())
    assert all(same(a, b) for a, b in zip(batches[85:], second, strict=True))


def test_a_position_in_the_text_belongs_to_its_shuffle_window(tmp_path):
    data = prepared(tmp_path, [["the"]] * 40, 2)
    state = ContinuousStream(data, 2, 4, shuffle_window=0).state()
    assert "shuffle_window" not in state["settings"], "as in runs of the first releases"
    with pytest.raises(ConfigError, match="shuffle_window: "):
        ContinuousStream(data, 2, 4).restore(state)
    one_shard = prepared(_subfolder(tmp_path), [["the"]] * 40)
    ContinuousStream(one_shard, 2, 4).restore(ContinuousStream(one_shard, 2, 4, shuffle_window=0).state())


def _subfolder(folder: Path) -> Path:
    (folder / "one").mkdir()
    return folder / "one"


def test_reset_is_the_share_of_sentences_with_a_state_reset(tmp_path):
    data = prepared(tmp_path, [["the", "cat"]] * 2000)
    for probability in (0.0, 0.3, 1.0):
        batch = next(ContinuousStream(data, 1, 6000, reset=probability))
        starts = batch.forward.inputs == data.bos
        assert not batch.forward.resets[~starts].any()
        # 2,000 draws: four standard deviations are 4 * sqrt(.3 * .7 / 2000) = 0.041
        assert batch.forward.resets[starts].mean() == pytest.approx(
            probability, abs=0.041 if 0 < probability < 1 else 0
        )
        assert not np.array_equal(batch.forward.resets, batch.backward.resets[:, ::-1]) or probability in (0, 1)


def test_stream_of_one_token_and_of_more_rows_than_text(tmp_path):
    data = prepared(tmp_path, [["the"]])
    batch = next(ContinuousStream(data, 64, 20))
    assert batch.forward.inputs.shape == (64, 20)
    assert set(batch.forward.inputs.ravel()) == {data.bos, 3}
    assert list(ContinuousStream(data, 64, 20, num_epochs=1)) == []
    (last,) = ContinuousStream(data, 64, 20, num_epochs=1, last="pad")
    assert last.num_predictions == (2, 2)


def test_stream_of_one_long_line(tmp_path):
    data = prepared(tmp_path, [["the", "cat"] * 50_000])
    stream = ContinuousStream(data, 4, 100, reset=1.0, num_epochs=1, last="pad")
    batches = list(stream)
    assert sum(b.num_predictions[0] for b in batches) == 100_001
    assert sum(int(b.forward.resets.sum()) for b in batches) == 1


def test_restore_refuses_other_text_and_other_rows(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    data, other = prepared(tmp_path / "a", [["the", "cat"]] * 9), prepared(tmp_path / "b", [["the", "dog"]] * 9)
    state = ContinuousStream(data, 2, 3).state()
    with pytest.raises(ConfigError, match="data: "):
        ContinuousStream(other, 2, 3).restore(state)
    with pytest.raises(ConfigError, match="seed: 0 then, 1 now"):
        ContinuousStream(data, 2, 3, seed=1).restore(state)
    with pytest.raises(ConfigError, match="rows: 2 then, 3 now"):
        ContinuousStream(data, 3, 3).restore(state)


def test_restore_with_other_rows_continues_with_the_next_sentences(tmp_path):
    data = prepared(tmp_path, [[f"w{i:02d}"] for i in range(20)])
    stream = ContinuousStream(data, 2, 4, shuffle=False)
    next(stream)  # 2 rows x 4 positions: sentences 0..3
    other = ContinuousStream(data, 3, 2, shuffle=False)
    other.restore(stream.state(), other_rows=True)
    assert data.type_words(next(other).forward.inputs[:, 1]) == ["w04", "w05", "w06"]


def test_a_shard_truncated_between_epochs_is_named_in_the_error(tmp_path):
    data = prepared(tmp_path, [["the", "cat"]] * 30, 3)
    stream = ContinuousStream(data, 1, 3)
    next(stream)
    path = data.folder / "train-00001.tokens.npy"
    os.truncate(path, 100)
    with pytest.raises(DataError, match=r"train-00001\.tokens\.npy is cut short or changed: 100 bytes"):
        list(islice(stream, 100))


def test_stream_of_an_empty_split_is_an_error(tmp_path):
    data = prepared(tmp_path, [["the"]])
    with pytest.raises(DataError, match="no heldout text"):
        ContinuousStream(data, 1, 1, split="heldout")


@settings(max_examples=30)
@given(sentences=sentence_lists, max_tokens=st.integers(1, 40))
def test_sentence_batches_count_every_prediction_once(sentences, max_tokens):
    with tempfile.TemporaryDirectory() as folder:
        data = prepared(Path(folder), sentences, min(2, len(sentences)))
        sentence_counts: Counter[tuple[str, ...]] = Counter()
        for batch in sentence_batches(data, "train", max_tokens=max_tokens):
            forward, backward = batch.forward, batch.backward
            mask = np.ones_like(forward.resets) if forward.mask is None else forward.mask
            rows, width = mask.shape
            assert rows == 1 or rows * width <= max_tokens
            assert forward.resets[:, 0].all()
            assert not forward.resets[:, 1:].any()
            for row, length in enumerate(mask.sum(axis=1)):
                words = data.type_words(forward.inputs[row, :length])
                assert words[0] == "<S>"
                assert forward.targets[row, length - 1] == data.eos
                assert backward.inputs[row, 0] == data.eos
                assert backward.targets[row, length - 1] == data.bos
                assert data.type_words(backward.inputs[row, 1:length])[::-1] == words[1:]
                sentence_counts[tuple(words[1:])] += 1
        assert sentence_counts == Counter(map(tuple, sentences))


def test_sentence_batches_of_selected_sentences(tmp_path):
    data = prepared(tmp_path, [[f"w{i:03d}", "the"] for i in range(400)])

    def words(**options) -> list[str]:
        batches = sentence_batches(data, "train", **options)
        return sorted(word for batch in batches for word in data.type_words(batch.forward.inputs[:, 1]))

    assert words(sentences=range(10, 13)) == ["w010", "w011", "w012"]
    few = words(max_words=80)
    assert len(few) == 40
    assert (few[0], few[-1]) == ("w000", "w390"), "evenly spaced over the text"
