"""The Embedder: sentences in, vectors out.

    embedder = elmo.load("model/")
    embedder.embed("The bank of the river .")         # (n, D)
    embedder.layers(["One .", ["Two", "here", "."]])  # a list of (L+1, n, D)
    embedder.encode(["One sentence .", "Another ."])  # (2, D)

A str is one sentence and is tokenised; a list of str inside a list, or a spaCy Doc, is a sentence that is already
tokenised. Results have the caller's order. With state "reset" or "warm", the vectors of a sentence depend on that
sentence alone. The file is long and still one thing: the overloads that give each call its type are in the class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

import numpy as np
import torch
from torch import Tensor

from elmo.devices import choose_device
from elmo.embed.layer_choice import LayerChoice, LayerSpec, choose_layers
from elmo.embed.pool import (
    Vectors,
    check_pooling,
    cosine_matrix,
    cosine_pairs,
    given_vectors,
    join_layers,
    normalize,
    pool_documents,
)
from elmo.embed.run.batches import BatchOptions, to_numpy
from elmo.embed.run.executor import DTYPES, choose_executor
from elmo.embed.states import check_policy
from elmo.embed.word_cache import WordCache
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.progress import Progress
from elmo.settings import check_count
from elmo.text.indexer import Indexer
from elmo.text.inputs import (
    Missing,
    OneText,
    Texts,
    decomposed_warning,
    log_warnings,
    long_text_warning,
    normalize_input,
    single_word_warning,
)
from elmo.text.sentences import sentence_rules
from elmo.text.tokenize import Token
from elmo.text.tokenizer_function import TokenizerFunction, is_doc, make_tokenizer, tokenizer_label
from elmo.text.vocab import Vocabulary

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from elmo.embed.display import SentenceLayers
    from elmo.embed.encode_pool import EncodePool
    from elmo.embed.lm_results import Perplexity, Scores, Substitute
    from elmo.embed.neighbors import Corpus, SearchResult


class LayersOptions(TypedDict, total=False):
    """Keyword options of `Embedder.layers`; `Embedder.embed` says what they mean."""

    batch_size: int
    max_tokens: int
    show_progress_bar: bool | None
    missing: Missing


class EmbedOptions(LayersOptions, total=False):
    """Keyword options of `Embedder.embed` apart from `output`."""

    layers: LayerSpec


class EncodeOptions(EmbedOptions, total=False):
    """Keyword options of `Embedder.encode` that do not change the type of its result."""

    pooling: str
    split: bool
    normalize_embeddings: bool
    device: str | torch.device | Sequence[str] | None
    pool: EncodePool | None
    chunk_size: int | None


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
        tokenizer: str | TokenizerFunction = "default",
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
        self.tokenizer_name = tokenizer_label(tokenizer)
        self._tokenize = make_tokenizer(tokenizer)
        self._cache_words = cache_words

    def __repr__(self) -> str:
        shape = f"{self.num_layers} layers of {self.dim}, device={str(self.device)!r}, dtype={self.dtype!r}"
        weights = "" if self.trained else ", random weights"
        return f"Embedder({self.name!r}, {shape}, state={self.state!r}, tokenizer={self.tokenizer_name!r}{weights})"

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

    @property
    def executor_name(self) -> str:
        """Which implementation runs the network: CpuExecutor, CudaExecutor or PlainExecutor."""
        return type(self._executor).__name__

    def tokenize(self, text: str) -> list[Token]:
        """The tokens of a text as it is embedded, with their positions in it."""
        return self._tokenize(text)

    @property
    def sentence_rules(self) -> str:
        """The rules of `elmo.split_sentences` that belong to the tokenizer: english or unicode."""
        return sentence_rules(self.tokenizer_name)

    def to(self, device: str | torch.device) -> Embedder:
        """Moves the embedder to a device (cpu, cuda, cuda:1, mps, auto) and returns it. The word cache starts empty."""
        name, carried = choose_device(device), self._executor.carried.state
        self._executor = choose_executor(
            self.model, self.indexer, device=name, dtype=self.dtype, cache_words=self._cache_words
        )
        self.model, self.device = self._executor.model, torch.device(name)
        if carried is not None:
            self.reset_state(State(carried.h.to(self.device), carried.c.to(self.device)))
        return self

    @overload
    def layers(  # type: ignore[overload-overlap]  # a str is an iterable of str, and one sentence
        self, texts: OneText, *, output: Literal["numpy"] = ..., **options: Unpack[LayersOptions]
    ) -> np.ndarray: ...
    @overload
    def layers(  # type: ignore[overload-overlap]
        self, texts: OneText, *, output: Literal["torch"], **options: Unpack[LayersOptions]
    ) -> Tensor: ...
    @overload
    def layers(
        self, texts: Texts, *, output: Literal["numpy"] = ..., **options: Unpack[LayersOptions]
    ) -> list[np.ndarray]: ...
    @overload
    def layers(self, texts: Texts, *, output: Literal["torch"], **options: Unpack[LayersOptions]) -> list[Tensor]: ...
    def layers(self, texts: Any, **options: Any) -> Any:
        """All layers of every token: (L+1, n, D) for one sentence, a list of these for several."""
        return self.embed(texts, layers="all", **options)

    def show(self, text: OneText | Sequence[str]) -> SentenceLayers:
        """The layers of one sentence with its tokens, which a notebook shows as a table with charts.

        The sentence is a str, a spaCy Doc or a list of tokens.
        """
        from elmo.embed.display import SentenceLayers

        is_tokens = isinstance(text, (list, tuple))
        inputs = normalize_input([text] if is_tokens else text, self._tokenize)
        if len(inputs.sentences) != 1:
            raise ConfigError(f"show got {len(inputs.sentences)} sentences; expected one.", "Call it once for each.")
        return SentenceLayers(inputs.sentences[0], self.layers(inputs.sentences)[0])

    @overload
    def embed(  # type: ignore[overload-overlap]
        self, texts: OneText, *, output: Literal["numpy"] = ..., **options: Unpack[EmbedOptions]
    ) -> np.ndarray: ...
    @overload
    def embed(  # type: ignore[overload-overlap]
        self, texts: OneText, *, output: Literal["torch"], **options: Unpack[EmbedOptions]
    ) -> Tensor: ...
    @overload
    def embed(
        self, texts: Texts, *, output: Literal["numpy"] = ..., **options: Unpack[EmbedOptions]
    ) -> list[np.ndarray]: ...
    @overload
    def embed(self, texts: Texts, *, output: Literal["torch"], **options: Unpack[EmbedOptions]) -> list[Tensor]: ...
    def embed(
        self,
        texts: OneText | Texts,
        *,
        layers: LayerSpec = "average",  # all, top, average, concat, a number, one weight per layer, a ScalarMix
        batch_size: int = 256,  # most sentences per batch
        max_tokens: int = 8192,  # most tokens per batch, padding included
        output: str = "numpy",  # numpy, torch
        show_progress_bar: bool | None = False,
        missing: Missing = "error",  # None and NaN among the texts: an error, or an empty sentence
    ) -> Any:
        """One vector per token: (n, D) for one sentence, a list of these for several."""
        inputs = normalize_input(texts, self._tokenize, missing=missing)
        log_warnings(single_word_warning(inputs), long_text_warning(inputs), decomposed_warning(inputs.sentences))
        stream = self.stream(
            inputs.sentences, layers=layers, batch_size=batch_size, max_tokens=max_tokens, output=output
        )
        results = []
        with Progress("embedding", sum(map(len, inputs.sentences)), show=show_progress_bar) as progress:
            for vectors in stream:
                results.append(vectors)
                progress.advance(vectors.shape[-2])
        return results[0] if inputs.single else results

    @overload
    def encode(
        self,
        sentences: OneText | Texts,
        *,
        convert_to_numpy: Literal[True] = ...,
        convert_to_tensor: Literal[False] = ...,
        **options: Unpack[EncodeOptions],
    ) -> np.ndarray: ...
    @overload
    def encode(
        self,
        sentences: OneText | Texts,
        *,
        convert_to_numpy: bool = ...,
        convert_to_tensor: Literal[True],
        **options: Unpack[EncodeOptions],
    ) -> Tensor: ...
    @overload
    def encode(
        self,
        sentences: OneText | Texts,
        *,
        convert_to_numpy: Literal[False],
        convert_to_tensor: bool = ...,
        **options: Unpack[EncodeOptions],
    ) -> Tensor: ...
    @overload
    def encode(
        self,
        sentences: OneText | Texts,
        *,
        convert_to_numpy: bool = ...,
        convert_to_tensor: bool = ...,
        **options: Unpack[EncodeOptions],
    ) -> np.ndarray | Tensor: ...
    def encode(
        self,
        sentences: OneText | Texts,
        *,
        layers: LayerSpec = "average",
        pooling: str = "mean",  # mean, max
        split: bool = False,  # each str is a document: it is split into sentences, whose vectors are pooled
        batch_size: int = 256,
        max_tokens: int = 8192,
        show_progress_bar: bool | None = False,
        missing: Missing = "error",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        device: str | torch.device | Sequence[str] | None = None,  # moves the embedder; a list: one process per device
        pool: EncodePool | None = None,  # of processes, from `start_multi_process_pool`
        chunk_size: int | None = None,  # most sentences per job of a process; None: a few jobs per process
    ) -> np.ndarray | Tensor:
        """One vector per sentence, pooled over its tokens: (D,) for one sentence, (N, D) for several.

        A str is one sentence, however long it is. With `split`, it is a document of any number of sentences: the tokens
        of each sentence are pooled, and then its sentences, so that each sentence counts once. A list of devices, such
        as ["cuda:0", "cuda:1"] or ["cpu", "cpu"], starts a pool of processes for this call.
        """
        pooled_by = self._pooled_by(device, pool, chunk_size)
        inputs = normalize_input(sentences, self._tokenize, missing=missing, split=split, rules=self.sentence_rules)
        log_warnings(None if split else long_text_warning(inputs), decomposed_warning(inputs.sentences))
        layer_choice = choose_layers(layers, self.num_layers)
        shape = (len(inputs.sentences), *layer_choice.shape(self.dim))
        result = np.zeros(shape, dtype=self._numpy_dtype())  # (N, D)
        pooled = pooled_by(
            inputs.sentences, layers=layers, pooling=pooling, batch_size=batch_size, max_tokens=max_tokens
        )
        end = 0
        with Progress("encoding", sum(map(len, inputs.sentences)), show=show_progress_bar) as progress:
            for vectors, num_tokens in pooled:
                begin, end = end, end + len(vectors)
                result[begin:end] = vectors
                progress.advance(num_tokens)
        if split:
            result = pool_documents(result, inputs.num_sentences, pooling)
        if normalize_embeddings:
            result = normalize(result)
        if inputs.single:
            result = result[0]
        if convert_to_tensor or not convert_to_numpy:
            return torch.from_numpy(np.ascontiguousarray(result)).to(self.device)
        return result

    def start_multi_process_pool(self, target_devices: Sequence[str] | None = None) -> EncodePool:
        """Worker processes for `encode(..., pool=pool)`, one per device; they also end at the end of a `with` block.

        None: all CUDA devices, or else at most four processes on the CPU.
        """
        from elmo.embed.encode_pool import EncodePool  # which imports this module

        return EncodePool(self, target_devices)

    def stop_multi_process_pool(self, pool: EncodePool) -> None:
        """Ends the processes of a pool."""
        pool.close()

    def similarity(
        self,
        a: OneText | Texts | Vectors,
        b: OneText | Texts | Vectors,
        *,
        layers: LayerSpec = "average",  # of texts
    ) -> Tensor:
        """Cosines between each of `a` and each of `b`, (N, M), as in sentence-transformers.

        Both are vectors that `encode` returned, or texts, which are encoded. A zero vector has cosine 0. The default is
        that of `encode`, so that its vectors and texts can be mixed; layers="concat" agrees better with people
        (docs/guides/layers.md).
        """
        return cosine_matrix(self._encoded(a, layers), self._encoded(b, layers))

    def similarity_pairwise(
        self,
        a: OneText | Texts | Vectors,
        b: OneText | Texts | Vectors,
        *,
        layers: LayerSpec = "average",
    ) -> Tensor:
        """The cosine of each of `a` with the item of `b` at the same position, (N,)."""
        return cosine_pairs(self._encoded(a, layers), self._encoded(b, layers))

    def similar(
        self,
        sentence: OneText | Sequence[str],
        word: str | int,  # in the sentence, or its position, from 0
        corpus: Corpus,
        *,
        beside: Sequence[OneText | Sequence[str]] = (),  # other sentences with the word, searched for in the same pass
        k: int = 10,
        layers: LayerSpec = "top",
        same_word: bool = False,  # only other occurrences of the word, regardless of case
        split: bool = False,  # lines and strings of the corpus are paragraphs, which are split into sentences
        encoding: str = "utf-8",  # of a text file
        index: str | Path | None = None,  # folder in which the corpus's vectors are stored for later searches
        show_progress_bar: bool | None = False,
    ) -> SearchResult:
        """Where a corpus uses words as this sentence uses the word: `.nearest` has the k nearest uses, best first.

        The corpus is the path of a text file with one sentence per line, or texts; it is read once, in constant memory
        unless there is an `index`. The result also has the nearest words without context. The layer "top" tells the
        senses of one word apart best; "concat" compares different words best (docs/guides/layers.md).
        """
        from elmo.embed.neighbors import corpus_sentences, find_neighbors, word_queries  # which import this module

        queries = word_queries(self, [sentence, *beside], word)
        sentences = corpus_sentences(self, corpus, split=split, encoding=encoding)
        return find_neighbors(
            self, queries, sentences, layers=layers, k=k, word=queries[0].word if same_word else None,
            index=None if index is None else Path(index), show=show_progress_bar,
        )  # fmt: skip

    @overload
    def score(self, texts: OneText) -> Scores: ...  # type: ignore[overload-overlap]
    @overload
    def score(self, texts: Texts) -> list[Scores]: ...
    def score(self, texts: OneText | Texts) -> Scores | list[Scores]:
        """The log-probabilities of each word, forward and backward, for one sentence or a list of sentences.

        This and the next two methods need a model with a softmax; `elmo.embed.lm` defines their results.
        """
        from elmo.embed.lm import LanguageModel  # which imports this module

        scores = LanguageModel(self).scores(texts)
        return scores[0] if isinstance(texts, str) or is_doc(texts) else scores

    @overload
    def substitutes(
        self, text: OneText | Sequence[str], position: None = None, k: int = 10
    ) -> list[list[Substitute]]: ...
    @overload
    def substitutes(self, text: OneText | Sequence[str], position: int | str, k: int = 10) -> list[Substitute]: ...
    def substitutes(
        self, text: OneText | Sequence[str], position: int | str | None = None, k: int = 10
    ) -> list[list[Substitute]] | list[Substitute]:
        """The k words that fit best at a position of a sentence, best first; without a position, at each position.

        The position is a number, from 0, or the word that stands there.
        """
        from elmo.embed.lm import LanguageModel

        substitutes = LanguageModel(self).substitutes(text, position, k=k)
        return substitutes if position is None else substitutes[0]

    def perplexity(self, texts: OneText | Texts) -> Perplexity:
        """The perplexity of all sentences together, forward, backward and mean, with its definition."""
        from elmo.embed.lm import LanguageModel

        return LanguageModel(self).perplexity(texts)

    def stream(
        self,
        sentences: Iterable[Sequence[str]],
        *,
        layers: LayerSpec = "average",
        batch_size: int = 256,
        max_tokens: int = 8192,
        output: str = "numpy",
    ) -> Iterator[Any]:
        """Vectors of tokenised sentences one by one, in order. The input may have any length: memory is constant.

        A string among the sentences is a TypeError; `embed` tokenises strings.
        """
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
        """For some tokenised sentences at a time, in order: a vector each (n, D), and how many tokens they have.

        A string among the sentences is a TypeError; `encode` tokenises strings.
        """
        check_pooling(pooling)
        options = self._batch_options(batch_size, max_tokens)
        layer_choice = choose_layers(layers, self.num_layers)
        for vectors, num_tokens in self._executor.pooled(sentences, layer_choice.before_joining(), options, pooling):
            yield join_layers(vectors) if layer_choice.joined else vectors, num_tokens

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
        return BatchOptions(self.state, check_count("batch_size", batch_size), check_count("max_tokens", max_tokens))

    def _pooled_by(
        self, device: str | torch.device | Sequence[str] | None, pool: EncodePool | None, chunk_size: int | None
    ) -> Callable[..., Iterator[tuple[np.ndarray, int]]]:
        """`pooled` of the pool, or of this embedder, which moves to the device if it is on another one."""
        if pool is not None:
            if device is not None:
                raise ConfigError("encode got both a device and a pool, which has its own.", "Pass one of them.")
            if pool.embedder is not self:
                raise ConfigError(
                    f"The pool belongs to another embedder, {pool.embedder.name!r}.", "Start one of this."
                )
            return functools.partial(pool.pooled, chunk_size=chunk_size)
        if device is not None and not isinstance(device, (str, torch.device)):
            return functools.partial(self._pooled_on, device, chunk_size=chunk_size)
        if chunk_size is not None:
            raise ConfigError("chunk_size is for a pool of processes, and there is none.", "Pass a pool as well.")
        if device is not None and torch.device(choose_device(str(device))) != self.device:
            self.to(str(device))
        return self.pooled

    def _pooled_on(self, devices: Sequence[str], *arguments: Any, **options: Any) -> Iterator[tuple[np.ndarray, int]]:
        with self.start_multi_process_pool(devices) as pool:
            yield from pool.pooled(*arguments, **options)

    def _encoded(self, texts_or_vectors: Any, layers: LayerSpec) -> Tensor:
        """Vectors as a matrix (N, D); texts are encoded."""
        vectors = given_vectors(texts_or_vectors)
        if vectors is None:
            vectors = self.encode(texts_or_vectors, layers=layers, convert_to_tensor=True)
        if vectors.ndim not in (1, 2):
            raise ConfigError(f"The vectors have shape {tuple(vectors.shape)}; expected (N, D), one row per text.")
        return vectors if vectors.ndim == 2 else vectors[None]

    def _numpy_dtype(self) -> Any:
        return {"float64": np.float64, "float16": np.float16}.get(self.dtype, np.float32)
