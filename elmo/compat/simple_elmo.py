"""simple_elmo's ElmoModel as a drop-in replacement without TensorFlow: change the import, and old code runs.

    from elmo.compat.simple_elmo import ElmoModel

It uses elmo.embed. As in simple_elmo, each call starts from a zero state, `warmup` runs the first batch once before
the real run, and rows of later batches continue from the same rows of earlier ones.

Errors of simple_elmo that are corrected here: padded positions are zero in every layer; a sentence's average is over
its own tokens, not over the longest sentence of its batch; averages of "all" layers do not confuse layers and tokens;
substitutes are predicted from the whole sentence, not from one neighbouring word, and their "logp" are
log-probabilities; <S> and </S> are left out instead of set to zero; any number of sentences is accepted; options with
261 characters are read; the average of an empty sentence is zero, not NaN. Arrays are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import choose_layers
from elmo.embed.lm import LanguageModel
from elmo.embed.load import make_embedder, model_parts
from elmo.errors import ConfigError
from elmo.text.vocab import Vocabulary
from elmo.weights.tf_checkpoint import find_prefix

LAYERS = ("average", "top", "all")


class SoftmaxVocabulary:
    """The words of a model's softmax, with simple_elmo's method names."""

    def __init__(self, vocab: Vocabulary) -> None:
        self._vocab = vocab
        self.size = len(vocab)

    def id_to_word(self, number: int) -> str:
        return self._vocab.words[number]

    def word_to_id(self, word: str) -> int:
        return self._vocab.id(word)


class ElmoModel:
    """A model that is loaded after construction and returns one padded array for a list of sentences."""

    def __init__(self) -> None:
        self.batch_size: int | None = None
        self.max_chars: int | None = None
        self.vector_size: int | None = None
        self.n_layers: int | None = None
        self.vocab: SoftmaxVocabulary | None = None
        self._embedder: Embedder | None = None
        self._lm: LanguageModel | None = None

    def load(
        self,
        directory: str | Path,  # or a zip, a weights file, or a model's name: anything that `elmo.load` takes
        max_batch_size: int = 32,
        limit: int = 100,  # size of simple_elmo's word cache; ignored, because the cache here has its own limit
        full: bool = False,  # with the softmax, for substitutes; read from a checkpoint if there is one
    ) -> None:
        """Reads a model; vectors are computed on the fastest available device."""
        path = _model_path(directory, full)
        parts = model_parts(path, lazy_head=True)
        self._embedder = make_embedder(parts, name=str(path), state="carry", tokenizer="whitespace")
        chars = self._embedder.model.config.chars
        self.batch_size, self.max_chars = max_batch_size, chars.max_chars if chars else None
        self.vector_size, self.n_layers = self._embedder.dim, self._embedder.num_layers
        self._lm = LanguageModel(_without_state(self._embedder)) if full else None
        self.vocab = SoftmaxVocabulary(self._lm.vocab) if self._lm else None

    def get_elmo_vectors(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str = "average", session: Any = None
    ) -> np.ndarray:
        """Vectors of tokenised sentences, (B, T, D), or (B, L+1, T, D) for layers="all"; zero at padding.

        With a `session` (anything but None), the LSTM states continue from the previous call.
        """
        arrays = self._vectors(texts, warmup, layers, session)
        max_length = max((vectors.shape[-2] for vectors in arrays), default=0)
        shape = (self.n_layers, max_length, self.vector_size) if layers == "all" else (max_length, self.vector_size)
        result = np.zeros((len(arrays), *shape), dtype=np.float32)  # (B, [L+1,] T, D)
        for row, vectors in enumerate(arrays):
            result[row, ..., : vectors.shape[-2], :] = vectors
        return result

    def get_elmo_vector_average(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str = "average", session: Any = None
    ) -> np.ndarray:
        """The mean of each sentence's vectors, (B, D) or (B, L+1, D), scaled to length 1 (all layers together)."""
        arrays = self._vectors(texts, warmup, layers, session)
        shape = (self.n_layers, self.vector_size) if layers == "all" else (self.vector_size,)
        result = np.zeros((len(arrays), *shape), dtype=np.float32)  # (B, [L+1,] D)
        for row, vectors in enumerate(arrays):
            if vectors.shape[-2]:
                mean = vectors.mean(axis=-2)
                result[row] = mean / max(float(np.linalg.norm(mean)), 1e-12)
        return result

    def get_elmo_substitutes(
        self, raw_sentences: Sequence[str], topn: int = 3, nodelimiters: bool = True
    ) -> list[list[dict[str, Any]]]:
        """For every word of every sentence of space-separated tokens, the words that each direction predicts there.

        A word is {"word", "forward", "backward"}; a direction is {"candidates", "candidate_words", "logp"}: ids, words
        and log-probabilities, best first. Needs `load(..., full=True)`.
        """
        if self._lm is None:
            raise ConfigError("Substitutes need the model's softmax.", "Load the model with full=True.")
        if isinstance(raw_sentences, str):
            raise TypeError("raw_sentences is one string; expected a list of strings.")
        sentences = [text.split() if isinstance(text, str) else list(text) for text in raw_sentences]
        embedder, P = self._lm.embedder, self._lm.embedder.model.config.lstm.proj_dim
        substitutes: list[list[dict[str, Any]]] = [[] for _ in sentences]
        for group, top in embedder.run(
            sentences, choose_layers("top", embedder.num_layers), batch_size=self.batch_size or 32
        ):
            for row, number in enumerate(group):
                n = len(sentences[number])
                forward = self._best_words(top[0, row, :n, :P], topn, nodelimiters)  # the state before each word
                backward = self._best_words(top[0, row, 2 : n + 2, P:], topn, nodelimiters)  # the state after it
                substitutes[number] = [
                    {"word": word, "forward": before, "backward": after}
                    for word, before, after in zip(sentences[number], forward, backward, strict=True)
                ]
        return substitutes

    def _best_words(self, states: Tensor, topn: int, nodelimiters: bool) -> list[dict[str, Any]]:
        assert self._lm is not None
        vocab = self._lm.vocab
        skipped = {vocab.bos, vocab.eos} if nodelimiters else set()
        with torch.inference_mode():
            values, ids = self._lm.head.best([states], min(topn + len(skipped), len(vocab)))  # each (n, topn + 2)
        result = []
        for row_values, row_ids in zip(values.tolist(), ids.tolist(), strict=True):
            best = [(i, v) for i, v in zip(row_ids, row_values, strict=True) if i not in skipped][:topn]
            result.append(
                {
                    "candidates": [i for i, _ in best],
                    "candidate_words": [vocab.words[i] for i, _ in best],
                    "logp": [round(v, 4) for _, v in best],
                }
            )
        return result

    def _vectors(self, texts: Sequence[Sequence[str]], warmup: bool, layers: str, session: Any) -> list[np.ndarray]:
        """(n, D) or (L+1, n, D) of each sentence."""
        if self._embedder is None or self.batch_size is None:
            raise ConfigError("No model is loaded.", "Call load(path) first.")
        if layers not in LAYERS:
            raise ConfigError(f"layers is {layers!r}; expected one of {', '.join(LAYERS)}.")
        for number, text in enumerate([texts] if isinstance(texts, str) else texts):
            if isinstance(text, str):
                raise TypeError(f"texts[{number}] is the string {text[:40]!r}; expected a list of tokens: split it.")
        if session is None:
            self._embedder.reset_state()
        if warmup:
            for _ in self._embedder.stream(texts[: self.batch_size], layers="top", batch_size=self.batch_size):
                pass
        return list(self._embedder.stream(texts, layers=layers, batch_size=self.batch_size))


def _model_path(directory: str | Path, full: bool) -> str | Path:
    """The file to read in a folder: its newest checkpoint if `full`, otherwise model.hdf5 if it exists."""
    path = Path(directory)
    if full and path.is_dir() and any(path.glob("*.index")):
        return Path(f"{find_prefix(path)}.index")
    return path / "model.hdf5" if (path / "model.hdf5").is_file() else directory


def _without_state(embedder: Embedder) -> Embedder:
    """An embedder with the same network that starts every sentence from a zero state."""
    return Embedder(
        embedder.model,
        embedder.indexer,
        tokenizer="whitespace",
        device=str(embedder.device),
        dtype=embedder.dtype,
        vocab=embedder.vocab,
        name=embedder.name,
    )
