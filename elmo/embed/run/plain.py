"""Sentences to their chosen layers in padded batches, plainly or through the CPU twin, and what each starts from.

Stands between the embedder and the network, wherever sentences do not go through the CUDA twin (`bulk`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from elmo.embed.layer_choice import LayerChoice
from elmo.embed.run.chunks import sweep
from elmo.embed.run.cpu import FastPath, to_states
from elmo.embed.states import CarriedState, repeat
from elmo.embed.warm_up import warm_state
from elmo.embed.word_cache import WordVectors
from elmo.kernels.cpu.request import States
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.text.batch import plan_batches
from elmo.text.indexer import Indexer


class Batches:
    """Runs batches under a state policy (reset, warm, carry), and remembers what `carry` carries."""

    def __init__(self, model: BiLM, indexer: Indexer, words: WordVectors, fast: FastPath | None) -> None:
        self._model, self._indexer, self._words, self._fast = model, indexer, words, fast
        self._fresh = model.zero_state(1)
        self.carried = CarriedState(self._fresh)
        self._warm: State | None = None
        self._starts: dict[str, States] = {}

    def run(
        self, sentences: Sequence[Sequence[str]], choice: LayerChoice, policy: str, batch_size: int, max_tokens: int
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Batch by batch: which sentences, and their chosen layers (K, B, T, D), boundaries included, zero-padded."""
        with torch.inference_mode():
            table, rows = self._words.table(sentences)  # (2 + N, P)
            if policy == "carry":
                groups = [
                    np.arange(a, min(a + batch_size, len(sentences))) for a in range(0, len(sentences), batch_size)
                ]
            else:
                groups = plan_batches([len(s) for s in sentences], max_tokens=max_tokens, max_rows=batch_size)
            for group in groups:
                filled = group[[len(sentences[int(i)]) > 0 for i in group]]
                if len(filled):
                    chosen = [sentences[int(i)] for i in filled]
                    yield filled, self._batch(chosen, filled - group[0], table, rows, choice, policy)

    def vectors(
        self,
        sentences: list[Sequence[str]],
        choice: LayerChoice,
        policy: str,
        batch_size: int,
        max_tokens: int,
        *,
        on_host: bool,
    ) -> Iterator[Tensor]:
        """(K, n, D) of each sentence in turn, memory of its own."""
        if self._fast is not None:
            yield from self._fast_vectors(sentences, choice, policy)
            return
        empty = torch.zeros(len(choice.matrix), 0, self._model.config.dim, dtype=next(self._model.parameters()).dtype)
        found: list[Tensor] = [empty] * len(sentences)
        for group, layers in self.run(sentences, choice, policy, batch_size, max_tokens):
            if on_host:
                layers = layers.cpu()
            with torch.inference_mode(False):  # `run` stands in the middle of it; callers may learn from their vectors
                for row, number in enumerate(group):
                    found[number] = layers[:, row, 1 : len(sentences[number]) + 1].clone()  # (K, n, D)
        yield from found

    def initial(self, policy: str, positions: Tensor) -> State:
        """What the sentences at these positions of a batch start from, (directions, L, rows, ·)."""
        if policy == "carry":
            state = self.carried.rows(int(positions.max()) + 1)
            return State(state.h[:, :, positions], state.c[:, :, positions])
        if policy == "warm" and self._warm is None:
            self._warm = warm_state(self._model, self._indexer)
        return repeat(self._warm if policy == "warm" and self._warm else self._fresh, len(positions))

    def _fast_vectors(self, sentences: list[Sequence[str]], choice: LayerChoice, policy: str) -> Iterator[Tensor]:
        filled = np.array([row for row, sentence in enumerate(sentences) if len(sentence)], dtype=np.int64)
        if len(filled):
            table, rows = self._words.table(sentences)  # (2 + N, P)
            chosen = [sentences[i] for i in filled]
            result = self._fast_batch(chosen, filled, table, rows, choice, policy)  # (K, N, D)
        else:
            result = torch.zeros(len(choice.matrix), 0, self._model.config.dim)
        if len(sentences) == 1:
            yield result
            return
        end = 0
        for sentence in sentences:
            begin, end = end, end + len(sentence)
            yield result[:, begin:end].clone()  # a view would keep the memory of all sentences for one of them

    def _fast_batch(
        self,
        sentences: list[Sequence[str]],
        positions: np.ndarray,
        table: Tensor,
        rows: dict[str, int],
        choice: LayerChoice,
        policy: str,
        pad_to: int | None = None,
    ) -> Tensor:
        assert self._fast is not None
        if pad_to is None and policy != "carry":
            words = [list(map(rows.__getitem__, sentence)) for sentence in sentences]
            return self._fast.contextualize(table, words, choice, self._past_boundary(table, policy))[0]  # (K, N, D)
        where = torch.from_numpy(positions)
        numbered = [[0, *map(rows.__getitem__, sentence), 1] for sentence in sentences]
        initial, carries = to_states(self.initial(policy, where)), policy == "carry"
        result, after = self._fast.contextualize(
            table, numbered, choice, initial, boundaries=pad_to is not None, pad_to=pad_to, want_state=carries
        )
        if after is not None:
            self.carried.keep(State(torch.from_numpy(after.h), torch.from_numpy(after.c)), where)
        return result  # (K, N, D)

    def _past_boundary(self, table: Tensor, policy: str) -> States:
        """What each direction remembers at the first word it reads, (directions, L, 1, ·).

        The boundary before it is the same for all sentences, and what follows the last word changes no word: where
        boundaries are not handed out, neither needs to be read again.
        """
        if policy not in self._starts:
            assert self._fast is not None
            ends, nothing = [[0], [1]], LayerChoice(torch.zeros(0, self._model.config.num_layers), stacked=True)
            initial = to_states(self.initial(policy, torch.arange(2)))
            _, after = self._fast.contextualize(table, ends, nothing, initial, want_state=True)
            assert after is not None
            # forwards, a sentence begins with row 0; backwards, with row 1
            h, c = (np.stack([d[:, i : i + 1] for i, d in enumerate(part)]) for part in (after.h, after.c))
            self._starts[policy] = States(h=h, c=c)
        return self._starts[policy]

    def _batch(
        self,
        sentences: list[Sequence[str]],
        positions: np.ndarray,
        table: Tensor,
        rows: dict[str, int],
        choice: LayerChoice,
        policy: str,
    ) -> Tensor:
        longest = max(map(len, sentences)) + 2
        if self._fast is not None:
            flat = self._fast_batch(sentences, positions, table, rows, choice, policy, pad_to=longest)
            return flat.unflatten(1, (len(sentences), longest))  # (K, B, T, D)
        index = np.zeros((len(sentences), longest), dtype=np.int64)  # (B, T); row 0 of the table begins a sentence
        mask = np.zeros((len(sentences), longest), dtype=bool)  # (B, T)
        for row, sentence in enumerate(sentences):
            index[row, 1 : len(sentence) + 1] = [rows[token] for token in sentence]
            index[row, len(sentence) + 1] = 1  # row 1 ends it
            mask[row, : len(sentence) + 2] = True
        device = table.device
        inside = None if mask.all() else torch.from_numpy(mask).to(device)
        tokens = table[torch.from_numpy(index).to(device)]  # (B, T, P)
        if inside is not None:
            tokens = tokens * inside[:, :, None]
        where = torch.from_numpy(positions).to(device)
        result, after = sweep(self._model, tokens, inside, self.initial(policy, where), choice)
        if policy == "carry":
            self.carried.keep(after, where)
        return result  # (K, B, T, D)
