"""The executor on CPU kernels (`elmo.kernels.cpu`): sentences without padding, in numpy."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from elmo.embed.layer_choice import LayerChoice
from elmo.embed.run.batches import BatchOptions, plan_groups, pool_sentences, sentence_windows
from elmo.embed.run.plain import warm_state
from elmo.embed.states import CarriedState, InitialStates
from elmo.embed.word_cache import WordCache
from elmo.kernels.api import CpuBiLM, MakeCpuBiLM
from elmo.kernels.cpu.request import StateArrays, make_request
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.text.indexer import Indexer, token_rows


class CpuExecutor:
    """Implements `Executor` with one CPU implementation of the biLM. Weights are packed at first use."""

    def __init__(self, model: BiLM, indexer: Indexer, make: MakeCpuBiLM, cache_words: int) -> None:
        self.model = model
        self._kernels = _LazyKernels(model, make)
        self.words = WordCache(KernelWordEncoder(self._kernels, indexer), indexer, cache_words)
        self._initial_states = InitialStates(model.zero_state(1), functools.partial(warm_state, model, indexer))
        self._after_boundary: dict[str, StateArrays] = {}

    @property
    def carried(self) -> CarriedState:
        return self._initial_states.carried

    def vectors(
        self, sentences: Iterable[Sequence[str]], layer_choice: LayerChoice, options: BatchOptions, *, on_host: bool
    ) -> Iterator[Tensor]:
        for window in sentence_windows(sentences, options):
            yield from self._window_vectors(window, layer_choice, options.policy)

    def pooled(
        self, sentences: Iterable[Sequence[str]], layer_choice: LayerChoice, options: BatchOptions, pooling: str
    ) -> Iterator[tuple[np.ndarray, int]]:
        vectors = self.vectors(sentences, layer_choice, options, on_host=True)
        return pool_sentences(vectors, layer_choice, pooling)

    def padded_batches(
        self, sentences: Sequence[Sequence[str]], layer_choice: LayerChoice, options: BatchOptions
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        table, rows = self.words.table(sentences)  # (2 + N, P)
        for numbers, positions in plan_groups(sentences, options):
            batch = [[0, *map(rows.__getitem__, sentences[i]), 1] for i in numbers]  # rows 0, 1: boundaries
            longest = max(map(len, batch))
            with torch.inference_mode():
                flat = self._run_with_boundaries(batch, positions, table, layer_choice, options.policy, pad_to=longest)
                layers: Tensor = flat.unflatten(1, (len(batch), longest))  # (K, B, T, D)
            yield numbers, layers  # outside inference mode: a suspended generator must not change the caller's mode

    def clear_words(self) -> None:
        self.words.clear()

    def _window_vectors(
        self, sentences: list[Sequence[str]], layer_choice: LayerChoice, policy: str
    ) -> Iterator[Tensor]:
        filled = np.array([row for row, sentence in enumerate(sentences) if len(sentence)], dtype=np.int64)
        if len(filled):
            table, rows = self.words.table(sentences)  # (2 + N, P)
            words = [list(map(rows.__getitem__, sentences[i])) for i in filled]
            if policy == "carry":
                batch = [[0, *sentence, 1] for sentence in words]
                layers = self._run_with_boundaries(batch, filled, table, layer_choice, policy)  # (K, N, D)
            else:
                initial = self._state_after_boundary(table, policy)
                layers, _ = self._contextualize(table, words, layer_choice, initial)  # (K, N, D)
        else:
            layers = torch.zeros(len(layer_choice.matrix), 0, self.model.config.dim, dtype=torch.float32)
        if len(sentences) == 1:
            yield layers
            return
        end = 0
        for sentence in sentences:
            begin, end = end, end + len(sentence)
            yield layers[:, begin:end].clone()  # a view would keep the memory of all sentences alive

    def _run_with_boundaries(
        self,
        batch: list[list[int]],
        positions: np.ndarray,
        table: Tensor,
        layer_choice: LayerChoice,
        policy: str,
        pad_to: int | None = None,
    ) -> Tensor:
        """Chosen layers (K, N, D) of sentences of table rows that include their boundaries.

        With `pad_to`, the result includes the boundaries, and every sentence has that many rows in it.
        """
        where = torch.from_numpy(positions)
        initial = _to_arrays(self._initial_states.rows(policy, where))
        layers, after = self._contextualize(
            table,
            batch,
            layer_choice,
            initial,
            boundaries=pad_to is not None,
            pad_to=pad_to,
            want_state=policy == "carry",
        )
        if after is not None:
            self.carried.store(State(torch.from_numpy(after.h), torch.from_numpy(after.c)), where)
        return layers

    def _state_after_boundary(self, table: Tensor, policy: str) -> StateArrays:
        """The state of each direction before the first word that it reads, (R, L, 1, ·).

        All sentences start with the same boundary, and the boundary at the other end changes no word. So, where the
        result does not include them, boundaries are read once per policy and not once per sentence.
        """
        if policy not in self._after_boundary:
            no_layers = LayerChoice(torch.zeros(0, self.model.config.num_layers), stacked=True)
            initial = _to_arrays(self._initial_states.rows(policy, torch.arange(2)))
            _, after = self._contextualize(table, [[0], [1]], no_layers, initial, want_state=True)
            assert after is not None
            # the forward direction starts with table row 0, the backward direction with row 1
            h, c = (np.stack([d[:, i : i + 1] for i, d in enumerate(part)]) for part in (after.h, after.c))
            self._after_boundary[policy] = StateArrays(h=h, c=c)
        return self._after_boundary[policy]

    def _contextualize(
        self,
        table: Tensor,
        sentences: Sequence[Sequence[int]],
        layer_choice: LayerChoice,
        initial: StateArrays,
        *,
        boundaries: bool = True,
        pad_to: int | None = None,
        want_state: bool = False,
    ) -> tuple[Tensor, StateArrays | None]:
        """Chosen layers (K, N, D) of all tokens, sentence after sentence, and the state after each; see `make_request`.

        `initial` has one row per sentence, or one row for all.
        """
        request = make_request(
            table.numpy(),
            sentences,
            layer_choice.matrix.float().numpy(),
            boundaries=boundaries,
            pad_to=pad_to,
            initial=initial,
            want_state=want_state,
        )
        result = self._kernels.packed().contextualize(request)
        return torch.from_numpy(result.out), result.state


class KernelWordEncoder:
    """Implements `WordEncoder` with CPU kernels, which bound their memory themselves."""

    def __init__(self, kernels: _LazyKernels, indexer: Indexer) -> None:
        self._kernels, self._indexer = kernels, indexer

    def encode_boundaries(self) -> list[np.ndarray]:
        return list(self._kernels.packed().encode_rows(np.stack([self._indexer.begin, self._indexer.end])))

    def encode_words(self, words: list[str]) -> list[np.ndarray]:
        return list(self._kernels.packed().encode_rows(token_rows(self._indexer, words))) if words else []

    def stack(self, vectors: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(vectors).reshape(len(vectors), -1))


class _LazyKernels:
    """The kernels of one model; weights are packed when they are first needed."""

    def __init__(self, model: BiLM, make: MakeCpuBiLM) -> None:
        self._model, self._make = model, make
        self._kernels: CpuBiLM | None = None

    def packed(self) -> CpuBiLM:
        if self._kernels is None:
            self._kernels = self._make(self._model)
        return self._kernels


def _to_arrays(state: State) -> StateArrays:
    """The state as the kernels take it: one row if all rows are the same."""
    num_rows = 1 if state.h.stride(2) == 0 else state.h.shape[2]  # stride 0: one row, expanded without a copy
    return StateArrays(h=state.h[:, :, :num_rows].numpy(), c=state.c[:, :, :num_rows].numpy())
