"""The memory that state "warm" starts every sentence from: what is left after one fixed text."""

from __future__ import annotations

import torch

from elmo.embed.layer_choice import choose_layers
from elmo.embed.run.chunks import sweep
from elmo.embed.word_cache import WordVectors
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.text.indexer import Indexer

# plain declarative English in the tokenised style of the training text; fixed for good, for results depend on it
WARM_UP = (
    "The committee met on Tuesday to discuss the plan , and most of its members agreed that more time was needed .",
    'He said : " We have not decided yet , but it is likely to happen before the end of the year . "',
    "In the north , heavy rain fell for three days and the river rose by almost two metres .",
    "She didn 't expect the company to grow so quickly , according to a report published last month .",
)


def warm_state(model: BiLM, indexer: Indexer) -> State:
    """One row's memory (directions, L, 1, ·) after the warm-up text, computed plainly, whatever else was embedded."""
    state, choice = model.zero_state(1), choose_layers("top", model.config.num_layers)
    sentences = [text.split() for text in WARM_UP]
    table, rows = WordVectors(model, indexer, capacity=0).table(sentences)
    for sentence in sentences:
        index = torch.tensor([0, *(rows[token] for token in sentence), 1], device=table.device)
        _, state = sweep(model, table[index][None], None, state, choice)
    return state
