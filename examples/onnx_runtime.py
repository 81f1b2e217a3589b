"""Vectors of an exported model with onnxruntime and numpy alone: neither elmo nor torch is imported.

elmo export onnx english english.onnx
python examples/onnx_runtime.py english.onnx
"""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 257, 258, 259, 260, 261  # byte b has the id b + 1
USES = ["They sat on the bank of the river .", "He rowed to the other bank .", "The bank lends money to farmers ."]


def char_ids(sentences: list[list[str]], width: int) -> np.ndarray:
    """Character ids (B, T, width) of tokenised sentences, with boundaries, padded with rows of zeros."""
    ids = np.zeros((len(sentences), max(map(len, sentences)) + 2, width), dtype=np.int32)
    for row, sentence in enumerate(sentences):
        words = [[byte + 1 for byte in token.encode()[: width - 2]] for token in sentence]
        for t, word in enumerate([[BEGIN_SENTENCE], *words, [END_SENTENCE]]):
            characters = [BEGIN_WORD, *word, END_WORD]
            ids[row, t] = characters + [PAD] * (width - len(characters))
    return ids


def main() -> None:
    session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    sentences = [text.split() for text in sys.argv[2:] or USES]
    ids = char_ids(sentences, session.get_inputs()[0].shape[2])
    layers, mask = session.run(["layers", "mask"], {"ids": ids})  # (L+1, B, T, D), (B, T)
    print(f"{mask.sum() - 2 * len(sentences)} tokens, {layers.shape[0]} layers of {layers.shape[3]} numbers")
    # position t + 1, because the boundary of the sentence is at position 0; the top layer is the last one
    banks = [layers[-1, row, words.index("bank") + 1] for row, words in enumerate(sentences) if "bank" in words]
    for words, vector in zip(sentences, banks, strict=True):
        cosine = vector @ banks[0] / np.linalg.norm(vector) / np.linalg.norm(banks[0])
        print(f"{cosine:.3f}  {' '.join(words)}")


if __name__ == "__main__":
    main()
