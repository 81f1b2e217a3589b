"""The srl model: overfits a few predicates, predicts valid tags, and its cell equals a step-by-step computation."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from small_runs import learn, small_run

from elmo.errors import DataError
from elmo.tasks.layers.viterbi import bio_rules
from elmo.tasks.srl.encoder import AlternatingLSTM
from elmo.tasks.srl.task import TASK
from elmo.text.tokenize import tokenizer


@pytest.mark.parametrize("recurrent_gate", [False, True])
def test_it_overfits_a_few_predicates(tmp_path, recurrent_gate):
    run, splits = small_run(tmp_path, "srl", model={"recurrent_gate": recurrent_gate})
    assert learn(run, splits.train, updates=70, lr=0.02)["f1"] == 100


@pytest.mark.parametrize("mode", ["none", "frozen"])
def test_scores_do_not_depend_on_padding_and_neighbours(tmp_path, mode):
    run, splits = small_run(tmp_path, "srl", elmo={"mode": mode})
    run.model.eval()
    together = run.model.scores(TASK.collate(splits.train, run.maker))  # (B, T, K)
    for row, example in zip(together, splits.train, strict=True):
        alone = run.model.scores(TASK.collate([example], run.maker))[0]  # (n, K)
        torch.testing.assert_close(row[: len(alone)], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("recurrent_gate", [False, True])
def test_the_layers_of_the_encoder_alternate_directions(recurrent_gate):
    torch.manual_seed(0)
    encoder = AlternatingLSTM(3, 4, 2, recurrent_gate=recurrent_gate).eval()
    x, mask = torch.randn(2, 5, 3), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    y = encoder(x, mask)
    assert torch.equal(y[1, 3:], torch.zeros(2, 4))
    # one layer depends only on earlier tokens; two depend on all tokens
    one = AlternatingLSTM(3, 4, 1, recurrent_gate=recurrent_gate).eval()
    changed = x.clone()
    changed[:, 2] += 1
    assert torch.equal(one(x, mask)[:, :2], one(changed, mask)[:, :2])
    assert not torch.allclose(encoder(changed, mask)[:, 0], y[:, 0])


def test_the_published_cell_step_by_step():
    torch.manual_seed(1)
    layer = AlternatingLSTM(2, 3, 1, recurrent_gate=True).eval().layers[0]
    x = torch.randn(1, 4, 2)
    W, b, U = layer.from_input.weight, layer.from_input.bias, layer.from_state.weight
    h = c = torch.zeros(3)
    outputs = []
    for token in x[0]:
        i, f, o, r, g = ((W @ token + b)[3 * k : 3 * k + 3] + (U @ h)[3 * k : 3 * k + 3] for k in range(5))
        c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * c
        h = torch.sigmoid(r) * torch.sigmoid(o) * torch.tanh(c) + (1 - torch.sigmoid(r)) * (W @ token + b)[15:]
        outputs.append(h)
    torch.testing.assert_close(layer(x, torch.ones(1, 3))[0], torch.stack(outputs))


def test_decoding_finds_the_best_valid_path(tmp_path):
    run, splits = small_run(tmp_path, "srl")
    model = run.model.eval()
    example = next(example for example in splits.train if len(example.tokens) == 3)
    batch = TASK.collate([example], run.maker)
    log_probabilities = torch.log_softmax(model.scores(batch), dim=-1)[0]  # (3, K)
    allowed, start, _ = bio_rules(model.labels)

    def is_valid(path):
        return start[path[0]] and all(allowed[a, b] for a, b in pairwise(path))

    paths = [path for path in product(range(len(model.labels)), repeat=3) if is_valid(path)]
    best = max(paths, key=lambda path: sum(log_probabilities[t, k].item() for t, k in enumerate(path)))
    assert model.predict(batch) == [[model.labels[k] for k in best]]


def test_unknown_roles_have_no_loss_and_raw_text_has_a_predicate(tmp_path):
    run, splits = small_run(tmp_path, "srl")
    unknown_role = splits.train[0].__class__(tokens=("a", "b"), predicate=0, tags=("B-V", "B-ARG9"))
    batch = TASK.collate([unknown_role], run.maker)
    assert batch.tags[0, 1] == -1
    assert torch.isfinite(run.model.loss(batch))
    example = TASK.from_text(["Ann gave him the book.", "gave"], tokenizer("default"))
    assert example.predicate == 1
    run.model.eval()
    tags = run.model.predict(TASK.collate([example], run.maker))[0]
    assert len(tags) == 6
    assert " ".join(segment.text for segment in TASK.render(example, tags)) == "Ann gave him the book ."
    assert TASK.as_json(example, tags)["predicate"] == 1
    with pytest.raises(DataError, match="not a word of"):
        TASK.from_text(["Ann gave him the book.", "take"], tokenizer("default"))
