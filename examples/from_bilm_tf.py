"""Code for bilm-tf, with the import changed and the session deleted: a question and its context share one mix.

python examples/from_bilm_tf.py
python examples/from_bilm_tf.py options.json weights.hdf5
"""

from __future__ import annotations

import sys

import torch

from elmo.compat.bilm_tf import Batcher, BidirectionalLanguageModel, weight_layers  # was: from bilm import ...

CONTEXT = ["The museum opened in 1890 near the river .", "Its director , Clara Brown , retired last year ."]
QUESTION = ["Who was the head of the museum ?"]


def main() -> None:
    options_file = sys.argv[1] if len(sys.argv) > 1 else "english"  # a model's name or folder, or its options
    weight_file = sys.argv[2] if len(sys.argv) > 2 else None
    batcher = Batcher(None, 50)
    bilm = BidirectionalLanguageModel(options_file, weight_file)
    context_ops = bilm(batcher.batch_sentences([text.split() for text in CONTEXT]), placeholder="context")
    question_ops = bilm(batcher.batch_sentences([text.split() for text in QUESTION]), placeholder="question")
    context = weight_layers("input", context_ops, l2_coef=0.0)["weighted_op"]
    question = weight_layers("input", question_ops, l2_coef=0.0)["weighted_op"]
    print(
        "layers of the context:", tuple(context_ops["lm_embeddings"].shape), "lengths:", context_ops["lengths"].tolist()
    )
    head = question[0, QUESTION[0].split().index("head")]
    cosines = torch.cosine_similarity(context, head, dim=-1)
    row, position = divmod(int(cosines.argmax()), cosines.shape[1])
    print("nearest to 'head':", CONTEXT[row].split()[position])
    print("trainable numbers:", sum(p.numel() for p in bilm.mixes.parameters()))


if __name__ == "__main__":
    main()
