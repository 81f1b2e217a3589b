"""Code for ELMoForManyLangs, with the import changed: the vectors of one word in three sentences.

python examples/from_elmoformanylangs.py
python examples/from_elmoformanylangs.py path/to/model
"""

from __future__ import annotations

import sys

import numpy as np

from elmo.compat.elmoformanylangs import Embedder  # was: from elmoformanylangs import Embedder

SENTENCES = ["He opened a bank account .", "The bank raised its rates .", "Trees grow on the bank of the river ."]


def main() -> None:
    embedder = Embedder(sys.argv[1] if len(sys.argv) > 1 else "english")
    sents = [text.split() for text in SENTENCES]
    for output_layer in (0, 1, 2, -1):
        vectors = embedder.sents2elmo(sents, output_layer=output_layer)
        banks = [array[words.index("bank")] for array, words in zip(vectors, sents, strict=True)]
        units = [vector / np.linalg.norm(vector) for vector in banks]
        same, other = units[0] @ units[1], units[0] @ units[2]
        print(f"layer {output_layer:2}: cosines {same:.2f} (money, money) {other:.2f} (money, river)")


if __name__ == "__main__":
    main()
