"""simple_elmo's ElmoModel, for code that outlived TensorFlow 1: change the import and it runs.

    from elmo.compat.simple_elmo import ElmoModel

Stands on top of elmo.embed. As there, each call starts from a fresh state, `warmup` runs the first batch once before
it counts, and rows of later batches continue from the same rows of earlier ones.

What was wrong there and is right here: padded positions are zero in every layer, and a sentence's average is over its
own tokens, not over the longest sentence of its batch; averages of "all" layers do not mix up layers and tokens;
substitutes are predicted from the whole sentence, not from one neighbouring word, their "logp" are log-probabilities,
<S> and </S> are left out instead of set to zero, and any number of sentences may be given; options with 261 characters
are read; an empty sentence averages to zeros, not NaN. Arrays are float32.
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
from elmo.embed.load import load
from elmo.errors import ConfigError
from elmo.text.vocab import Vocabulary
from elmo.weights.tf_checkpoint import find_prefix

LAYERS = ("average", "top", "all")


class OldVocabulary:
    """The words of a model's softmax under the names simple_elmo gave them."""

    def __init__(self, vocab: Vocabulary) -> None:
        self._vocab = vocab
        self.size = len(vocab)

    def id_to_word(self, number: int) -> str:
        return self._vocab.words[number]

    def word_to_id(self, word: str) -> int:
        return self._vocab.id(word)


class ElmoModel:
    """A model that is loaded after it is made, and gives one padded array for a list of sentences."""

    def __init__(self) -> None:
        self.batch_size: int | None = None
        self.max_chars: int | None = None
        self.vector_size: int | None = None
        self.n_layers: int | None = None
        self.vocab: OldVocabulary | None = None
        self._embedder: Embedder | None = None
        self._lm: LanguageModel | None = None

    def load(
        self,
        directory: str | Path,  # or a zip, or a weights file; any format `elmo.load` reads
        max_batch_size: int = 32,
        limit: int = 100,  # words to cache there; the cache here fills by itself
        full: bool = False,  # with the softmax, for substitutes: from the checkpoint, if there is one
    ) -> None:
        """Reads a model; vectors are computed on the best device there is."""
        path = _chosen(Path(directory), full)
        self._embedder = load(path, state="carry", tokenizer="whitespace")
        chars = self._embedder.model.config.chars
        self.batch_size, self.max_chars = max_batch_size, chars.max_chars if chars else None
        self.vector_size, self.n_layers = self._embedder.dim, self._embedder.num_layers
        self._lm = LanguageModel(_without_state(self._embedder)) if full else None
        self.vocab = OldVocabulary(self._lm.vocab) if self._lm else None

    def get_elmo_vectors(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str = "average", session: Any = None
    ) -> np.ndarray:
        """Vectors of tokenised sentences, (N, T, D), or (N, L+1, T, D) for layers="all"; zero at padding.

        With a `session` (anything but None) the state of the last call is not forgotten.
        """
        found = self._vectors(texts, warmup, layers, session)
        longest = max((vectors.shape[-2] for vectors in found), default=0)
        shape = (self.n_layers, longest, self.vector_size) if layers == "all" else (longest, self.vector_size)
        result = np.zeros((len(found), *shape), dtype=np.float32)  # (N, [L+1,] T, D)
        for row, vectors in enumerate(found):
            result[row, ..., : vectors.shape[-2], :] = vectors
        return result

    def get_elmo_vector_average(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str = "average", session: Any = None
    ) -> np.ndarray:
        """The mean of each sentence's vectors, at length 1 (all layers together): (N, D), or (N, L+1, D)."""
        found = self._vectors(texts, warmup, layers, session)
        shape = (self.n_layers, self.vector_size) if layers == "all" else (self.vector_size,)
        result = np.zeros((len(found), *shape), dtype=np.float32)  # (N, [L+1,] D)
        for row, vectors in enumerate(found):
            if vectors.shape[-2]:
                mean = vectors.mean(axis=-2)
                result[row] = mean / max(float(np.linalg.norm(mean)), 1e-12)
        return result

    def get_elmo_substitutes(
        self, raw_sentences: Sequence[str], topn: int = 3, nodelimiters: bool = True
    ) -> list[list[dict[str, Any]]]:
        """For every word of every sentence (tokens between spaces), what each direction would have put there.

        A word is {"word", "forward", "backward"}; a direction is {"candidates", "candidate_words", "logp"}: ids, words
        and log-probabilities, best first. Needs `load(..., full=True)`.
        """
        if self._lm is None:
            raise ConfigError("Substitutes need the model's softmax.", "Load the model with full=True.")
        if isinstance(raw_sentences, str):
            raise TypeError("raw_sentences is one string; expected a list of them.")
        sentences = [text.split() if isinstance(text, str) else list(text) for text in raw_sentences]
        embedder, P = self._lm.embedder, self._lm.embedder.model.config.lstm.proj_dim
        found: list[list[dict[str, Any]]] = [[] for _ in sentences]
        for group, top in embedder.run(
            sentences, choose_layers("top", embedder.num_layers), batch_size=self.batch_size or 32
        ):
            for row, number in enumerate(group):
                n = len(sentences[number])
                forward = self._best(top[0, row, :n, :P], topn, nodelimiters)  # the state before each word
                backward = self._best(top[0, row, 2 : n + 2, P:], topn, nodelimiters)  # the state after it
                found[number] = [
                    {"word": word, "forward": before, "backward": after}
                    for word, before, after in zip(sentences[number], forward, backward, strict=True)
                ]
        return found

    def _best(self, states: Tensor, topn: int, nodelimiters: bool) -> list[dict[str, Any]]:
        assert self._lm is not None
        vocab = self._lm.vocab
        skipped = {vocab.bos, vocab.eos} if nodelimiters else set()
        with torch.inference_mode():
            values, ids = self._lm.head.best([states], min(topn + len(skipped), len(vocab)))  # each (n, topn + 2)
        result = []
        for row_values, row_ids in zip(values.tolist(), ids.tolist(), strict=True):
            kept = [(i, v) for i, v in zip(row_ids, row_values, strict=True) if i not in skipped][:topn]
            result.append(
                {
                    "candidates": [i for i, _ in kept],
                    "candidate_words": [vocab.words[i] for i, _ in kept],
                    "logp": [round(v, 4) for _, v in kept],
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


def _chosen(path: Path, full: bool) -> Path:
    """Of a folder: its newest checkpoint if `full`, else model.hdf5, where there is such a file."""
    if full and path.is_dir() and any(path.glob("*.index")):
        return Path(f"{find_prefix(path)}.index")
    return path / "model.hdf5" if (path / "model.hdf5").is_file() else path


def _without_state(embedder: Embedder) -> Embedder:
    """The same network, each sentence by itself."""
    return Embedder(
        embedder.model,
        embedder.indexer,
        tokenizer_name="whitespace",
        device=str(embedder.device),
        dtype=embedder.dtype,
        vocab=embedder.vocab,
        name=embedder.name,
    )
