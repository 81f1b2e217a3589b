"""ElmoEmbedding inside a LightningModule: trained by the Trainer, saved to its checkpoint and loaded from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lightning
import pytest
import torch
from torch import Tensor, nn

import elmo

EXAMPLE = Path(__file__).parents[2] / "examples" / "lightning_tagger.py"
BATCH = [["red", "cat"], ["cat", "sat", "red"]]
GOLD = torch.tensor([1, 0, 0, 0, 1])


class Tagger(lightning.LightningModule):
    def __init__(self, requires_grad: bool = False) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.embedding = elmo.ElmoEmbedding("tiny-random", requires_grad=requires_grad)
        self.output = nn.Linear(self.embedding.dim, 2)
        self.losses: list[float] = []

    def forward(self, sentences: list[list[str]]) -> Tensor:
        vectors, mask = self.embedding(sentences)
        return self.output(vectors)[mask]

    def training_step(self, batch: list[list[str]], _: int) -> Tensor:
        loss = nn.functional.cross_entropy(self(batch), GOLD.to(self.device))
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.02)


def fit(tagger: Tagger, folder: Path, precision: str = "32-true") -> lightning.Trainer:
    trainer = lightning.Trainer(
        max_epochs=30, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, precision=precision,
    )  # fmt: skip
    trainer.fit(tagger, torch.utils.data.DataLoader(BATCH, batch_size=2, collate_fn=list))
    return trainer


@pytest.mark.parametrize("requires_grad", [False, True])
def test_the_trainer_trains_the_mix_and_the_bilm_only_if_it_is_not_frozen(requires_grad, tmp_path):
    torch.manual_seed(0)
    tagger = Tagger(requires_grad)
    before = {name: value.clone() for name, value in tagger.embedding.state_dict().items()}
    fit(tagger, tmp_path)
    assert tagger.losses[-1] < 0.3 * tagger.losses[0]
    changed = {name for name, value in tagger.embedding.state_dict().items() if not torch.equal(value, before[name])}
    assert {"mix.weights", "mix.gamma"} <= changed
    assert any(name.startswith("bilm.") for name in changed) == requires_grad


def test_a_checkpoint_of_the_trainer_gives_the_same_scores(tmp_path):
    torch.manual_seed(0)
    tagger = Tagger(requires_grad=True)
    fit(tagger, tmp_path).save_checkpoint(tmp_path / "tagger.ckpt")
    loaded = Tagger.load_from_checkpoint(tmp_path / "tagger.ckpt", weights_only=True)
    with torch.no_grad():
        assert torch.equal(loaded(BATCH), tagger.eval()(BATCH))


def test_training_in_bfloat16(tmp_path):
    torch.manual_seed(0)
    tagger = Tagger()
    fit(tagger, tmp_path, precision="bf16-true")
    assert {parameter.dtype for parameter in tagger.parameters()} == {torch.bfloat16}
    assert tagger.losses[-1] < 0.5 * tagger.losses[0]


def test_the_example_tags_a_new_sentence():
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tags = [token.rsplit("/", 1) for token in done.stdout.splitlines()[-1].split()]
    assert [word for word, _ in tags] == ["Alice", "moved", "to", "Chicago", "with", "Peter", "."]
    gold = ["person", "other", "other", "place", "other", "person", "other"]
    assert sum(tag == right for (_, tag), right in zip(tags, gold, strict=True)) >= 6, done.stdout
