"""The mix of layers inside a PyTorch model: a tagger of persons and places learns the weights of the layers.

The biLM is frozen, so that its layers are computed once; the mix and a linear layer are trained.

    python examples/mix_in_pytorch.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import elmo

NAMES = ["O", "PER", "LOC"]
TRAIN = [
    "Ada/PER lives/O in/O London/LOC ./O",
    "Last/O week/O Grace/PER flew/O to/O Boston/LOC ./O",
    "Paris/LOC is/O far/O from/O the/O house/O of/O Marie/PER ./O",
    "We/O met/O Thomas/PER near/O Oxford/LOC ./O",
    "Henry/PER and/O Anna/PER left/O Berlin/LOC in/O May/O ./O",
    "The/O train/O to/O Vienna/LOC was/O late/O ,/O said/O Robert/PER ./O",
]
TEST = ["Alice/PER moved/O to/O Chicago/LOC with/O Peter/PER ./O", "In/O Madrid/LOC ,/O John/PER met/O Clara/PER ./O"]


class Tagger(nn.Module):
    """Layers (L+1, B, T, D) to scores (B, T, K)."""

    def __init__(self, num_layers: int, dim: int) -> None:
        super().__init__()
        self.mix = elmo.ScalarMix(num_layers, layer_norm="token", dropout=0.2, penalty=0.001)
        self.output = nn.Linear(dim, len(NAMES))

    def forward(self, layers: Tensor) -> Tensor:
        scores: Tensor = self.output(self.mix(layers))
        return scores


def main() -> None:
    torch.manual_seed(0)
    embedder = elmo.load("english", device="cpu")
    layers, gold, _ = make_batch(embedder, TRAIN)
    tagger = Tagger(embedder.num_layers, embedder.dim)
    optimizer = torch.optim.Adam(tagger.parameters(), lr=0.01)
    for step in range(60):
        loss = nn.functional.cross_entropy(tagger(layers).flatten(0, 1), gold.flatten(), ignore_index=-1)
        optimizer.zero_grad()
        (loss + tagger.mix.penalty()).backward()
        optimizer.step()
        if step % 20 == 0 or step == 59:
            print(f"step {step:2}  loss {loss.item():.3f}")
    tagger.eval()
    layers, gold, sentences = make_batch(embedder, TEST)
    tags = tagger(layers).argmax(dim=-1)  # (B, T)
    for words, row in zip(sentences, tags.tolist(), strict=True):
        print(" ".join(f"{word}/{NAMES[tag]}" for word, tag in zip(words, row, strict=False)))
    print(f"accuracy {100 * (tags == gold)[gold >= 0].float().mean():.0f}%")
    print("weight of each layer:", " ".join(f"{weight:.2f}" for weight in tagger.mix.layer_weights().tolist()))


def make_batch(embedder: elmo.Embedder, texts: list[str]) -> tuple[Tensor, Tensor, list[list[str]]]:
    """Layers (L+1, B, T, D) padded with zeros, tags (B, T) padded with -1, and the words."""
    pairs = [[token.rsplit("/", 1) for token in text.split()] for text in texts]
    sentences = [[word for word, _ in pair] for pair in pairs]
    by_token = [one.transpose(0, 1) for one in embedder.layers(sentences, output="torch")]  # (n, L+1, D) each
    layers = nn.utils.rnn.pad_sequence(by_token, batch_first=True).permute(2, 0, 1, 3)  # (L+1, B, T, D)
    tags = [torch.tensor([NAMES.index(tag) for _, tag in pair]) for pair in pairs]
    return layers, nn.utils.rnn.pad_sequence(tags, batch_first=True, padding_value=-1), sentences


if __name__ == "__main__":
    main()
