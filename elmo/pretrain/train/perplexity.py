"""Held-out perplexity with the full softmax, with the LSTM state reset per sentence or carried through the text.

Models are compared by these numbers. The training loss is not comparable, because it is that of the sampled softmax.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from elmo.kernels.api import find_log_probs, find_stacks
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.data.stream import ContinuousStream, Direction, LMBatch, sentence_batches
from elmo.pretrain.train.type_inputs import distinct_vectors
from elmo.progress import Progress

DEFINITION = (
    "perplexity = exp(mean negative log-likelihood in nats) over every prediction of the measured text, full softmax: "
    "forward the words and </S>, backward the words and <S>, words outside the vocabulary as <UNK>; mean = exp of the "
    "mean of both directions' losses (the geometric mean); 'reset': each sentence from a fresh state; 'carried': rows "
    "of running text, state carried over sentences, a last incomplete batch left out; several files: from the sums of "
    "the losses of each file"
)


@dataclass(frozen=True)
class Perplexity:
    """The perplexity of one text; the LSTM state was either reset per sentence or carried."""

    forward: float
    backward: float | None  # None: the model has the forward direction only
    mean: float
    predictions: int  # per direction

    def to_dict(self) -> dict[str, float | None]:
        return {"forward": self.forward, "backward": self.backward, "mean": self.mean, "predictions": self.predictions}


@dataclass(frozen=True)
class LossSum:
    """The sums of the losses in nats, from which the perplexity of several texts together is computed."""

    forward: float
    backward: float | None  # None: the model has the forward direction only
    predictions: int  # per direction

    def __add__(self, other: LossSum) -> LossSum:
        backward = None if self.backward is None or other.backward is None else self.backward + other.backward
        return LossSum(self.forward + other.forward, backward, self.predictions + other.predictions)

    def perplexity(self) -> Perplexity:
        """The perplexity of all predictions in the sums."""
        count = max(self.predictions, 1)
        if self.backward is None:
            return Perplexity(_exp(self.forward / count), None, _exp(self.forward / count), self.predictions)
        forward, backward = self.forward / count, self.backward / count
        return Perplexity(_exp(forward), _exp(backward), _exp((forward + backward) / 2), self.predictions)


def add_losses(losses: Iterable[LossSum]) -> LossSum:
    """The sum of one or more sums of losses."""
    return functools.reduce(operator.add, losses)


class Evaluator:
    """Measures the perplexity of a model on prepared text; `rows` are the ids of each word type (see `input_rows`).

    `progress`, if given, counts the predictions per direction.
    """

    def __init__(
        self, model: BiLM, rows: Tensor, *, precision: torch.dtype = torch.float32, progress: Progress | None = None
    ) -> None:
        self.model, self.rows, self.dtype, self._progress = model, rows, precision, progress
        self.device = next(model.parameters()).device
        self._run_stacks = find_stacks(model, self.device.type, str(precision).removeprefix("torch."))
        self.batch_tokens = 8192 if self.device.type == "cpu" else 65536

    def reset(
        self,
        data: PreparedData,
        *,
        split: str = "heldout",
        max_words: int | None = None,
        sentences: range | None = None,
    ) -> Perplexity:
        """The perplexity with every sentence read from a zero state; see `reset_sum`."""
        return self.reset_sum(data, split=split, max_words=max_words, sentences=sentences).perplexity()

    def reset_sum(
        self,
        data: PreparedData,
        *,
        split: str = "heldout",
        max_words: int | None = None,
        sentences: range | None = None,
    ) -> LossSum:
        """The losses with every sentence read from a zero state.

        `sentences` selects sentences by number, for example those of one source. With `max_words`, every n-th sentence
        of the text is measured, so that the shares of the sources stay the same.
        """
        batches = sentence_batches(data, split, max_tokens=self.batch_tokens, max_words=max_words, sentences=sentences)
        return self._measure(batches, carry=False)

    def reset_by_language(self, data: PreparedData, *, max_words: int | None = None) -> dict[str, LossSum]:
        """The losses of each language with every sentence read from a zero state; {} for text of one language.

        With `max_words`, each language has an equal part of it at most, so that all are measured equally well. A
        language of which no sentence is measured is left out.
        """
        if len(data.languages) < 2:
            return {}
        samples = data.heldout_samples(max_words)
        by_source = {source: self.reset_sum(data, sentences=span) for source, span in samples.items() if span}
        return {name: add_losses(losses) for name, losses in data.by_language(by_source).items()}

    def carried(self, data: PreparedData, *, split: str = "heldout", max_words: int | None = None) -> Perplexity:
        """The perplexity of continuous text; see `carried_sum`."""
        return self.carried_sum(data, split=split, max_words=max_words).perplexity()

    def carried_sum(self, data: PreparedData, *, split: str = "heldout", max_words: int | None = None) -> LossSum:
        """The losses of continuous text; the state is carried over from sentence to sentence and batch to batch.

        There are as many rows as give each about a thousand words. With `max_words`, about that many words of shuffled
        sentences are measured; without it, all text in its order, as in the reference implementation.
        """
        positions = data.split(split).num_positions
        is_part = max_words is not None and positions > max_words
        num_rows = max(1, min(64, (max_words if is_part and max_words else positions) // 1000))
        num_steps = min(20, max(1, positions // num_rows))
        stream = ContinuousStream(data, num_rows, num_steps, split=split, shuffle=is_part, num_epochs=1)
        max_batches = max(1, max_words // (num_rows * num_steps)) if is_part and max_words else None
        return self._measure(islice(stream, max_batches), carry=True)

    def _measure(self, batches: Iterable[LMBatch], carry: bool) -> LossSum:
        """The losses of all predictions of the batches; `carry` keeps the state from batch to batch."""
        totals, predictions = np.zeros(2), 0
        training, state = self.model.training, None
        self.model.eval()
        try:
            with torch.inference_mode():
                for batch in batches:
                    losses, final_state = self._losses(batch, state)
                    state = final_state if carry else None
                    totals[: len(losses)] += losses
                    predictions += batch.num_predictions[0]
                    if self._progress is not None:
                        self._progress.advance(batch.num_predictions[0])
        finally:
            self.model.train(training)
        return LossSum(float(totals[0]), float(totals[1]) if len(self.model.stacks) > 1 else None, predictions)

    def _losses(self, batch: LMBatch, state: State | None) -> tuple[np.ndarray, State]:
        """The sum of the losses of each direction, (R,), and the final state; a state of None is a zero state."""
        directions = [batch.forward, batch.backward][: len(self.model.stacks)]
        state = self.model.zero_state(len(directions[0].inputs)) if state is None else state
        inputs = torch.from_numpy(np.stack([d.inputs for d in directions])).to(self.device)  # (R, B, T)
        vectors, places = distinct_vectors(self.model, self.rows, inputs, self.dtype)  # (N, P)
        before = State(state.h.to(self.dtype), state.c)
        # padding is at the end of each row, so it does not influence any prediction that counts
        top, after = self._run_stacks(self.model.stacks, vectors[places], before, None, 0.0)  # (R, B, T, P)
        return np.array([self._loss(top[d], direction) for d, direction in enumerate(directions)]), after

    def _loss(self, top: Tensor, direction: Direction) -> float:
        """The sum of the losses of one direction, from top-layer outputs (B, T, P)."""
        targets = torch.from_numpy(direction.targets).to(self.device).long()  # (B, T)
        if direction.mask is None:
            hidden, words = top.flatten(0, 1), targets.flatten()
        else:
            mask = torch.from_numpy(direction.mask).to(self.device)
            hidden, words = top[mask], targets[mask]
        assert self.model.head is not None
        hidden = hidden.float()
        log_probs = find_log_probs(self.model.head, hidden)
        parts = [
            log_probs(hidden[a : a + 2048], words[a : a + 2048]).double().sum() for a in range(0, len(hidden), 2048)
        ]
        return -float(torch.stack(parts).sum())


def _exp(loss: float) -> float:
    return math.exp(min(loss, 700.0))  # a diverged model gives a huge number instead of an overflow
