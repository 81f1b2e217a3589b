"""Held-out perplexity in the full softmax: both directions, state fresh a sentence or carried through the text.

The numbers to compare models by. What is printed during training as loss is the sampled softmax's and is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from elmo.kernels.api import find_kernel
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.model.stacks import run_stacks
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.data.stream import ContinuousStream, Direction, LMBatch, sentence_batches
from elmo.pretrain.train.type_inputs import distinct_vectors

DEFINITION = (
    "perplexity = exp(mean negative log-likelihood in nats) over every prediction of the held-out text, full softmax: "
    "forward the words and </S>, backward the words and <S>, words outside the vocabulary as <UNK>; mean = exp of the "
    "mean of both directions' losses (the geometric mean); 'reset': each sentence from a fresh state; 'carried': rows "
    "of running text, state carried over sentences, a last incomplete batch left out"
)


@dataclass(frozen=True)
class Perplexity:
    """Of one text under one way of keeping state."""

    forward: float
    backward: float | None  # None: the model has the forward direction only
    mean: float
    predictions: int  # a direction

    def to_dict(self) -> dict[str, float | None]:
        return {"forward": self.forward, "backward": self.backward, "mean": self.mean, "predictions": self.predictions}


class Evaluator:
    """Measures a model on the held-out split of prepared text; `rows` (types, W) are the ids of each word type."""

    def __init__(self, model: BiLM, rows: Tensor, *, precision: torch.dtype = torch.float32) -> None:
        self.model, self.rows, self.dtype = model, rows, precision
        self.device = next(model.parameters()).device
        self._fused = find_kernel("bilstm", self.device.type, str(precision).removeprefix("torch."), model)
        self.batch_tokens = 8192 if self.device.type == "cpu" else 65536

    def reset(
        self,
        data: PreparedData,
        *,
        split: str = "heldout",
        max_words: int | None = None,
        sentences: range | None = None,
    ) -> Perplexity:
        """Each sentence on its own. `sentences` narrows it to some of the held-out ones (a source's, say).

        With `max_words`, every n-th sentence is taken, so that each source keeps its share.
        """
        text = data.split(split)
        chosen = range(text.num_sentences) if sentences is None else sentences
        if max_words is not None and text.num_tokens > max_words:
            chosen = chosen[:: math.ceil(text.num_tokens / max_words)]
        return self._pooled(sentence_batches(data, split, max_tokens=self.batch_tokens, sentences=chosen), carry=False)

    def carried(self, data: PreparedData, *, split: str = "heldout", max_words: int | None = None) -> Perplexity:
        """Running text: as many rows as give each about a thousand words, state carried from batch to batch.

        With `max_words`, so many of the shuffled sentences; without, all in their order, as the reference measures.
        """
        positions = data.split(split).num_positions
        part = max_words is not None and positions > max_words
        num_rows = max(1, min(64, (max_words if part and max_words else positions) // 1000))
        num_steps = min(20, max(1, positions // num_rows))
        stream = ContinuousStream(data, num_rows, num_steps, split=split, shuffle=part, num_epochs=1)
        return self._pooled(
            islice(stream, max_words // (num_rows * num_steps) if part and max_words else None), carry=True
        )

    def _pooled(self, batches: Iterable[LMBatch], carry: bool) -> Perplexity:
        totals, predictions = np.zeros(2), 0
        training, state = self.model.training, None
        self.model.eval()
        try:
            with torch.inference_mode():
                for batch in batches:
                    losses, after = self._losses(batch, state)
                    state = after if carry else None
                    totals[: len(losses)] += losses
                    predictions += batch.num_predictions[0]
        finally:
            self.model.train(training)
        forward, backward = totals / max(predictions, 1)
        if len(self.model.stacks) == 1:
            return Perplexity(_exp(forward), None, _exp(forward), predictions)
        return Perplexity(_exp(forward), _exp(backward), _exp((forward + backward) / 2), predictions)

    def _losses(self, batch: LMBatch, state: State | None) -> tuple[np.ndarray, State]:
        directions = [batch.forward, batch.backward][: len(self.model.stacks)]
        state = self.model.zero_state(len(directions[0].inputs)) if state is None else state
        inputs = torch.from_numpy(np.stack([d.inputs for d in directions])).to(self.device)  # (D, B, T)
        vectors, places = distinct_vectors(self.model, self.rows, inputs, self.dtype)  # (N, P)
        before = State(state.h.to(self.dtype), state.c)
        # padding is behind each row's text, so what is read there changes nothing that counts
        top, after = run_stacks(self.model.stacks, vectors[places], before, fused=self._fused)  # (D, B, T, P)
        return np.array([self._loss(top[d], direction) for d, direction in enumerate(directions)]), after

    def _loss(self, top: Tensor, direction: Direction) -> float:
        """The sum of a direction's losses."""
        targets = torch.from_numpy(direction.targets).to(self.device).long()  # (B, T)
        if direction.mask is None:
            hidden, wanted = top.flatten(0, 1), targets.flatten()
        else:
            mask = torch.from_numpy(direction.mask).to(self.device)
            hidden, wanted = top[mask], targets[mask]
        assert self.model.head is not None
        parts = [
            self.model.head.log_probs(hidden[a : a + 2048].float(), wanted[a : a + 2048]).double().sum()
            for a in range(0, len(hidden), 2048)
        ]
        return -float(torch.stack(parts).sum())


def _exp(loss: float) -> float:
    return math.exp(min(loss, 700.0))  # a diverged model shows a huge number, not an overflow
