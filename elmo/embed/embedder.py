"""The object people hold: sentences in, vectors out.

    embedder = elmo.load("model/")
    embedder.embed("The bank of the river .")         # (n, D)
    embedder.layers(["One .", ["Two", "here", "."]])  # a list of (L+1, n, D)
    embedder.encode(["One sentence .", "Another ."])  # (2, D)

A str is one sentence and is tokenised; a list of str inside a list is one that is tokenised already. Results come in
the caller's order. With state "reset" or "warm", a sentence's vectors depend on that sentence alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.embed.layer_choice import LayerChoice, LayerSpec, choose_layers
from elmo.embed.pool import check_pooling, normalize, pool
from elmo.embed.run.cpu import find_fast
from elmo.embed.run.cuda import Bulk, find_bulk
from elmo.embed.run.plain import Batches
from elmo.embed.states import check_policy
from elmo.embed.word_cache import WordVectors
from elmo.errors import ConfigError
from elmo.kernels.api import why_unsupported
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.progress import Progress
from elmo.text.batch import windows_of
from elmo.text.indexer import Indexer
from elmo.text.inputs import normalize_input
from elmo.text.tokenize import Token, tokenizer
from elmo.text.vocab import Vocabulary

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.float32,  # products in 8 bits, results in float32
}
WINDOW_BATCHES = 4  # batches' worth of tokens looked at together: enough to group like lengths, few enough to stream
BULK_BATCHES = 32  # the same for a GPU that is fed sentences end to end


class Embedder:
    """A frozen biLM that turns text into vectors. Made by `elmo.load`, or from any BiLM and its indexer.

    Its weights are laid out for speed at first use and its words remembered: after changing a model's weights, make a
    new embedder.
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
        fast = find_fast(model, str(device), dtype)
        if dtype == "int8" and fast is None:
            if (reason := why_unsupported("bilm", str(device), dtype, model)) is not None:
                raise ConfigError(
                    f"dtype is 'int8', which this model cannot use: {reason}.", "Use float32 or bfloat16."
                )
            hint = "Use float32 or bfloat16; `elmo doctor` says what this machine has."
            raise ConfigError("dtype is 'int8', which needs AVX-512 with VNNI and a C++ compiler.", hint)
        own = DTYPES[dtype] if fast is None else torch.float32  # a twin rounds the weights itself
        self.model = model.to(device=device, dtype=own).eval().requires_grad_(False)
        self.indexer, self.vocab, self.name, self.trained = indexer, vocab, name, trained
        self.device, self.dtype, self.state = torch.device(device), dtype, check_policy(state)
        self.tokenizer_name = tokenizer_name
        self._tokenize = tokenizer(tokenizer_name)
        self.words = WordVectors(self.model, indexer, cache_words, fast)
        self._bulk = find_bulk(self.model, indexer, str(device), dtype, cache_words)
        self._batches = Batches(self.model, indexer, self.words, fast)

    def __repr__(self) -> str:
        shape = f"{self.num_layers} layers of {self.dim}, device={str(self.device)!r}, dtype={self.dtype!r}"
        return f"Embedder({self.name!r}, {shape}, state={self.state!r})"

    @property
    def dim(self) -> int:
        """Width D of a vector."""
        return self.model.config.dim

    @property
    def num_layers(self) -> int:
        """Layers of a token: the token layer and one for each LSTM layer."""
        return self.model.config.num_layers

    def tokenize(self, text: str) -> list[Token]:
        """The tokens a str is embedded as, with their places in it."""
        return self._tokenize(text)

    def layers(self, texts: Any, **options: Any) -> Any:
        """Every layer of every token: (L+1, n, D) for one sentence, a list of those for several."""
        return self.embed(texts, layers="all", **options)

    def embed(
        self,
        texts: Any,
        *,
        layers: LayerSpec = "average",  # all, top, average, a number, one weight a layer, a ScalarMix
        batch_size: int = 256,  # most sentences at once
        max_tokens: int = 8192,  # most padded tokens at once
        output: str = "numpy",  # numpy, torch
        show_progress_bar: bool | None = False,
    ) -> Any:
        """A vector for every token: (n, D) for one sentence, a list of those for several."""
        given = normalize_input(texts, self._tokenize)
        stream = self.stream(
            given.sentences, layers=layers, batch_size=batch_size, max_tokens=max_tokens, output=output
        )
        total = sum(map(len, given.sentences))
        found = []
        with Progress("embedding", total, show=show_progress_bar) as progress:
            for vectors in stream:
                found.append(vectors)
                progress.advance(vectors.shape[-2])
        return found[0] if given.single else found

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
        """One vector a sentence, pooled over its tokens: (D,) for one, (N, D) for several."""
        given = normalize_input(sentences, self._tokenize)
        choice = choose_layers(layers, self.num_layers)
        shape = (len(choice.matrix), self.dim) if choice.stacked else (self.dim,)
        result = np.zeros((len(given.sentences), *shape), dtype=self._numpy_dtype())  # (N, D)
        pooled = self.pooled(
            given.sentences, layers=layers, pooling=pooling, batch_size=batch_size, max_tokens=max_tokens
        )
        end = 0
        with Progress("encoding", sum(map(len, given.sentences)), show=show_progress_bar) as progress:
            for vectors, num_tokens in pooled:
                begin, end = end, end + len(vectors)
                result[begin:end] = vectors
                progress.advance(num_tokens)
        if normalize_embeddings:
            result = normalize(result)
        found = result[0] if given.single else result
        if convert_to_tensor or not convert_to_numpy:
            return torch.from_numpy(np.ascontiguousarray(found)).to(self.device)
        return found

    def stream(
        self,
        sentences: Iterable[Sequence[str]],
        *,
        layers: LayerSpec = "average",
        batch_size: int = 256,
        max_tokens: int = 8192,
        output: str = "numpy",
    ) -> Iterator[Any]:
        """Vectors of tokenised sentences one by one, in order, from an iterable of any length in constant memory."""
        if output not in ("numpy", "torch"):
            raise ConfigError(f"output is {output!r}; expected numpy or torch.")
        _check_sizes(batch_size, max_tokens)
        choice = choose_layers(layers, self.num_layers)
        on_host = output == "numpy"
        if (found := self._in_bulk()) is not None:
            bulk, initial = found
            most = BULK_BATCHES * max_tokens
            every = bulk.vectors(sentences, choice, initial, max_tokens=most, on_host=on_host)
        else:
            windows = windows_of(sentences, WINDOW_BATCHES * max_tokens, batch_size if self.state == "carry" else None)
            every = (
                vectors
                for window in windows
                for vectors in self._batches.vectors(
                    window, choice, self.state, batch_size, max_tokens, on_host=on_host
                )
            )
        for vectors in every:
            chosen = vectors if choice.stacked else vectors[0]
            yield self._to_numpy(chosen) if on_host else chosen.to(self.device)

    def pooled(
        self,
        sentences: Iterable[Sequence[str]],
        *,
        layers: LayerSpec = "average",
        pooling: str = "mean",  # mean, max
        batch_size: int = 256,
        max_tokens: int = 8192,
    ) -> Iterator[tuple[np.ndarray, int]]:
        """Some sentences at a time, in order: one vector each (n, D), and how many tokens these were pooled from."""
        check_pooling(pooling)
        _check_sizes(batch_size, max_tokens)
        found = self._in_bulk()
        if found is None:
            for vectors in self.stream(sentences, layers=layers, batch_size=batch_size, max_tokens=max_tokens):
                yield pool(vectors, pooling)[None], vectors.shape[-2]
            return
        choice, (bulk, initial), most = choose_layers(layers, self.num_layers), found, BULK_BATCHES * max_tokens
        for pooled, num_tokens in bulk.pooled(sentences, choice, initial, pooling, max_tokens=most):
            yield (pooled if choice.stacked else pooled[:, 0]).numpy(), num_tokens

    def forget_words(self) -> None:
        """Forgets the vectors of words remembered so far."""
        self.words.clear()
        if self._bulk is not None:
            self._bulk.clear()

    def reset_state(self, to: State | None = None) -> None:
        """Forgets what `carry` has carried so far, or goes back to what `carried_state` gave."""
        self._batches.carried.reset(to)

    def carried_state(self) -> State | None:
        """What `carry` has carried so far, (directions, L, rows, ·); None: nothing yet."""
        return self._batches.carried.state

    def run(
        self, sentences: Sequence[Sequence[str]], choice: LayerChoice, *, batch_size: int = 256, max_tokens: int = 8192
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Batch by batch: which sentences, and their chosen layers (K, B, T, D), boundaries included, zero-padded."""
        return self._batches.run(sentences, choice, self.state, batch_size, max_tokens)

    def _in_bulk(self) -> tuple[Bulk, State] | None:
        # states that differ from sentence to sentence, or are wanted afterwards, are the other paths' business
        if self._bulk is None or self.state == "carry":
            return None
        return self._bulk, self._batches.initial(self.state, torch.zeros(1, dtype=torch.int64))

    def _numpy_dtype(self) -> Any:
        return {"float64": np.float64, "float16": np.float16}.get(self.dtype, np.float32)

    def _to_numpy(self, tensor: Tensor) -> np.ndarray:
        # numpy has no bfloat16: such vectors are handed out as float32, which holds them exactly
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).contiguous().numpy()


def _check_sizes(batch_size: int, max_tokens: int) -> None:
    for name, value in (("batch_size", batch_size), ("max_tokens", max_tokens)):
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{name} is {value!r}; expected a whole number of at least 1.")
