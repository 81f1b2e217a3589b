# %% [markdown]
# # A tagger in PyTorch with the mix of layers
#
# The paper's ELMo is a weighted sum of the biLM's layers whose weights are learned by the task (equation 1). Here a
# linear tagger of persons and places learns them, from six sentences.

# %%
import torch
from torch import Tensor, nn

import elmo

names = ["O", "PER", "LOC"]
train = [
    "Ada/PER lives/O in/O London/LOC ./O",
    "Last/O week/O Grace/PER flew/O to/O Boston/LOC ./O",
    "Paris/LOC is/O far/O from/O the/O house/O of/O Marie/PER ./O",
    "We/O met/O Thomas/PER near/O Oxford/LOC ./O",
    "Henry/PER and/O Anna/PER left/O Berlin/LOC in/O May/O ./O",
    "The/O train/O to/O Vienna/LOC was/O late/O ,/O said/O Robert/PER ./O",
]
test = ["Alice/PER moved/O to/O Chicago/LOC with/O Peter/PER ./O", "In/O Madrid/LOC ,/O John/PER met/O Clara/PER ./O"]
embedder = elmo.load("english", device="cpu")

# %% [markdown]
# The biLM is frozen, so that its layers are computed once. Sentences are padded to one array:


# %%
def make_batch(texts: list[str]) -> tuple[Tensor, Tensor, list[list[str]]]:
    pairs = [[token.rsplit("/", 1) for token in text.split()] for text in texts]
    sentences = [[word for word, _ in pair] for pair in pairs]
    by_token = [one.transpose(0, 1) for one in embedder.layers(sentences, output="torch")]  # (n, L+1, D) each
    layers = nn.utils.rnn.pad_sequence(by_token, batch_first=True).permute(2, 0, 1, 3)  # (L+1, B, T, D)
    tags = [torch.tensor([names.index(tag) for _, tag in pair]) for pair in pairs]
    return layers, nn.utils.rnn.pad_sequence(tags, batch_first=True, padding_value=-1), sentences


layers, gold, _ = make_batch(train)
layers.shape[:3], gold.shape

# %% [markdown]
# The model is a mix and a linear layer. `ScalarMix` has one weight per layer and a scale gamma; dropout and a small
# penalty on the weights are those of the paper.


# %%
class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = elmo.ScalarMix(embedder.num_layers, layer_norm="token", dropout=0.2, penalty=0.001)
        self.output = nn.Linear(embedder.dim, len(names))

    def forward(self, layers: Tensor) -> Tensor:
        scores: Tensor = self.output(self.mix(layers))
        return scores  # (B, T, K)


torch.manual_seed(0)
tagger = Tagger()
optimizer = torch.optim.Adam(tagger.parameters(), lr=0.01)
for step in range(60):
    loss = nn.functional.cross_entropy(tagger(layers).flatten(0, 1), gold.flatten(), ignore_index=-1)
    optimizer.zero_grad()
    (loss + tagger.mix.penalty()).backward()
    optimizer.step()
    if step % 20 == 0 or step == 59:
        print(f"step {step:2}  loss {loss.item():.3f}")

# %% [markdown]
# Names that it has not seen:

# %%
tagger.eval()
layers, gold, sentences = make_batch(test)
tags = tagger(layers).argmax(dim=-1)  # (B, T)
for words, row in zip(sentences, tags.tolist(), strict=True):
    print(" ".join(f"{word}/{names[tag]}" for word, tag in zip(words, row, strict=False)))
print(f"accuracy {100 * (tags == gold)[gold >= 0].float().mean():.0f}%")

# %% [markdown]
# What the task has learned about the layers: the weights sum to 1.

# %%
for number, weight in enumerate(tagger.mix.layer_weights().tolist()):
    print(f"layer {number}: {weight:.2f}")
