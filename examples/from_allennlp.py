"""A tagger in the style of AllenNLP's ELMo code of 2018; only the import has changed.

    python examples/from_allennlp.py
    python examples/from_allennlp.py options.json weights.hdf5

Without arguments it uses a tiny random model and only memorises the two sentences.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import elmo
from elmo.compat.allennlp import Elmo, batch_to_ids  # was: from allennlp.modules.elmo import Elmo, batch_to_ids

FIXTURE = Path(elmo.__file__).parent / "golden" / "allennlp"
SENTENCES = [["Ada", "lives", "in", "London", "."], ["Paris", "is", "far", "from", "Grace", "'s", "home", "."]]
TAGS = [["PER", "O", "O", "LOC", "O"], ["LOC", "O", "O", "O", "PER", "O", "O", "O"]]
NAMES = ["O", "PER", "LOC"]


class Tagger(torch.nn.Module):
    def __init__(self, options_file: str, weight_file: str) -> None:
        super().__init__()
        self.elmo = Elmo(options_file, weight_file, num_output_representations=1, dropout=0.1)
        self.elmo._elmo_lstm._elmo_lstm.stateful = False  # remove this line to carry state from batch to batch
        self.output = torch.nn.Linear(self.elmo.get_output_dim(), len(NAMES))

    def forward(self, sentences: list[list[str]]) -> tuple[torch.Tensor, torch.Tensor]:
        embedded = self.elmo(batch_to_ids(sentences))
        return self.output(embedded["elmo_representations"][0]), embedded["mask"]


def main() -> None:
    torch.manual_seed(0)
    files = sys.argv[1:3] or [str(FIXTURE / "options.json"), str(FIXTURE / "lm_weights.hdf5")]
    tagger = Tagger(*files)
    optimizer = torch.optim.Adam([p for p in tagger.parameters() if p.requires_grad], lr=0.05)
    gold = torch.tensor([NAMES.index(tag) for tags in TAGS for tag in tags])
    for step in range(60):
        scores, mask = tagger(SENTENCES)
        loss = torch.nn.functional.cross_entropy(scores[mask], gold)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == 59:
            print(f"step {step:2}  loss {loss.item():.3f}")
    scores, mask = tagger.eval()(SENTENCES)
    for words, tags, is_token in zip(SENTENCES, scores.argmax(dim=-1), mask, strict=True):
        print(" ".join(f"{word}/{NAMES[tag]}" for word, tag in zip(words, tags[is_token].tolist(), strict=True)))
    weights = torch.softmax(torch.cat(list(tagger.elmo.scalar_mix_0.scalar_parameters)), dim=0)
    print("weight of each layer:", " ".join(f"{weight:.2f}" for weight in weights.tolist()))


if __name__ == "__main__":
    main()
