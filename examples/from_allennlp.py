"""A tagger in the style of AllenNLP's ELMo code of 2018; only the import has changed.

    python examples/from_allennlp.py
    python examples/from_allennlp.py options.json weights.hdf5

Without arguments it uses the shipped English model: two sentences are enough to tag the names of a third.
"""

from __future__ import annotations

import sys

import torch

from elmo.compat.allennlp import Elmo, batch_to_ids  # was: from allennlp.modules.elmo import Elmo, batch_to_ids

SENTENCES = [["Ada", "lives", "in", "London", "."], ["Paris", "is", "far", "from", "Grace", "'s", "home", "."]]
TAGS = [["PER", "O", "O", "LOC", "O"], ["LOC", "O", "O", "O", "PER", "O", "O", "O"]]
NAMES = ["O", "PER", "LOC"]
NEW_SENTENCE = ["Mary", "flew", "to", "Berlin", "."]


class Tagger(torch.nn.Module):
    def __init__(self, options_file: str, weight_file: str | None) -> None:
        super().__init__()
        self.elmo = Elmo(options_file, weight_file, num_output_representations=1, dropout=0.1)
        self.elmo._elmo_lstm._elmo_lstm.stateful = False  # remove this line to carry state from batch to batch
        self.output = torch.nn.Linear(self.elmo.get_output_dim(), len(NAMES))

    def forward(self, sentences: list[list[str]]) -> tuple[torch.Tensor, torch.Tensor]:
        embedded = self.elmo(batch_to_ids(sentences))
        return self.output(embedded["elmo_representations"][0]), embedded["mask"]


def main() -> None:
    torch.manual_seed(0)
    options_file, weight_file = sys.argv[1:3] or ("english", None)  # the name of a model, instead of two files
    tagger = Tagger(options_file, weight_file)
    optimizer = torch.optim.Adam([p for p in tagger.parameters() if p.requires_grad], lr=0.01)
    gold = torch.tensor([NAMES.index(tag) for tags in TAGS for tag in tags])
    for step in range(12):
        scores, mask = tagger(SENTENCES)
        loss = torch.nn.functional.cross_entropy(scores[mask], gold)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0 or step == 11:
            print(f"step {step:2}  loss {loss.item():.3f}")
    sentences = [*SENTENCES, NEW_SENTENCE]
    scores, mask = tagger.eval()(sentences)
    for words, tags, is_token in zip(sentences, scores.argmax(dim=-1), mask, strict=True):
        print(" ".join(f"{word}/{NAMES[tag]}" for word, tag in zip(words, tags[is_token].tolist(), strict=True)))
    weights = torch.softmax(torch.cat(list(tagger.elmo.scalar_mix_0.scalar_parameters)), dim=0)
    print("weight of each layer:", " ".join(f"{weight:.2f}" for weight in weights.tolist()))


if __name__ == "__main__":
    main()
