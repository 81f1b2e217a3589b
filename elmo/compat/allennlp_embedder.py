"""AllenNLP's ElmoEmbedder: tokenised sentences to numpy arrays, and text files to HDF5 files.

It is stateful as in AllenNLP: a sentence's vectors depend on the sentences embedded before it in the same row of a
batch. The one difference: an empty sentence gives (L+1, 0, D) of the actual model, where AllenNLP gave (3, 0, 1024).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from elmo.compat.allennlp_bilm import _ElmoBiLm, batch_to_ids
from elmo.devices import choose_device
from elmo.errors import ConfigError, DataError
from elmo.files import atomic_file

log = logging.getLogger(__name__)

DEFAULT_BATCH_SIZE = 64
OUTPUT_FORMATS = ("all", "top", "average")


class ElmoEmbedder:
    """Computes all layers of every token. Without files, it uses the published model "original" on this machine."""

    def __init__(self, options_file: str | None = None, weight_file: str | None = None, cuda_device: int = -1) -> None:
        self.elmo_bilm = _ElmoBiLm(options_file, weight_file).eval()
        self.cuda_device = cuda_device
        if cuda_device >= 0:
            self.elmo_bilm = self.elmo_bilm.to(choose_device(f"cuda:{cuda_device}"))

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """Layers (B, L+1, T, D) without boundaries, zero at padding, and mask (B, T), on the model's device."""
        ids = batch_to_ids(batch).to(next(self.elmo_bilm.parameters()).device)
        with torch.no_grad():
            layers = torch.stack(self.elmo_bilm(ids)["activations"], dim=1)[:, :, 1:-1]  # (B, L+1, T, D)
        mask = (ids > 0).any(dim=-1)  # (B, T)
        return layers * mask[:, None, :, None], mask

    def embed_sentence(self, sentence: Sequence[str]) -> np.ndarray:
        """(L+1, n, D) of one tokenised sentence."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """(L+1, n, D) of each sentence."""
        if not any(len(sentence) for sentence in batch):
            shape = (self.elmo_bilm.num_layers, 0, self.elmo_bilm.get_output_dim())
            return [np.zeros(shape, dtype=np.float32) for _ in batch]
        layers, _ = self.batch_to_embeddings(batch)
        arrays = layers.cpu().numpy()
        return [arrays[row, :, : len(sentence)] for row, sentence in enumerate(batch)]

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = DEFAULT_BATCH_SIZE
    ) -> Iterator[np.ndarray]:
        """(L+1, n, D) of each sentence of an iterable of any length; sentences are computed in batches."""
        stream = iter(sentences)
        while batch := list(islice(stream, batch_size)):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: Iterable[str],
        output_file_path: str | Path,
        output_format: str = "all",
        batch_size: int = DEFAULT_BATCH_SIZE,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embeds lines of space-separated tokens into an HDF5 file with one dataset per line.

        Datasets are named "0", "1", ..., or by the line itself with use_sentence_keys. A dataset is (L+1, n, D) for
        "all", (n, D) for "top" and "average". Without forget_sentences, the dataset "sentence_to_index" holds a JSON
        object from line to key; of equal lines, the last one counts.
        """
        if isinstance(input_file, (str, Path)):
            raise TypeError(
                f"input_file is the path {str(input_file)!r}; expected lines, such as open({str(input_file)!r})."
            )
        if output_format not in OUTPUT_FORMATS:
            raise ConfigError(f"output_format is {output_format!r}; expected one of {', '.join(OUTPUT_FORMATS)}.")
        lines = [line.strip() for line in input_file]
        blank = [number for number, line in enumerate(lines) if not line]
        if blank:
            raise DataError(f"The input has empty lines, counted from 0: {str(blank)[:200]}.", "Remove them.")
        keys = lines if use_sentence_keys else [str(number) for number in range(len(lines))]
        stream = self.embed_sentences((line.split() for line in lines), batch_size)
        with atomic_file(output_file_path) as partial, h5py.File(partial, "w") as file:
            for key, layers in zip(keys, stream, strict=True):
                _write(file, key, layers if output_format == "all" else _one_layer(layers, output_format))
            if not forget_sentences and not use_sentence_keys:
                index = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())
                index[0] = json.dumps(dict(zip(lines, keys, strict=True)))
        log.info("%s: %d sentences.", output_file_path, len(lines))


def _one_layer(layers: np.ndarray, output_format: str) -> np.ndarray:
    vectors: np.ndarray = layers[-1] if output_format == "top" else layers.mean(axis=0)
    return vectors


def _write(file: h5py.File, key: str, vectors: np.ndarray) -> None:
    try:
        file.create_dataset(key, data=vectors, dtype="float32")
    except (ValueError, OSError, TypeError) as error:  # a name that exists, is a group, or is "."
        raise DataError(
            f"The sentence {key[:80]!r} cannot name a dataset: it occurs twice, or HDF5 reads it as a path.",
            "Use use_sentence_keys=False.",
        ) from error
