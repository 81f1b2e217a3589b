"""A Lightning model with ELMo inside: only the mix of layers and the output layer are trained.

pip install lightning
python examples/lightning_tagger.py
"""

from __future__ import annotations

import logging
import sys

import lightning
import torch
from torch import Tensor, nn

import elmo

TAGS = ["other", "person", "place"]
Example = tuple[str, list[int]]  # words, and the number of the tag of each
TRAIN: list[Example] = [
    ("Ada lives in London .", [1, 0, 0, 2, 0]),
    ("Paris is far from the house of Marie .", [2, 0, 0, 0, 0, 0, 0, 1, 0]),
    ("Henry and Anna left Berlin in May .", [1, 0, 1, 0, 2, 0, 0, 0]),
    ("The train to Vienna was late , said Robert .", [0, 0, 0, 2, 0, 0, 0, 0, 1, 0]),
]


class Tagger(lightning.LightningModule):
    def __init__(self, model: str = "default") -> None:
        super().__init__()
        self.embedding = elmo.ElmoEmbedding(model, layer_norm="token", dropout=0.2)  # the biLM is frozen
        self.output = nn.Linear(self.embedding.dim, len(TAGS))

    def forward(self, sentences: list[list[str]]) -> Tensor:
        vectors, mask = self.embedding(sentences)  # (B, T, D), (B, T)
        return self.output(vectors[mask])  # one row per word

    def training_step(self, batch: list[Example], _: int) -> Tensor:
        gold = torch.tensor([tag for _, tags in batch for tag in tags], device=self.device)
        return nn.functional.cross_entropy(self([text.split() for text, _ in batch]), gold)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam([p for p in self.parameters() if p.requires_grad], lr=0.02)


def main(model: str = "default") -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(0, verbose=False)
    tagger = Tagger(model)
    trainer = lightning.Trainer(max_epochs=40, accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.fit(tagger, torch.utils.data.DataLoader(TRAIN, batch_size=4, collate_fn=list))
    words = ["Alice", "moved", "to", "Chicago", "with", "Peter", "."]
    with torch.no_grad():
        tags = tagger.eval()([words]).argmax(dim=-1).tolist()
    print(" ".join(f"{word}/{TAGS[tag]}" for word, tag in zip(words, tags, strict=True)))


if __name__ == "__main__":
    main(*sys.argv[1:])
