"""ELMo in a spaCy pipeline: the vectors of tokens depend on their sentence, and the pipeline is saved and loaded.

python examples/spacy_pipeline.py [MODEL]
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np
import spacy

TEXTS = ["They sat on the bank of the river.", "The bank raised its rates.", "She swam to the bank of the stream."]


def main(model: str = "default") -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")  # each sentence is embedded on its own
    nlp.add_pipe("elmo", config={"model": model, "layers": "top"})
    docs = list(nlp.pipe(TEXTS))
    banks = [next(token for token in doc if token.text == "bank") for doc in docs]
    print("layers of 'bank':", banks[0]._.elmo.shape, "tensor:", docs[0].tensor.shape)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        cosine = banks[first].similarity(banks[second])
        print(f"similarity of 'bank' in {TEXTS[first]!r} and {TEXTS[second]!r}: {cosine:.2f}")
    with tempfile.TemporaryDirectory() as folder:
        nlp.to_disk(folder)
        loaded = spacy.load(folder)
    assert np.array_equal(loaded(TEXTS[0]).tensor, docs[0].tensor)
    print("loaded again: the same vectors")


if __name__ == "__main__":
    main(*sys.argv[1:])
