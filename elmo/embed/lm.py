"""The biLM as what it is, a language model: scores, perplexity and substitutes for words in context.

Only for models that carry their softmax. The forward model reads `<S>` and the words before; the backward model reads
`</S>` and the words after. A sentence of n words gives n + 1 predictions a direction: forward the words and `</S>`,
backward the words and `<S>`. Words outside the vocabulary count as `<UNK>`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import choose_layers
from elmo.errors import ConfigError, WeightsError
from elmo.model.head import Head
from elmo.text.batch import windows_of
from elmo.text.inputs import normalize_input
from elmo.text.vocab import Vocabulary

DEFINITION = (
    "perplexity = exp(mean negative log-likelihood in nats) over all predictions, full softmax; forward predicts the "
    "words and </S>, backward the words and <S>; words outside the vocabulary count as <UNK>; the mean is geometric, "
    "exp of the mean of both directions' losses; state {state}"
)
_STATES_AT_ONCE = 1024  # hidden states scored against one block of the vocabulary


@dataclass(frozen=True)
class Scores:
    """Log-probabilities (nats) of a sentence: forward[k] of word k, last of </S>; backward[0] of <S>, then words."""

    tokens: list[str]
    forward: np.ndarray  # (n + 1,)
    backward: np.ndarray  # (n + 1,)

    @property
    def log_prob(self) -> float:
        """Mean of the two directions' sums."""
        return float((self.forward.sum() + self.backward.sum()) / 2)


@dataclass(frozen=True)
class Perplexity:
    """How well a text was predicted, with what it was measured by."""

    forward: float
    backward: float
    mean: float
    num_words: int
    num_predictions: int  # a direction
    num_unknown: int  # words outside the vocabulary
    definition: str


@dataclass(frozen=True)
class Substitute:
    """A word for a place, and its log-probability there (summed over directions)."""

    word: str
    log_prob: float


class LanguageModel:
    """Scores from an embedder whose model has a softmax."""

    def __init__(self, embedder: Embedder) -> None:
        if embedder.model.head is None:
            raise WeightsError(
                f"The model {embedder.name!r} has no softmax, so it cannot score or predict words.",
                "Published weights.hdf5 files leave it out; TensorFlow checkpoints and models trained here have it.",
            )
        if embedder.vocab is None or len(embedder.vocab) != embedder.model.head.vocab_size:
            seen = "none" if embedder.vocab is None else f"{len(embedder.vocab):,} words"
            raise WeightsError(
                f"The softmax has {embedder.model.head.vocab_size:,} words and the vocabulary {seen}.",
                "Put the vocabulary the model was trained with beside it as vocab.txt.",
            )
        if not embedder.model.config.bidirectional:
            raise ConfigError("Scores need a model with both directions; this one reads forward only.")
        self.embedder = embedder
        self.head: Head = embedder.model.head
        self.vocab: Vocabulary = embedder.vocab

    def scores(self, texts: Any) -> list[Scores]:
        """Per-token log-probabilities of each sentence; an empty one has none."""
        given = normalize_input(texts, self.embedder.tokenize)
        return list(self.stream(given.sentences))

    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[Scores]:
        """The same for an iterable of tokenised sentences of any length, one by one, in constant memory."""
        for window in windows_of(sentences, 16_384):
            found: dict[int, Scores] = {}
            filled = [i for i, sentence in enumerate(window) if len(sentence)]
            for group, forward, backward in self._states([window[i] for i in filled]):
                found |= self._score([(filled[i], window[filled[i]]) for i in group], forward, backward)
            yield from (found[i] if i in found else Scores([], np.zeros(0), np.zeros(0)) for i in range(len(window)))

    def perplexity(self, sentences: Any) -> Perplexity:
        """Of all sentences together."""
        forward = backward = 0.0
        predictions = words = unknown = 0
        for scores in self.stream(normalize_input(sentences, self.embedder.tokenize).sentences):
            forward -= float(scores.forward.sum())
            backward -= float(scores.backward.sum())
            predictions += len(scores.forward)
            words += len(scores.tokens)
            unknown += sum(token not in self.vocab for token in scores.tokens)
        count = max(predictions, 1)
        return Perplexity(
            forward=math.exp(forward / count),
            backward=math.exp(backward / count),
            mean=math.exp((forward + backward) / (2 * count)),
            num_words=words,
            num_predictions=predictions,
            num_unknown=unknown,
            definition=DEFINITION.format(state=self.embedder.state),
        )

    def substitutes(self, text: Any, position: int | None = None, *, k: int = 10) -> list[list[Substitute]]:
        """The k words both directions together find likeliest at each position (or at one), best first.

        The marks <S>, </S> and <UNK> are no words and are left out.
        """
        given = normalize_input([text] if not isinstance(text, str) else text, self.embedder.tokenize)
        (tokens,) = given.sentences
        if position is not None and not 0 <= position < len(tokens):
            raise ConfigError(f"position {position} was asked for; the sentence has words 0 to {len(tokens) - 1}.")
        if not tokens:
            return []
        with torch.inference_mode():
            ((_, forward, backward),) = self._states([tokens])
            places = range(len(tokens)) if position is None else [position]
            # the state before a word predicts it forward, the one after it backward
            before = torch.stack([forward[0, p] for p in places])  # (N, P)
            after = torch.stack([backward[0, p + 2] for p in places])  # (N, P)
            values, ids = self.head.best([before, after], k + 3)
        marks = {self.vocab.bos, self.vocab.eos, self.vocab.unk}
        found = []
        for scores, numbers in zip(values.tolist(), ids.tolist(), strict=True):
            words = [Substitute(self.vocab.words[i], v) for v, i in zip(scores, numbers, strict=True) if i not in marks]
            found.append(words[:k])
        return found

    def _states(self, sentences: Sequence[Sequence[str]]) -> Iterator[tuple[np.ndarray, Tensor, Tensor]]:
        """Top states a batch: which sentences, forward (B, T, P), backward (B, T, P)."""
        P = self.embedder.model.config.lstm.proj_dim
        rows = 1 if self.embedder.state == "carry" else 256  # carried: one row, sentence after sentence
        for group, layers in self.embedder.run(
            sentences, choose_layers("top", self.embedder.num_layers), batch_size=rows
        ):
            yield group, layers[0, :, :, :P], layers[0, :, :, P:]

    def _score(self, numbered: list[tuple[int, Sequence[str]]], forward: Tensor, backward: Tensor) -> dict[int, Scores]:
        hidden, targets = [], []
        for row, (_, tokens) in enumerate(numbered):
            n = len(tokens)
            ids = torch.from_numpy(self.vocab.ids(tokens))  # (n,)
            bos, eos = torch.tensor([self.vocab.bos]), torch.tensor([self.vocab.eos])
            hidden += [forward[row, : n + 1], backward[row, 1 : n + 2]]
            targets += [torch.cat([ids, eos]), torch.cat([bos, ids])]
        states, wanted = torch.cat(hidden), torch.cat(targets).to(forward.device)  # (N, P), (N,)
        with torch.inference_mode():
            parts = [
                self.head.log_probs(states[a : a + _STATES_AT_ONCE], wanted[a : a + _STATES_AT_ONCE])
                for a in range(0, len(states), _STATES_AT_ONCE)
            ]
        values = torch.cat(parts).double().cpu().numpy()  # (N,)
        found, at = {}, 0
        for number, tokens in numbered:
            n = len(tokens) + 1
            found[number] = Scores(list(tokens), values[at : at + n], values[at + n : at + 2 * n])
            at += 2 * n
        return found
