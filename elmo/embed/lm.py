"""The biLM as a language model: scores, perplexity and substitutes for words in context.

The model must have its softmax. The forward model reads `<S>` and the preceding words; the backward model reads `</S>`
and the following words. A sentence of n words has n + 1 predictions per direction: forward the words and `</S>`,
backward the words and `<S>`. Words outside the vocabulary count as `<UNK>`. A model with the forward direction only
has forward predictions only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import choose_layers
from elmo.embed.lm_results import Perplexity, Scores, Substitute, SubstituteLists
from elmo.errors import ConfigError, DataError, WeightsError
from elmo.kernels.api import find_log_probs
from elmo.model.head import Head
from elmo.settings import check_count
from elmo.text.batch import windows_of
from elmo.text.chars import replace_surrogates
from elmo.text.inputs import (
    NormalizedInput,
    decomposed_warning,
    log_warnings,
    normalize_input,
    single_word_warning,
    spaced_token_warning,
    word_position,
)
from elmo.text.vocab import Vocabulary

DEFINITION = (
    "perplexity = exp(mean negative log-likelihood in nats) over all predictions, full softmax; forward predicts the "
    "words and </S>, backward the words and <S>; words outside the vocabulary count as <UNK>; the mean is geometric, "
    "exp of the mean of both directions' losses; state {state}"
)
_FORWARD_ONLY = "; the model has the forward direction only, whose perplexity is the mean"
_STATES_PER_CALL = 1024  # hidden states that are scored against one block of the vocabulary


class LanguageModel:
    """A language model made of an embedder whose model has a softmax."""

    def __init__(self, embedder: Embedder, *, word_counts: Sequence[float] | np.ndarray | None = None) -> None:
        """`word_counts`, one per word of the vocabulary, replace those of the model in `unigram_log_probs`."""
        if embedder.model.head is None:
            raise WeightsError(
                f"The model {embedder.name!r} has no softmax, so it cannot score or predict words.",
                "Published weights.hdf5 files lack it; TensorFlow checkpoints and models trained with elmo have it.",
            )
        if embedder.vocab is None or len(embedder.vocab) != embedder.model.head.vocab_size:
            num_words = 0 if embedder.vocab is None else len(embedder.vocab)
            raise WeightsError(
                f"The softmax has {embedder.model.head.vocab_size:,} words and the vocabulary has {num_words:,}.",
                "Put the vocabulary of the model's training into its folder as vocab.txt.",
            )
        self.embedder = embedder
        self.head: Head = embedder.model.head
        self.vocab: Vocabulary = embedder.vocab
        self._word_counts = self.vocab.counts if word_counts is None else word_counts

    @functools.cached_property
    def unigram_log_probs(self) -> np.ndarray:
        """log p(word) of each word regardless of context, (V,).

        It comes from the word counts plus one: those given, or else those of the training text, which models trained by
        this package store. Otherwise it is estimated by Zipf's law, p(word) ~ 1 / rank, because a vocabulary is in the
        order of falling frequency. `word_prior` says which.
        """
        if self._word_counts is None:
            weights = 1.0 / np.arange(1, len(self.vocab) + 1)
        else:
            weights = np.asarray(self._word_counts, dtype=np.float64) + 1
            if weights.shape != (len(self.vocab),) or not ((weights >= 1) & (weights < np.inf)).all():
                raise ConfigError(
                    f"word_counts has shape {weights.shape}; expected {len(self.vocab):,} finite counts, none negative."
                )
        return np.asarray(np.log(weights / weights.sum()))

    @property
    def word_prior(self) -> str:
        """Where `unigram_log_probs` comes from: "counts" or "zipf"."""
        return "zipf" if self._word_counts is None else "counts"

    def scores(self, texts: Any) -> list[Scores]:
        """The log-probabilities of each sentence, per token; an empty sentence has none, and its sum is nan."""
        return list(self.stream(self._read(texts).sentences))

    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[Scores]:
        """The same for tokenised sentences, one by one. The input may have any length: memory is constant."""
        for window in windows_of(sentences, 16_384):
            scores: dict[int, Scores] = {}
            filled = [i for i, sentence in enumerate(window) if len(sentence)]
            for group, forward, backward in self._states([window[i] for i in filled]):
                scores |= self._score([(filled[i], window[filled[i]]) for i in group], forward, backward)
            empty = Scores([], [], np.zeros(0), np.zeros(0) if self._bidirectional else None)
            yield from (scores.get(i, empty) for i in range(len(window)))

    def perplexity(self, sentences: Any) -> Perplexity:
        """The perplexity of all sentences together, of which one must have a word."""
        forward = backward = 0.0
        predictions = words = unknown = 0
        both = self._bidirectional
        for scores in self.stream(self._read(sentences).sentences):
            forward -= float(scores.forward.sum())
            backward -= 0.0 if scores.backward is None else float(scores.backward.sum())
            predictions += len(scores.forward)
            words += len(scores.tokens)
            unknown += sum(scores.unknown)
        if not predictions:
            raise DataError("The perplexity of a text without words is not defined.", "Pass at least one word.")
        count = predictions
        return Perplexity(
            forward=math.exp(forward / count),
            backward=math.exp(backward / count) if both else None,
            mean=math.exp((forward + backward) / ((2 if both else 1) * count)),
            num_words=words,
            num_predictions=predictions,
            num_unknown=unknown,
            definition=DEFINITION.format(state=self.embedder.state) + ("" if both else _FORWARD_ONLY),
        )

    def substitutes(self, text: Any, position: int | str | None = None, *, k: int = 10) -> list[list[Substitute]]:
        """The k words that fit best at each position (or at one, also given by its word), best first.

        The two directions are independent estimates of p(word | context), and each includes the word's frequency:
        words are ranked by log p(word | left) + log p(word | right) - log p(word), the posterior of a word given both
        contexts. Without the last term, function words come first almost everywhere. A model with the forward direction
        only ranks by log p(word | left), which includes the frequency once. The symbols <S>, </S> and <UNK> are not
        words and are excluded.
        """
        k = check_count("k", k)
        tokens = self._one_sentence(text)
        if position is not None:
            position = word_position(tokens, position)
        if not tokens:
            return []
        # of two directions, each counts the word's frequency; of one, it is counted once already
        log_priors = self.unigram_log_probs if self._bidirectional else np.zeros(len(self.vocab))
        with torch.inference_mode(), torch.autocast(self.embedder.device.type, enabled=False):
            ((_, forward, backward),) = self._states([tokens])
            positions = torch.arange(len(tokens)) if position is None else torch.tensor([position])  # (N,)
            offset = torch.from_numpy(-log_priors).to(forward)  # (V,)
            # the forward state before a word predicts it, and so does the backward state after it
            parts = []
            for part in positions.to(forward.device).split(_STATES_PER_CALL):
                after = [] if backward is None else [backward[0, part + 2]]
                parts.append(self.head.best([forward[0, part], *after], k + 3, offset=offset))  # each (n, k + 3)
        symbols = {self.vocab.bos, self.vocab.eos, self.vocab.unk}
        substitutes = []
        for values, ids in parts:
            for log_probs, word_ids in zip(values.tolist(), ids.tolist(), strict=True):
                pairs = [(i, value) for i, value in zip(word_ids, log_probs, strict=True) if i not in symbols][:k]
                substitutes.append([Substitute(self.vocab.words[i], v, v - float(log_priors[i])) for i, v in pairs])
        return substitutes

    def substitutes_by_direction(self, text: Any, *, k: int = 10) -> list[SubstituteLists]:
        """For each position of a sentence, the k best words of each direction and of both together.

        The lists of both directions are those of `substitutes`. Those of one direction are ranked by its
        log-probability, which includes a word's frequency once. The softmax is computed once for all lists.
        """
        k = check_count("k", k)
        tokens = self._one_sentence(text)
        if not tokens:
            return []
        lists = []
        with torch.inference_mode(), torch.autocast(self.embedder.device.type, enabled=False):
            ((_, forward, backward),) = self._states([tokens])
            log_prior = torch.from_numpy(self.unigram_log_probs).to(forward)  # (V,)
            rows = max(1, (1 << 23) // len(self.vocab))  # positions at once: 32 MB per direction
            for part in torch.arange(len(tokens), device=forward.device).split(rows):
                left = self.head.all_log_probs(forward[0, part])  # (n, V)
                if backward is None:
                    one = self._best_words(left, left, k)
                    lists += [SubstituteLists(words, None, words) for words in one]
                    continue
                right = self.head.all_log_probs(backward[0, part + 2])  # (n, V)
                both = left + right
                of_both = self._best_words(both - log_prior, both, k)
                of_left, of_right = self._best_words(left, left, k), self._best_words(right, right, k)
                lists += [SubstituteLists(*words) for words in zip(of_left, of_right, of_both, strict=True)]
        return lists

    def _best_words(self, scores: Tensor, log_probs: Tensor, k: int) -> list[list[Substitute]]:
        """The k words with the highest scores (n, V) of each position, without the symbols <S>, </S> and <UNK>."""
        symbols = {self.vocab.bos, self.vocab.eos, self.vocab.unk}
        best, ids = scores.topk(min(k + len(symbols), scores.shape[-1]), dim=-1)  # (n, k + 3)
        rows = zip(ids.tolist(), best.tolist(), log_probs.gather(-1, ids).tolist(), strict=True)
        return [
            [Substitute(self.vocab.words[i], p, s) for i, s, p in zip(*row, strict=True) if i not in symbols][:k]
            for row in rows
        ]

    @property
    def _bidirectional(self) -> bool:
        return self.embedder.model.config.bidirectional

    def _read(self, texts: Any) -> NormalizedInput:
        """The texts as tokenised sentences, with warnings of what is probably a mistake."""
        inputs = normalize_input(texts, self.embedder.tokenize)
        log_warnings(single_word_warning(inputs), decomposed_warning(inputs.sentences))
        return inputs

    def _one_sentence(self, text: Any) -> list[str]:
        """The tokens of one sentence, which is a string or a list of tokens."""
        inputs = normalize_input(text if isinstance(text, str) else [text], self.embedder.tokenize)
        (tokens,) = inputs.sentences
        log_warnings(spaced_token_warning(tokens))
        return tokens

    def _states(self, sentences: Sequence[Sequence[str]]) -> Iterator[tuple[np.ndarray, Tensor, Tensor | None]]:
        """Batch by batch: the numbers of its sentences and their top-layer states, forward and backward (B, T, P)."""
        P = self.embedder.model.config.lstm.proj_dim
        rows = 1 if self.embedder.state == "carry" else 256  # "carry": one row continues in every sentence
        for group, layers in self.embedder.run(
            sentences, choose_layers("top", self.embedder.num_layers), batch_size=rows
        ):
            yield group, layers[0, :, :, :P], layers[0, :, :, P:] if self._bidirectional else None

    def _score(
        self, numbered: list[tuple[int, Sequence[str]]], forward: Tensor, backward: Tensor | None
    ) -> dict[int, Scores]:
        hidden, targets = [], []
        for row, (_, tokens) in enumerate(numbered):
            n = len(tokens)
            ids = torch.from_numpy(self.vocab.ids([replace_surrogates(token) for token in tokens]))  # (n,)
            bos, eos = torch.tensor([self.vocab.bos]), torch.tensor([self.vocab.eos])
            hidden.append(forward[row, : n + 1])
            targets.append(torch.cat([ids, eos]))
            if backward is not None:
                hidden.append(backward[row, 1 : n + 2])
                targets.append(torch.cat([bos, ids]))
        states, target_ids = torch.cat(hidden), torch.cat(targets).to(forward.device)  # (N, P), (N,)
        with torch.inference_mode(), torch.autocast(self.embedder.device.type, enabled=False):
            log_probs = find_log_probs(self.head, states)
            pairs = zip(states.split(_STATES_PER_CALL), target_ids.split(_STATES_PER_CALL), strict=True)
            values = torch.cat([log_probs(*pair) for pair in pairs]).double().cpu().numpy()  # (N,)
        scores, start = {}, 0
        for number, tokens in numbered:
            n = len(tokens) + 1
            both = backward is not None
            behind = values[start + n : start + 2 * n] if both else None
            unknown = [token not in self.vocab for token in tokens]
            scores[number] = Scores(list(tokens), unknown, values[start : start + n], behind)
            start += 2 * n if both else n
        return scores
