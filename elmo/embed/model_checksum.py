"""Checksum of everything that a model's vectors depend on, as a key for cached results."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from elmo.embed.embedder import Embedder


def vectors_checksum(embedder: Embedder) -> str:
    """A checksum of the model, the state policy and the precision: all that a sentence's vectors depend on."""
    return hashlib.sha256(f"{model_checksum(embedder)} {embedder.state} {embedder.dtype}".encode()).hexdigest()


def model_checksum(embedder: Embedder) -> str:
    """The checksum of a model's configuration, weights and indexer; it does not depend on the file format.

    Vectors do not depend on the softmax, so it is not included and, if it is not loaded yet, it stays on disk.
    """
    digest = hashlib.sha256(repr(dataclasses.replace(embedder.model.config, head=None)).encode())
    digest.update(type(embedder.indexer).__name__.encode())
    for row in (embedder.indexer.begin, embedder.indexer.end):
        digest.update(row.tobytes())
    if embedder.model.config.chars is None and embedder.vocab is not None:
        digest.update("\n".join(embedder.vocab.words).encode())  # the row of each word
    model = embedder.model
    tensors = model.token_encoder.state_dict(prefix="token_encoder.") | model.stacks.state_dict(prefix="stacks.")
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
