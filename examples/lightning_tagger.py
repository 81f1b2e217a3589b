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

TAGS = {"O": 0, "PER": 1, "LOC": 2}
TRAIN = [
    "Ada/PER lives/O in/O London/LOC ./O",
    "Paris/LOC is/O far/O from/O the/O house/O of/O Marie/PER ./O",
    "We/O met/O Thomas/PER near/O Oxford/LOC ./O",
    "Henry/PER and/O Anna/PER left/O Berlin/LOC in/O May/O ./O",
    "The/O train/O to/O Vienna/LOC was/O late/O ,/O said/O Robert/PER ./O",
]
Batch = tuple[list[list[str]], list[list[int]]]


class Tagger(lightning.LightningModule):
    def __init__(self, model: str = "default") -> None:
        super().__init__()
        self.embedding = elmo.ElmoEmbedding(model, layer_norm="token", dropout=0.2)  # the biLM is frozen
        self.output = nn.Linear(self.embedding.dim, len(TAGS))

    def forward(self, sentences: list[list[str]]) -> tuple[Tensor, Tensor]:
        vectors, mask = self.embedding(sentences)  # (B, T, D), (B, T)
        return self.output(vectors), mask

    def training_step(self, batch: Batch, _: int) -> Tensor:
        scores, mask = self(batch[0])
        gold = torch.tensor([tag for tags in batch[1] for tag in tags], device=self.device)
        return nn.functional.cross_entropy(scores[mask], gold)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam([p for p in self.parameters() if p.requires_grad], lr=0.02)


def collate(sentences: list[str]) -> Batch:
    pairs = [[token.rsplit("/", 1) for token in sentence.split()] for sentence in sentences]
    return [[word for word, _ in pair] for pair in pairs], [[TAGS[tag] for _, tag in pair] for pair in pairs]


def main(model: str = "default") -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(0, verbose=False)
    data = torch.utils.data.DataLoader(TRAIN, batch_size=5, collate_fn=collate)
    tagger = Tagger(model)
    trainer = lightning.Trainer(
        max_epochs=40, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(tagger, data)
    words = ["Alice", "moved", "to", "Chicago", "with", "Peter", "."]
    with torch.no_grad():
        tags = tagger.eval()([words])[0].argmax(dim=-1)[0].tolist()
    print(" ".join(f"{word}/{list(TAGS)[tag]}" for word, tag in zip(words, tags, strict=True)))


if __name__ == "__main__":
    main(*sys.argv[1:])
