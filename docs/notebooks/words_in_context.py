# %% [markdown]
# # Words in context
#
# A word has another vector in every sentence. Here are six uses of *bank*: three of a business, three of a shore.

# %%
import numpy as np
from IPython.display import SVG

import elmo
from elmo.charts.word_map import word_map

embedder = elmo.load("english")
embedder

# %%
sentences = [
    "The bank raised its interest rates again last week .",
    "She deposited the money in her bank account .",
    "The bank approved the loan for their new house .",
    "They sat on the bank of the river and watched the boats .",
    "Tall trees grew along the muddy bank of the stream .",
    "The boat was tied to the far bank of the lake .",
]
tokens = [sentence.split() for sentence in sentences]
layers = embedder.layers(tokens)  # one array (layers, tokens, width) per sentence
uses = np.stack([one[:, words.index("bank")] for one, words in zip(layers, tokens, strict=True)])  # (6, layers, width)
uses.shape[:2]

# %% [markdown]
# Layer 0 sees the letters of the word and nothing else: its six vectors are equal. In the layers above, the mean
# cosine of two uses with the same meaning is larger than that of two uses with different meanings.

# %%
same = np.kron(np.eye(2), np.ones((3, 3))).astype(bool) & ~np.eye(6, dtype=bool)
other = ~same & ~np.eye(6, dtype=bool)
for layer in range(embedder.num_layers):
    unit = uses[:, layer] / np.linalg.norm(uses[:, layer], axis=1, keepdims=True)
    cosines = unit @ unit.T
    print(f"layer {layer}: same meaning {cosines[same].mean():.2f}, other meaning {cosines[other].mean():.2f}")

# %% [markdown]
# The two directions in which the uses differ most, layer by layer:

# %%
senses = ["money"] * 3 + ["shore"] * 3
SVG(word_map("uses-of-bank", {"bank": (uses.swapaxes(0, 1), senses)}, title="Six uses of bank"))

# %% [markdown]
# The nearest use of each one, after subtracting what all uses share:

# %%
centred = uses[:, -1] - uses[:, -1].mean(axis=0)
centred /= np.linalg.norm(centred, axis=1, keepdims=True)
cosines = centred @ centred.T - 2 * np.eye(6)
labels = ["rates", "account", "loan", "river", "stream", "lake"]
for label, row in zip(labels, cosines, strict=True):
    print(f"{label:8} is nearest to {labels[row.argmax()]}")

# %% [markdown]
# The biLM is a language model as well: the words that it would expect at the place of *bank*.

# %%
for number in (0, 3):
    words = tokens[number]
    found = embedder.substitutes(words, words.index("bank"), k=5)
    print(f"{sentences[number]}\n    {', '.join(substitute.word for substitute in found)}")
