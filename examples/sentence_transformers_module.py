"""ELMo as the first module of a SentenceTransformer: encode, train the mix of layers on pairs, save and load.

pip install sentence-transformers datasets accelerate
python examples/sentence_transformers_module.py
"""

from __future__ import annotations

import sys
import tempfile

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling

from elmo.integrations.sentence_transformers import ElmoModule

TEXTS = ["The court ruled on Monday .", "Boil the potatoes .", "The striker scored twice .", "Shares fell sharply ."]
PARTNERS = ["The judge gave a verdict .", "Cook them in hot water .", "Two goals won it .", "Stocks lost value ."]


def main(model_name: str = "default") -> None:
    elmo_module = ElmoModule(model_name)
    model = SentenceTransformer(modules=[elmo_module, Pooling(elmo_module.get_embedding_dimension())], device="cpu")
    print("cosines of partners before:", model.similarity_pairwise(model.encode(TEXTS), model.encode(PARTNERS)))
    with tempfile.TemporaryDirectory() as folder:
        settings = SentenceTransformerTrainingArguments(
            folder, max_steps=5, learning_rate=0.1, use_cpu=True, report_to="none", save_strategy="no"
        )
        pairs = Dataset.from_dict({"anchor": TEXTS, "positive": PARTNERS})
        loss = MultipleNegativesRankingLoss(model)  # each text should be nearest to its partner
        SentenceTransformerTrainer(model=model, args=settings, train_dataset=pairs, loss=loss).train()
        model.save(folder)
        loaded = SentenceTransformer(folder, trust_remote_code=True, device="cpu")
    print("weight of each layer after: ", [round(weight, 3) for weight in elmo_module.mix.layer_weights().tolist()])
    difference = abs(model.encode(TEXTS) - loaded.encode(TEXTS)).max()
    print(f"vectors {loaded.encode(TEXTS).shape}, difference after loading {difference:.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
