"""The vectors of one block, computed from that block alone: the step between `blocks` and the files of vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from elmo.embed.dump.blocks import Block
from elmo.embed.dump.options import DumpOptions
from elmo.embed.dump.part_file import Layout
from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import LayerChoice
from elmo.embed.pool import join_layers, pool
from elmo.errors import OutputError
from elmo.text.indexer import ByteIndexer


def embed_block(
    embedder: Embedder, block: Block, choice: LayerChoice, layout: Layout, options: DumpOptions, *, source: str
) -> np.ndarray:
    """Rows (tokens, K, D) of a block, or (lines, K, D) when pooled, computed with an empty word cache.

    `source` names the input in errors.
    """
    embedder.forget_words()
    num_rows = len(block.lines) if layout.pooled else block.num_tokens
    rows = np.empty((num_rows, layout.num_kept, layout.dim), dtype=layout.dtype)  # (n, K, D)
    start = 0
    joins_pooled = options.pool is not None and choice.joined  # layers are pooled before they are joined
    layers = "all" if joins_pooled else options.chosen_layers
    stream = embedder.stream(
        block.sentences, layers=layers, batch_size=options.batch_size, max_tokens=options.max_tokens
    )
    for number, vectors in enumerate(stream, block.first_line + 1):
        stacked = vectors if layout.stacked or joins_pooled else vectors[None]  # (K, n, D)
        piece = pool(stacked, options.pool)[None] if options.pool else stacked.transpose(1, 0, 2)  # (n, K, D)
        piece = join_layers(piece)[:, None] if joins_pooled else piece  # (n, 1, K * D)
        try:
            with np.errstate(over="raise"):
                rows[start : start + len(piece)] = piece
        except FloatingPointError as error:
            raise OutputError(
                f"{source}:{number}: a value is too large for {layout.dtype}.", "Use --dtype float32."
            ) from error
        start += len(piece)
    return rows


def count_cut_tokens(embedder: Embedder, sentences: Iterable[Sequence[str]]) -> int:
    """The number of tokens that are longer than the model reads."""
    if not isinstance(embedder.indexer, ByteIndexer):
        return 0
    longest = embedder.indexer.width - 2
    return sum(
        len(token) > longest or len(token) * 4 > longest and len(token.encode()) > longest
        for sentence in sentences
        for token in sentence
    )
