"""ELMo as the first module of a SentenceTransformer: encode, train the mix of layers on pairs, save and load.

python examples/sentence_transformers_module.py
"""

from __future__ import annotations

import tempfile

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from elmo.integrations.sentence_transformers import ElmoModule

PAIRS = [
    ("The court ruled on Monday .", "The judge gave a verdict ."),
    ("Boil the potatoes .", "Cook them in hot water ."),
    ("The striker scored twice .", "Two goals won the match ."),
    ("Shares fell sharply .", "The market lost value ."),
]


def main() -> None:
    elmo_module = ElmoModule("english")
    model = SentenceTransformer(modules=[elmo_module, Pooling(elmo_module.get_embedding_dimension())], device="cpu")
    print("weight of each layer before:", elmo_module.mix.layer_weights().tolist())
    optimizer = torch.optim.Adam(elmo_module.mix.parameters(), lr=0.1)
    for _ in range(10):  # in-batch negatives: each sentence should be nearest to its partner
        one, other = (model(model.preprocess(list(side)))["sentence_embedding"] for side in zip(*PAIRS, strict=True))
        scores = 20 * model.similarity(one, other)  # (4, 4)
        loss = torch.nn.functional.cross_entropy(scores, torch.arange(len(PAIRS)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("weight of each layer after: ", [round(weight, 3) for weight in elmo_module.mix.layer_weights().tolist()])
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        loaded = SentenceTransformer(folder, trust_remote_code=True, device="cpu")
    texts = [text for pair in PAIRS for text in pair]
    difference = abs(model.encode(texts) - loaded.encode(texts)).max()
    print(f"loss {loss.item():.3f}, vectors {model.encode(texts).shape}, difference after loading {difference:.1e}")


if __name__ == "__main__":
    main()
