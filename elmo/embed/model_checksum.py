"""What a model's vectors depend on, as one checksum: what is computed with one model may be kept for that model."""

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
    """A checksum of everything in a model that shapes its vectors, the same for every file it may lie in.

    The softmax does not shape them: it is left out, and left on disk where it still is.
    """
    digest = hashlib.sha256(repr(dataclasses.replace(embedder.model.config, head=None)).encode())
    digest.update(type(embedder.indexer).__name__.encode())
    for row in (embedder.indexer.begin, embedder.indexer.end):
        digest.update(row.tobytes())
    if embedder.model.config.chars is None and embedder.vocab is not None:
        digest.update("\n".join(embedder.vocab.words).encode())  # which word has which row
    model = embedder.model
    tensors = model.token_encoder.state_dict(prefix="token_encoder.") | model.stacks.state_dict(prefix="stacks.")
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
