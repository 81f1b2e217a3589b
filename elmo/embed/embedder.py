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

from elmo.embed.choice import Choice, LayerChoice, choose
from elmo.embed.fast import find_fast
from elmo.embed.pool import check_pooling, normalize, pool
from elmo.embed.states import CarriedState, check_policy, repeat
from elmo.embed.sweep import sweep
from elmo.embed.warm import warm_state
from elmo.embed.words import WordVectors
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.progress import Progress
from elmo.text.batch import plan_batches, windows_of
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
            hint = "Use float32 or bfloat16; `elmo doctor` says what this machine has."
            raise ConfigError("dtype is 'int8', which needs AVX-512 with VNNI and a C++ compiler.", hint)
        own = DTYPES[dtype] if fast is None else torch.float32  # a twin rounds the weights itself
        self.model = model.to(device=device, dtype=own).eval().requires_grad_(False)
        self._fast = fast
        self.indexer, self.vocab, self.name, self.trained = indexer, vocab, name, trained
        self.device, self.dtype, self.state = torch.device(device), dtype, check_policy(state)
        self.tokenizer_name = tokenizer_name
        self._tokenize = tokenizer(tokenizer_name)
        self.words = WordVectors(self.model, indexer, cache_words, self._fast)
        self._carried = CarriedState(self.model.zero_state(1))
        self._warm: State | None = None

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
        layers: LayerChoice = "average",  # all, top, average, a number, one weight a layer, a ScalarMix
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
        layers: LayerChoice = "average",
        pooling: str = "mean",  # mean, max
        batch_size: int = 256,
        max_tokens: int = 8192,
        show_progress_bar: bool | None = False,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
    ) -> Any:
        """One vector a sentence, pooled over its tokens: (D,) for one, (N, D) for several."""
        check_pooling(pooling)
        given = normalize_input(sentences, self._tokenize)
        stream = self.stream(given.sentences, layers=layers, batch_size=batch_size, max_tokens=max_tokens)
        choice = choose(layers, self.num_layers)
        shape = (len(choice.matrix), self.dim) if choice.stacked else (self.dim,)
        result = np.zeros((len(given.sentences), *shape), dtype=self._numpy_dtype())  # (N, D)
        with Progress("encoding", sum(map(len, given.sentences)), show=show_progress_bar) as progress:
            for number, vectors in enumerate(stream):
                result[number] = pool(vectors, pooling)
                progress.advance(vectors.shape[-2])
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
        layers: LayerChoice = "average",
        batch_size: int = 256,
        max_tokens: int = 8192,
        output: str = "numpy",
    ) -> Iterator[Any]:
        """Vectors of tokenised sentences one by one, in order, from an iterable of any length in constant memory."""
        if output not in ("numpy", "torch"):
            raise ConfigError(f"output is {output!r}; expected numpy or torch.")
        for name, value in (("batch_size", batch_size), ("max_tokens", max_tokens)):
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} is {value!r}; expected a whole number of at least 1.")
        choice = choose(layers, self.num_layers)
        most_rows = batch_size if self.state == "carry" else None
        for window in windows_of(sentences, WINDOW_BATCHES * max_tokens, most_rows):
            yield from self._window(window, choice, batch_size, max_tokens, output)

    def reset_state(self, to: State | None = None) -> None:
        """Forgets what `carry` has carried so far, or goes back to what `carried_state` gave."""
        self._carried.reset(to)

    def carried_state(self) -> State | None:
        """What `carry` has carried so far, (directions, L, rows, ·); None: nothing yet."""
        return self._carried.state

    def run(
        self, sentences: Sequence[Sequence[str]], choice: Choice, *, batch_size: int = 256, max_tokens: int = 8192
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Batch by batch: which sentences, and their chosen layers (K, B, T, D), boundaries included, zero-padded."""
        with torch.inference_mode():
            table, rows = self.words.table(sentences)  # (2 + N, P)
            if self.state == "carry":
                groups = [
                    np.arange(a, min(a + batch_size, len(sentences))) for a in range(0, len(sentences), batch_size)
                ]
            else:
                groups = plan_batches([len(s) for s in sentences], max_tokens=max_tokens, max_rows=batch_size)
            for group in groups:
                filled = group[[len(sentences[int(i)]) > 0 for i in group]]
                if len(filled):
                    chosen = [sentences[int(i)] for i in filled]
                    yield filled, self._batch(chosen, filled - group[0], table, rows, choice)

    def _window(
        self, sentences: list[Sequence[str]], choice: Choice, batch_size: int, max_tokens: int, output: str
    ) -> Iterator[Any]:
        every = self._fast_window(sentences, choice) if self._fast else None
        for vectors in every or self._plain_window(sentences, choice, batch_size, max_tokens, output):
            chosen = vectors if choice.stacked else vectors[0]
            yield self._to_numpy(chosen) if output == "numpy" else chosen.to(self.device)

    def _plain_window(
        self, sentences: list[Sequence[str]], choice: Choice, batch_size: int, max_tokens: int, output: str
    ) -> list[Tensor]:
        K, D = len(choice.matrix), self.dim
        empty = torch.zeros(K, 0, D, dtype=DTYPES[self.dtype])
        found: list[Tensor] = [empty] * len(sentences)
        for group, layers in self.run(sentences, choice, batch_size=batch_size, max_tokens=max_tokens):
            if output == "numpy":
                layers = layers.cpu()
            for row, number in enumerate(group):
                found[number] = layers[:, row, 1 : len(sentences[number]) + 1].clone()  # (K, n, D)
        return found

    def _fast_window(self, sentences: list[Sequence[str]], choice: Choice) -> Iterator[Tensor]:
        assert self._fast is not None
        filled = np.array([row for row, sentence in enumerate(sentences) if len(sentence)], dtype=np.int64)
        result = torch.zeros(len(choice.matrix), 0, self.dim)
        with torch.inference_mode():
            if len(filled):
                table, rows = self.words.table(sentences)  # (2 + N, P)
                result = self._fast_batch([sentences[i] for i in filled], filled, table, rows, choice)  # (K, N, D)
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
        choice: Choice,
        pad_to: int | None = None,
    ) -> Tensor:
        assert self._fast is not None
        where = torch.from_numpy(positions)
        numbered = [[0, *(rows[token] for token in sentence), 1] for sentence in sentences]
        result, after = self._fast.contextualize(
            table, numbered, choice, self._initial(where), pad_to=pad_to, want_state=self.state == "carry"
        )
        if after is not None:
            self._carried.keep(after, where)
        return result  # (K, N, D)

    def _batch(
        self, sentences: list[Sequence[str]], positions: np.ndarray, table: Tensor, rows: dict[str, int], choice: Choice
    ) -> Tensor:
        longest = max(map(len, sentences)) + 2
        if self._fast is not None:
            flat = self._fast_batch(sentences, positions, table, rows, choice, pad_to=longest)
            return flat.unflatten(1, (len(sentences), longest))  # (K, B, T, D)
        index = np.zeros((len(sentences), longest), dtype=np.int64)  # (B, T); row 0 of the table begins a sentence
        mask = np.zeros((len(sentences), longest), dtype=bool)  # (B, T)
        for row, sentence in enumerate(sentences):
            index[row, 1 : len(sentence) + 1] = [rows[token] for token in sentence]
            index[row, len(sentence) + 1] = 1  # row 1 ends it
            mask[row, : len(sentence) + 2] = True
        inside = None if mask.all() else torch.from_numpy(mask).to(self.device)
        tokens = table[torch.from_numpy(index).to(self.device)]  # (B, T, P)
        if inside is not None:
            tokens = tokens * inside[:, :, None]
        where = torch.from_numpy(positions).to(self.device)
        result, after = sweep(self.model, tokens, inside, self._initial(where), choice)
        if self.state == "carry":
            self._carried.keep(after, where)
        return result  # (K, B, T, D)

    def _initial(self, positions: Tensor) -> State:
        if self.state == "carry":
            state = self._carried.rows(int(positions.max()) + 1)
            return State(state.h[:, :, positions], state.c[:, :, positions])
        if self.state == "warm" and self._warm is None:
            self._warm = warm_state(self.model, self.indexer)
        return repeat(self._warm or self.model.zero_state(1), len(positions))

    def _numpy_dtype(self) -> Any:
        return {"float64": np.float64, "float16": np.float16}.get(self.dtype, np.float32)

    def _to_numpy(self, tensor: Tensor) -> np.ndarray:
        # numpy has no bfloat16: such vectors are handed out as float32, which holds them exactly
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).contiguous().numpy()
