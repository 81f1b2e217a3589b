"""A tagger in AllenNLP's style, with an Elmo inside, has the numbers of a plain-torch tagger on the oracle's layers.

The reference shares no code with the package: its layers come from tests/oracle.py (numpy, float64), with the LSTM
state carried from batch to batch, and its mix is written out in torch.
"""

from __future__ import annotations

import json

import numpy as np
import oracle
import pytest
import torch
from golden import FIXTURES, GOLDEN
from torch import Tensor, nn

from elmo.compat.allennlp import Elmo, batch_to_ids

NUM_TAGS, HIDDEN, NUM_EPOCHS = 4, 8, 5


class ElmoTagger(nn.Module):
    """As written for AllenNLP: the constructor takes the files, forward returns a dict with the loss."""

    def __init__(self, options_file: str, weight_file: str, num_tags: int) -> None:
        super().__init__()
        self.elmo = Elmo(options_file, weight_file, 1, dropout=0)
        self.encoder = nn.LSTM(self.elmo.get_output_dim(), HIDDEN, bidirectional=True, batch_first=True)
        self.tag_projection_layer = nn.Linear(2 * HIDDEN, num_tags)

    def forward(self, sentence: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        embedded = self.elmo(sentence)
        mask, vectors = embedded["mask"], embedded["elmo_representations"][0]
        return score(self.encoder, self.tag_projection_layer, vectors, mask, labels)

    def decode(self, output: dict[str, Tensor]) -> list[list[int]]:
        tags = output["logits"].argmax(dim=-1)
        return [row[mask].tolist() for row, mask in zip(tags, output["mask"].bool(), strict=True)]


class PlainTagger(nn.Module):
    """The same network on precomputed layers (L+1, B, T, D)."""

    def __init__(self, num_layers: int, dim: int, num_tags: int) -> None:
        super().__init__()
        self.mix_weights = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(1))
        self.encoder = nn.LSTM(dim, HIDDEN, bidirectional=True, batch_first=True)
        self.tag_projection_layer = nn.Linear(2 * HIDDEN, num_tags)

    def forward(self, layers: Tensor, mask: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        exponentials = self.mix_weights.exp()
        vectors = self.gamma * (exponentials[:, None, None, None] * layers).sum(dim=0) / exponentials.sum()
        return score(self.encoder, self.tag_projection_layer, vectors, mask, labels)


def score(encoder: nn.LSTM, project: nn.Linear, vectors: Tensor, mask: Tensor, labels: Tensor | None):
    packed = nn.utils.rnn.pack_padded_sequence(vectors, mask.sum(dim=1), batch_first=True, enforce_sorted=False)
    encoded, _ = nn.utils.rnn.pad_packed_sequence(encoder(packed)[0], batch_first=True)
    output = {"logits": project(encoded), "mask": mask}
    if labels is not None:
        output["loss"] = nn.functional.cross_entropy(output["logits"][mask.bool()], labels[mask.bool()])
    return output


def batches_of(kind: str) -> list[list[list[str]]]:
    """Five batches of three golden sentences; each row is a text that goes on from batch to batch."""
    rows = json.loads((FIXTURES / kind / GOLDEN[kind]).read_text())
    return [[row[number].split()[:12] for row in rows] for number in range(5)]


def labels_of(batch: list[list[str]]) -> Tensor:
    """The tag of a word says how long it is, in four classes."""
    labels = torch.zeros(len(batch), max(map(len, batch)), dtype=torch.long)
    for row, tokens in enumerate(batch):
        labels[row, : len(tokens)] = torch.tensor([np.digitize(len(token), [2, 4, 7]) for token in tokens])
    return labels


def padded_oracle_layers(model, batch, state):
    options, weights = model
    arrays, state = oracle.run(options, weights, batch, state)
    longest = max(map(len, batch))
    layers = np.zeros((len(arrays[0]), len(batch), longest, arrays[0].shape[-1]))  # (L+1, B, T, D)
    for row, array in enumerate(arrays):
        layers[:, row, : array.shape[1] - 2] = array[:, 1:-1]
    mask = torch.tensor([[k < len(tokens) for k in range(longest)] for tokens in batch])
    return torch.from_numpy(layers).float(), mask, state


@pytest.mark.parametrize("kind", ["allennlp", "bilm-tf"])
def test_an_allennlp_tagger_has_the_loss_course_of_a_plain_one(kind):
    files = FIXTURES / kind / "options.json", FIXTURES / kind / "lm_weights.hdf5"
    torch.manual_seed(0)
    tagger = ElmoTagger(str(files[0]), str(files[1]), NUM_TAGS)
    plain = PlainTagger(3, tagger.elmo.get_output_dim(), NUM_TAGS)
    for name in ("encoder", "tag_projection_layer"):
        getattr(plain, name).load_state_dict(getattr(tagger, name).state_dict())
    optimizers = [
        torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02) for model in (tagger, plain)
    ]
    model, state, batches = oracle.load(*files), None, batches_of(kind)
    losses: list[list[float]] = [[], []]
    for _ in range(NUM_EPOCHS):
        for batch in batches:
            labels = labels_of(batch)
            layers, mask, state = padded_oracle_layers(model, batch, state)
            outputs = [tagger(batch_to_ids(batch), labels), plain(layers, mask, labels)]
            for output, optimizer, course in zip(outputs, optimizers, losses, strict=True):
                optimizer.zero_grad()
                output["loss"].backward()
                optimizer.step()
                course.append(output["loss"].item())
    np.testing.assert_allclose(losses[0], losses[1], rtol=0, atol=1e-5)
    assert np.mean(losses[0][-5:]) < 0.95 * np.mean(losses[0][:5]), "it learns"
    learned = [weight.item() for weight in tagger.elmo.scalar_mix_0.scalar_parameters]
    np.testing.assert_allclose(learned, plain.mix_weights.tolist(), rtol=0, atol=1e-4)
    assert max(map(abs, learned)) > 0.01, "the mix is trained"

    tagger.eval()
    for batch in batches:  # prediction continues from the state that training left, as in AllenNLP
        layers, mask, state = padded_oracle_layers(model, batch, state)
        output = tagger(batch_to_ids(batch))
        expected = plain(layers, mask)["logits"]
        torch.testing.assert_close(output["logits"][mask], expected[mask], rtol=0, atol=2e-4)
        expected_tags = [row[m].tolist() for row, m in zip(expected.argmax(dim=-1), mask, strict=True)]
        assert tagger.decode(output) == expected_tags
