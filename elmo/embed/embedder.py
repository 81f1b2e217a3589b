"""The Embedder: sentences in, vectors out.

    embedder = elmo.load("model/")
    embedder.embed("The bank of the river .")         # (n, D)
    embedder.layers(["One .", ["Two", "here", "."]])  # a list of (L+1, n, D)
    embedder.encode(["One sentence .", "Another ."])  # (2, D)

A str is one sentence and is tokenised; a list of str inside a list is a sentence that is already tokenised. Results
have the caller's order. With state "reset" or "warm", the vectors of a sentence depend on that sentence alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.embed.layer_choice import LayerChoice, LayerSpec, choose_layers
from elmo.embed.pool import check_pooling, normalize
from elmo.embed.run.batches import BatchOptions, to_numpy
from elmo.embed.run.executor import DTYPES, choose_executor
from elmo.embed.states import check_policy
from elmo.embed.word_cache import WordCache
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.progress import Progress
from elmo.text.indexer import Indexer
from elmo.text.inputs import normalize_input
from elmo.text.tokenize import Token, tokenizer
from elmo.text.vocab import Vocabulary


class Embedder:
    """A frozen biLM that turns text into vectors. `elmo.load` makes one; any BiLM with its indexer does as well.

    Weights are laid out for speed at first use and word vectors are cached: after a change of the model's weights,
    make a new embedder. In a process that is forked afterwards, torch uses one thread.
    """

    def __init__(
        self,
        model: BiLM,
        indexer: Indexer,
        *,
        tokenizer_name: str = "default",
        state: str = "reset",  # reset, warm, carry
        device: str = "cpu",
        dtype: str = "float32",  # of the computation: float32, bfloat16, float16, float64, int8
        cache_words: int = 100_000,
        vocab: Vocabulary | None = None,
        name: str = "",
        trained: bool = True,  # False: a stand-in with random weights
    ) -> None:
        if dtype not in DTYPES:
            raise ConfigError(f"dtype is {dtype!r}; expected one of {', '.join(DTYPES)}.")
        if cache_words < 0:
            raise ConfigError(f"cache_words is {cache_words}; expected 0 or more.")
        self._executor = choose_executor(model, indexer, device=str(device), dtype=dtype, cache_words=cache_words)
        self.model = self._executor.model
        self.indexer, self.vocab, self.name, self.trained = indexer, vocab, name, trained
        self.device, self.dtype, self.state = torch.device(device), dtype, check_policy(state)
        self.tokenizer_name = tokenizer_name
        self._tokenize = tokenizer(tokenizer_name)

    def __repr__(self) -> str:
        shape = f"{self.num_layers} layers of {self.dim}, device={str(self.device)!r}, dtype={self.dtype!r}"
        return f"Embedder({self.name!r}, {shape}, state={self.state!r})"

    @property
    def dim(self) -> int:
        """Width D of a vector."""
        return self.model.config.dim

    @property
    def num_layers(self) -> int:
        """Layers per token: the token layer and one per LSTM layer, L+1."""
        return self.model.config.num_layers

    @property
    def words(self) -> WordCache[Any]:
        """The cache of context-independent word vectors; on CUDA, that of padded batches and carried state only."""
        return self._executor.words

    def tokenize(self, text: str) -> list[Token]:
        """The tokens of a text as it is embedded, with their positions in it."""
        return self._tokenize(text)

    def layers(self, texts: Any, **options: Any) -> Any:
        """All layers of every token: (L+1, n, D) for one sentence, a list of these for several."""
        return self.embed(texts, layers="all", **options)

    def embed(
        self,
        texts: Any,
        *,
        layers: LayerSpec = "average",  # all, top, average, a number, one weight per layer, a ScalarMix
        batch_size: int = 256,  # most sentences per batch
        max_tokens: int = 8192,  # most tokens per batch, padding included
        output: str = "numpy",  # numpy, torch
        show_progress_bar: bool | None = False,
    ) -> Any:
        """One vector per token: (n, D) for one sentence, a list of these for several."""
        inputs = normalize_input(texts, self._tokenize)
        stream = self.stream(
            inputs.sentences, layers=layers, batch_size=batch_size, max_tokens=max_tokens, output=output
        )
        results = []
        with Progress("embedding", sum(map(len, inputs.sentences)), show=show_progress_bar) as progress:
            for vectors in stream:
                results.append(vectors)
                progress.advance(vectors.shape[-2])
        return results[0] if inputs.single else results

    def encode(
        self,
        sentences: Any,
        *,
        layers: LayerSpec = "average",
        pooling: str = "mean",  # mean, max
        batch_size: int = 256,
        max_tokens: int = 8192,
        show_progress_bar: bool | None = False,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
    ) -> Any:
        """One vector per sentence, pooled over its tokens: (D,) for one sentence, (N, D) for several."""
        inputs = normalize_input(sentences, self._tokenize)
        layer_choice = choose_layers(layers, self.num_layers)
        shape = (len(layer_choice.matrix), self.dim) if layer_choice.stacked else (self.dim,)
        result = np.zeros((len(inputs.sentences), *shape), dtype=self._numpy_dtype())  # (N, D)
        pooled = self.pooled(
            inputs.sentences, layers=layers, pooling=pooling, batch_size=batch_size, max_tokens=max_tokens
        )
        end = 0
        with Progress("encoding", sum(map(len, inputs.sentences)), show=show_progress_bar) as progress:
            for vectors, num_tokens in pooled:
                begin, end = end, end + len(vectors)
                result[begin:end] = vectors
                progress.advance(num_tokens)
        if normalize_embeddings:
            result = normalize(result)
        if inputs.single:
            result = result[0]
        if convert_to_tensor or not convert_to_numpy:
            return torch.from_numpy(np.ascontiguousarray(result)).to(self.device)
        return result

    def stream(
        self,
        sentences: Iterable[Sequence[str]],
        *,
        layers: LayerSpec = "average",
        batch_size: int = 256,
        max_tokens: int = 8192,
        output: str = "numpy",
    ) -> Iterator[Any]:
        """Vectors of tokenised sentences one by one, in order. The input may have any length: memory is constant."""
        if output not in ("numpy", "torch"):
            raise ConfigError(f"output is {output!r}; expected numpy or torch.")
        options = self._batch_options(batch_size, max_tokens)
        layer_choice = choose_layers(layers, self.num_layers)
        on_host = output == "numpy"
        for vectors in self._executor.vectors(sentences, layer_choice, options, on_host=on_host):
            chosen = layer_choice.unstack(vectors)
            yield to_numpy(chosen) if on_host else chosen.to(self.device)

    def pooled(
        self,
        sentences: Iterable[Sequence[str]],
        *,
        layers: LayerSpec = "average",
        pooling: str = "mean",  # mean, max
        batch_size: int = 256,
        max_tokens: int = 8192,
    ) -> Iterator[tuple[np.ndarray, int]]:
        """For some sentences at a time, in order: one vector per sentence (n, D), and how many tokens they have."""
        check_pooling(pooling)
        options = self._batch_options(batch_size, max_tokens)
        yield from self._executor.pooled(sentences, choose_layers(layers, self.num_layers), options, pooling)

    def forget_words(self) -> None:
        """Discards the cached word vectors."""
        self._executor.clear_words()

    def reset_state(self, to: State | None = None) -> None:
        """Discards the state that "carry" has stored, or sets it to what `carried_state` returned earlier."""
        self._executor.carried.reset(to)

    def carried_state(self) -> State | None:
        """The state that "carry" has stored, (R, L, rows, ·) for R directions; None: nothing has run yet."""
        return self._executor.carried.state

    def run(
        self,
        sentences: Sequence[Sequence[str]],
        layer_choice: LayerChoice,
        *,
        batch_size: int = 256,
        max_tokens: int = 8192,
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Batch by batch: the numbers of its sentences, and their chosen layers (K, B, T, D), padded with zeros.

        The sentence boundaries are included; the language model needs them.
        """
        return self._executor.padded_batches(sentences, layer_choice, BatchOptions(self.state, batch_size, max_tokens))

    def _batch_options(self, batch_size: int, max_tokens: int) -> BatchOptions:
        for name, value in (("batch_size", batch_size), ("max_tokens", max_tokens)):
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} is {value!r}; expected a whole number of at least 1.")
        return BatchOptions(self.state, batch_size, max_tokens)

    def _numpy_dtype(self) -> Any:
        return {"float64": np.float64, "float16": np.float16}.get(self.dtype, np.float32)
