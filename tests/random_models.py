"""Small models with random weights in many shapes, stored in folders, for the exports to other formats."""

from __future__ import annotations

from pathlib import Path

import torch

from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, CharConfig, LSTMConfig, WordConfig
from elmo.weights.model_parts import ModelParts
from elmo.weights.store import save_store

CHARS = CharConfig(num_chars=40, char_dim=4, max_chars=9, filters=((1, 3), (2, 4), (4, 5)), num_highways=1)
WORDS = WordConfig(num_words=30, word_dim=7)
LSTM = LSTMConfig(num_layers=2, cell_dim=11, proj_dim=6, cell_clip=0.5, proj_clip=0.3)

SHAPES = {
    "characters": BiLMConfig(chars=CHARS, lstm=LSTM),
    "words": BiLMConfig(chars=None, words=WORDS, lstm=LSTM),
    "characters and words": BiLMConfig(chars=CHARS, words=WORDS, lstm=LSTM),
    "one direction": BiLMConfig(chars=CHARS, lstm=LSTM, bidirectional=False),
    "tanh without highways": BiLMConfig(
        chars=CharConfig(num_chars=40, char_dim=4, max_chars=9, filters=((3, 5),), num_highways=0, activation="tanh"),
        lstm=LSTM,
    ),
    "three highways and filters as wide as a token": BiLMConfig(
        chars=CharConfig(num_chars=40, char_dim=4, max_chars=5, filters=((5, 4), (1, 2)), num_highways=3), lstm=LSTM
    ),
    "no skip connections": BiLMConfig(chars=CHARS, lstm=LSTMConfig(num_layers=3, cell_dim=11, proj_dim=6, skip=False)),
    "four layers": BiLMConfig(chars=CHARS, lstm=LSTMConfig(num_layers=4, cell_dim=11, proj_dim=6, proj_clip=0.3)),
    "one layer": BiLMConfig(chars=CHARS, lstm=LSTMConfig(num_layers=1, cell_dim=11, proj_dim=6, cell_clip=0.5)),
    "no clips": BiLMConfig(chars=CHARS, lstm=LSTMConfig(cell_dim=11, proj_dim=6, cell_clip=None, proj_clip=None)),
    "no projection": BiLMConfig(chars=CHARS, lstm=LSTMConfig(cell_dim=6, proj_dim=6, cell_clip=0.5, proj_clip=0.1)),
    "projection between equal sizes": BiLMConfig(
        chars=CHARS, lstm=LSTMConfig(cell_dim=6, proj_dim=6, project=True, proj_clip=0.3)
    ),
    "no token projection": BiLMConfig(chars=CHARS, lstm=LSTMConfig(cell_dim=11, proj_dim=12)),
    "token projection between equal sizes": BiLMConfig(
        chars=CHARS, lstm=LSTMConfig(cell_dim=11, proj_dim=12), project_tokens=True
    ),
    "forget bias in the file": BiLMConfig(chars=CHARS, lstm=LSTMConfig(cell_dim=11, proj_dim=6, forget_bias=0.0)),
    "equal sizes everywhere": BiLMConfig(
        chars=CharConfig(num_chars=4, char_dim=4, max_chars=4, filters=((4, 4),), num_highways=1),
        lstm=LSTMConfig(num_layers=3, cell_dim=4, proj_dim=4, project=True),
        project_tokens=True,
    ),
}


def random_network(config: BiLMConfig, seed: int = 0) -> BiLM:
    """A network whose weights and biases are large enough that clips of 0.5 are reached."""
    generator = torch.Generator().manual_seed(seed)
    model = BiLM(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.6)
    return model


def save_random(folder: Path, config: BiLMConfig, seed: int = 0, storage: str = "float32") -> BiLM:
    """Stores a random network as a model folder and returns it."""
    model = random_network(config, seed)
    vocab = tuple(f"word{number}" for number in range(config.words.num_words)) if config.words else None
    if vocab:
        vocab = ("<S>", "</S>", "<UNK>", *vocab[3:])
    save_store(folder, ModelParts(config=config, tensors=dict(model.state_dict()), vocab=vocab), storage=storage)
    return model
