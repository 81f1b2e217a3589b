"""The reference executor: padded batches through the network in plain PyTorch, on any device.

It also computes what the other executors do not: the warm-up state and, on CUDA, padded batches and carried state.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from elmo.embed.layer_choice import LayerChoice, choose_layers
from elmo.embed.run.batches import BatchOptions, plan_groups, pool_sentences, sentence_windows
from elmo.embed.states import WARM_UP_TEXT, CarriedState, InitialStates
from elmo.embed.word_cache import WordCache
from elmo.kernels.api import find_strongest_windows
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.text.indexer import Indexer, token_rows

CHUNK_TOKENS = 8192  # tokens whose gates are in memory at once: 8192 x 16384 floats are 0.5 GB at the original size
WORDS_PER_CALL = 256  # bounds the memory of the convolutions: 256 words x 2048 filters x 50 columns are 100 MB


class PlainExecutor:
    """Implements `Executor` with `elmo.model` itself."""

    def __init__(self, model: BiLM, indexer: Indexer, cache_words: int) -> None:
        self.model = model
        self.words = WordCache(PlainWordEncoder(model, indexer), indexer, cache_words)
        self.initial_states = InitialStates(model.zero_state(1), functools.partial(warm_state, model, indexer))

    @property
    def carried(self) -> CarriedState:
        return self.initial_states.carried

    def vectors(
        self, sentences: Iterable[Sequence[str]], layer_choice: LayerChoice, options: BatchOptions, *, on_host: bool
    ) -> Iterator[Tensor]:
        for window in sentence_windows(sentences, options):
            yield from self._window_vectors(window, layer_choice, options, on_host)

    def pooled(
        self, sentences: Iterable[Sequence[str]], layer_choice: LayerChoice, options: BatchOptions, pooling: str
    ) -> Iterator[tuple[np.ndarray, int]]:
        vectors = self.vectors(sentences, layer_choice, options, on_host=True)
        return pool_sentences(vectors, layer_choice, pooling)

    def padded_batches(
        self, sentences: Sequence[Sequence[str]], layer_choice: LayerChoice, options: BatchOptions
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        kind = next(self.model.parameters()).device.type
        with torch.inference_mode(), torch.autocast(kind, enabled=False):  # the caller's does not change the dtype
            table, rows = self.words.table(sentences)  # (2 + N, P)
        for numbers, positions in plan_groups(sentences, options):
            batch = [[0, *map(rows.__getitem__, sentences[i]), 1] for i in numbers]  # rows 0, 1: boundaries
            with torch.inference_mode(), torch.autocast(kind, enabled=False):
                layers = self._run_batch(batch, positions, table, layer_choice, options.policy)
            yield numbers, layers  # outside inference mode: a suspended generator must not change the caller's mode

    def clear_words(self) -> None:
        self.words.clear()

    def _window_vectors(
        self, sentences: list[Sequence[str]], layer_choice: LayerChoice, options: BatchOptions, on_host: bool
    ) -> Iterator[Tensor]:
        dtype = next(self.model.parameters()).dtype
        empty = torch.zeros(len(layer_choice.matrix), 0, self.model.config.dim, dtype=dtype)
        results = [empty] * len(sentences)
        for numbers, layers in self.padded_batches(sentences, layer_choice, options):
            if on_host:
                layers = layers.cpu()
            with torch.inference_mode(False):  # the caller may be in inference mode and train on the vectors later
                for row, number in enumerate(numbers):
                    results[number] = layers[:, row, 1 : len(sentences[number]) + 1].clone()  # (K, n, D)
        yield from results

    def _run_batch(
        self, batch: list[list[int]], positions: np.ndarray, table: Tensor, layer_choice: LayerChoice, policy: str
    ) -> Tensor:
        """Chosen layers (K, B, T, D) of sentences of table rows, boundaries included."""
        longest, device = max(map(len, batch)), table.device
        index = np.zeros((len(batch), longest), dtype=np.int64)  # (B, T)
        mask = np.zeros((len(batch), longest), dtype=bool)  # (B, T)
        for row, sentence in enumerate(batch):
            index[row, : len(sentence)] = sentence
            mask[row, : len(sentence)] = True
        valid = None if mask.all() else torch.from_numpy(mask).to(device)
        tokens = table[torch.from_numpy(index).to(device)]  # (B, T, P)
        if valid is not None:
            tokens = tokens * valid[:, :, None]
        where = torch.from_numpy(positions).to(device)
        initial = self.initial_states.rows(policy, where)
        layers, after = run_in_chunks(self.model, tokens, valid, initial, layer_choice)
        if policy == "carry":
            self.carried.store(after, where)
        return layers


class PlainWordEncoder:
    """Implements `WordEncoder` with the model's token encoder."""

    def __init__(self, model: BiLM, indexer: Indexer) -> None:
        self._model, self._indexer = model, indexer

    def encode_boundaries(self) -> list[Tensor]:
        return self._encode(np.stack([self._indexer.begin, self._indexer.end]))

    def encode_words(self, words: list[str]) -> list[Tensor]:
        # words of similar length together: the network convolves the columns of the longest word of a call
        order = sorted(range(len(words)), key=lambda i: len(words[i]))
        vectors = [torch.empty(0)] * len(words)
        for start in range(0, len(order), WORDS_PER_CALL):
            group = order[start : start + WORDS_PER_CALL]
            encoded = self._encode(token_rows(self._indexer, [words[i] for i in group]))
            for i, vector in zip(group, encoded, strict=True):
                vectors[i] = vector
        return vectors

    def stack(self, vectors: list[Tensor]) -> Tensor:
        return torch.stack(vectors)

    def _encode(self, rows: np.ndarray) -> list[Tensor]:
        device = next(self._model.parameters()).device
        return list(token_vectors(self._model, torch.from_numpy(rows).to(device)).unbind())  # N of (P,)


def token_vectors(model: BiLM, ids: Tensor) -> Tensor:
    """Token vectors (N, P) of rows of ids (N, W); on CUDA the convolutions run in a kernel where there is one."""
    kind = ids.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else next(model.parameters()).dtype
    vectors: Tensor = model.token_encoder(ids, find_strongest_windows(model, ids.device, dtype))
    return vectors


def run_in_chunks(
    model: BiLM, tokens: Tensor, mask: Tensor | None, state: State, layer_choice: LayerChoice
) -> tuple[Tensor, State]:
    """Chosen layers (K, B, T, D) of token vectors (B, T, P), and the state after the batch. No mask: all are valid.

    The two directions do not depend on each other, so each runs over the tokens in chunks, with its state carried from
    chunk to chunk. The result is the same as without chunks; a long document needs memory for its result and one chunk.
    """
    B, T, P = tokens.shape
    result = tokens.new_empty(len(layer_choice.matrix), B, T, P * len(model.stacks))  # (K, B, T, D)
    step = max(1, CHUNK_TOKENS // max(B, 1))
    starts = range(0, T, step)
    states_after = []
    for r, stack in enumerate(model.stacks):
        state_r = State(state.h[r], state.c[r])
        for start in reversed(starts) if r == 1 else starts:
            chunk = slice(start, min(start + step, T))
            chunk_mask = None if mask is None else mask[:, chunk]
            contextual, state_r = stack(tokens[:, chunk], chunk_mask, state_r, reverse=r == 1)  # (L, B, t, P)
            layers = torch.cat([tokens[None, :, chunk], contextual])  # (L+1, B, t, P)
            result[:, :, chunk, r * P : (r + 1) * P] = layer_choice.apply(layers)
        states_after.append(state_r)
    return result, State(torch.stack([s.h for s in states_after]), torch.stack([s.c for s in states_after]))


def warm_state(model: BiLM, indexer: Indexer) -> State:
    """The state (R, L, 1, ·) after the warm-up text, from zero; it does not depend on what was embedded before."""
    state, layer_choice = model.zero_state(1), choose_layers("top", model.config.num_layers)
    sentences = [text.split() for text in WARM_UP_TEXT]
    with torch.autocast(state.h.device.type, enabled=False):  # the state is stored for later calls
        table, rows = WordCache(PlainWordEncoder(model, indexer), indexer, capacity=0).table(sentences)
        for sentence in sentences:
            index = torch.tensor([0, *(rows[token] for token in sentence), 1], device=table.device)
            _, state = run_in_chunks(model, table[index][None], None, state, layer_choice)
    return state
