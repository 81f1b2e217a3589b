"""The squad model: overfits a few answers, its best spans equal brute force, and padding has no influence."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import SQUAD, learn, small_run

from elmo.tasks.squad.attention import BiAttention, SelfAttention
from elmo.tasks.squad.model import best_spans, span_loss
from elmo.tasks.squad.task import TASK
from elmo.text.tokenize import tokenizer


def test_it_overfits_a_few_answers(tmp_path):
    run, splits = small_run(tmp_path, "squad", elmo={"mode": "frozen", "dropout": 0.0})
    assert learn(run, splits.train, updates=50)["exact_match"] == 100


@pytest.mark.parametrize("mode", ["none", "frozen"])
def test_scores_do_not_depend_on_padding_and_neighbours(tmp_path, mode):
    run, splits = small_run(tmp_path, "squad", elmo={"mode": mode})
    run.model.eval()
    together = run.model.scores(TASK.collate(splits.train, run.maker))
    for row, example in enumerate(splits.train):
        alone = run.model.scores(TASK.collate([example], run.maker))
        for in_batch, expected in zip(together, alone, strict=True):
            torch.testing.assert_close(in_batch[row, : expected.shape[1]], expected[0], rtol=1e-4, atol=1e-5)


@given(st.integers(1, 6), st.integers(1, 7), st.integers(0, 10**6))
def test_the_best_span_equals_brute_force(length, limit, seed):
    generator = torch.Generator().manual_seed(seed)
    starts, ends = torch.randn(2, 1, 8, generator=generator)
    mask = torch.arange(8)[None] < length
    first, last, probability = best_spans(starts, ends, mask, limit)
    start_probability, end_probability = (torch.softmax(x[0, :length], dim=0).tolist() for x in (starts, ends))
    spans = [(a, b) for a in range(length) for b in range(a, min(length, a + limit))]
    best = max(spans, key=lambda span: start_probability[span[0]] * end_probability[span[1]])
    assert (int(first), int(last)) == best
    assert float(probability) == pytest.approx(start_probability[best[0]] * end_probability[best[1]], rel=1e-4)


def test_the_loss_of_several_gold_answers_by_hand():
    scores = torch.tensor([[0.0, math.log(2), math.log(5), 9.0]])  # probabilities 1/8, 2/8, 5/8, and padding
    mask = torch.tensor([[True, True, True, False]])
    starts = torch.tensor([[True, True, False, False]])  # 3/8 together
    ends = torch.tensor([[False, False, True, False]])  # 5/8
    assert span_loss(scores, scores, mask, starts, ends).item() == pytest.approx(-math.log(3 / 8) - math.log(5 / 8))


def test_attention_by_hand():
    attention = BiAttention(1)
    for weights in (attention.scores.left.weight, attention.scores.right.weight):
        torch.nn.init.zeros_(weights)
    attention.scores.both.data[:] = 1.0  # scores are h * q
    h, q = torch.tensor([[[1.0], [2.0], [7.0]]]), torch.tensor([[[0.0], [1.0], [9.0]]])
    h_mask, q_mask = torch.tensor([[True, True, False]]), torch.tensor([[True, True, False]])
    output = attention(h, q, h_mask, q_mask)[0]
    e = math.e
    to_question = [e / (1 + e), e**2 / (1 + e**2)]  # of q = 0 and 1, with scores 0 and h
    to_passage = (1 * e + 2 * e**2) / (e + e**2)  # the best scores are 1 and 2
    for position, value in enumerate((1.0, 2.0)):
        c = to_question[position]
        assert output[position].tolist() == pytest.approx([value, c, value * c, c * to_passage], rel=1e-5)


def test_self_attention_of_a_position_excludes_itself():
    attention = SelfAttention(2)
    h = torch.randn(1, 3, 2)
    mask = torch.tensor([[True, True, False]])
    output = attention(h, mask)[0]
    torch.testing.assert_close(output[0, 2:4], h[0, 1])  # there is only one other position
    torch.testing.assert_close(output[1, 2:4], h[0, 0])
    alone = attention(h[:, :1], mask[:, :1])[0]
    assert torch.equal(alone[0, 2:4], torch.zeros(2))


def test_training_excludes_long_passages_and_questions_without_answers(caplog):
    config = TASK.model_config(max_passage=len(SQUAD[3].passage))
    unanswered = TASK.from_text(["Basel lies on it.", "Where?"], tokenizer("default"))
    assert TASK.training_examples([*SQUAD, unanswered], config) == SQUAD[3:]
    (record,) = caplog.records
    assert record.args == (3, 6, config.max_passage)  # of the questions with an answer
    caplog.clear()
    assert TASK.training_examples(SQUAD, TASK.model_config()) == SQUAD
    assert not caplog.records


def test_raw_text_gets_an_answer_with_its_offsets(tmp_path):
    run, _ = small_run(tmp_path, "squad")
    run.model.eval()
    example = TASK.from_text(["Basel lies on it, since 1066-77.", "Where?"], tokenizer("default"))
    batch = TASK.collate([example], run.maker)
    assert batch.starts is None
    (prediction,) = run.model.predict(batch)
    values = TASK.as_json(example, prediction)
    assert example.context[values["start"] : values["end"]] == values["answer"]
    assert 0 < values["probability"] <= 1
    segments = TASK.render(example, prediction)
    assert any(segment.label == "answer" and segment.text == values["answer"] for segment in segments)


def test_a_frozen_bilm_embeds_a_passage_by_sentences(tmp_path):
    run, splits = small_run(tmp_path, "squad", elmo={"mode": "frozen"})
    examples = [splits.train[3], splits.train[0]]
    batch = TASK.collate(examples, run.maker).passage
    plain = small_run(tmp_path, "squad")[0].maker.tokens([example.passage for example in examples])
    assert torch.equal(batch.word_ids, plain.word_ids)
    assert torch.equal(batch.mask, plain.mask)
    assert torch.equal(batch.char_ids, plain.char_ids)
    assert torch.equal(batch.char_rows, plain.char_rows)
    for row, example in enumerate(examples):
        alone = [run.embedder.layers([list(sentence)], output="torch")[0] for sentence in example.passage_sentences]
        expected = torch.cat(alone, dim=1)  # (L+1, n, D)
        torch.testing.assert_close(batch.layers[:, row, : expected.shape[1]].float(), expected, rtol=2e-3, atol=2e-3)
        assert not batch.layers[:, row, expected.shape[1] :].any()
    assert len(examples[1].lengths) == 2
