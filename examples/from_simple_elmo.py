"""Code for simple_elmo, with the import changed: which of two texts is nearer to a third.

python examples/from_simple_elmo.py
python examples/from_simple_elmo.py path/to/model
"""

from __future__ import annotations

import sys

from elmo.compat.simple_elmo import ElmoModel  # was: from simple_elmo import ElmoModel

TEXTS = ["The court rejected the appeal .", "A judge dismissed the case .", "Fry the onions in butter ."]


def main() -> None:
    model = ElmoModel()
    model.load(sys.argv[1] if len(sys.argv) > 1 else "english", max_batch_size=3)
    sentences = [text.split() for text in TEXTS]
    print("vectors of the words:", model.get_elmo_vectors(sentences).shape)
    averages = model.get_elmo_vector_average(sentences)
    near, far = averages[0] @ averages[1], averages[0] @ averages[2]
    print("nearer to the first text:", TEXTS[1] if near > far else TEXTS[2])


if __name__ == "__main__":
    main()
