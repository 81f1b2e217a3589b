# %% [markdown]
# # A biLM of your own
#
# A biLM needs only text. Here it is the sentence bank of the explorer, 4,259 openly licensed English sentences that
# are part of the package: far too little for a good model, but enough to see everything work in about a minute on a
# CPU.

# %%
import lzma
from pathlib import Path
from tempfile import mkdtemp

import elmo

bank = Path(elmo.__file__).parent / "serve" / "bank" / "sentences.txt.xz"
lines = lzma.decompress(bank.read_bytes()).decode().splitlines()
print(f"{len(lines)} sentences, {sum(len(line.split()) for line in lines):,} words")
print(lines[0])

# %% [markdown]
# `elmo.train_bilm` does what `elmo pretrain` does. The preset `tiny` has 0.6 million parameters; `train` takes the
# settings of the section `[train]` of a TOML file. The same call resumes an interrupted run.

# %%
folder = Path(mkdtemp())
settings = {"max_steps": 300, "rows": 16, "validate_every": 100, "device": "cpu"}
result = elmo.train_bilm(lines=lines, out=folder / "run", preset="tiny", train=settings, data={"max_vocab": 5000})
assert result.model is not None  # it is None if a signal ended the run
sorted(path.name for path in result.model.iterdir())

# %% [markdown]
# The result is a folder that `elmo.load` reads. Its perplexity on sentences of the same kind is far below the size
# of its vocabulary, which is what a model that has learned nothing would have:

# %%
own = elmo.load(result.model)
print(f"{own.num_layers} layers of width {own.dim}")
perplexity = own.perplexity([line.split() for line in lines[::100]])
print(f"perplexity {perplexity.mean:.0f} on {perplexity.num_words} words of its training text")

# %%
sentence = ["He", "sat", "down", "on", "the", "bank", "."]
for name, embedder in (("own", own), ("english", elmo.load("english"))):
    found = embedder.substitutes(sentence, sentence.index("down"), k=6)
    print(f"{name:8} He sat ___ on the bank: {', '.join(substitute.word for substitute in found)}")

# %% [markdown]
# More text and more steps make the difference. On a GPU, `elmo pretrain` reads more than a million tokens per
# second.
