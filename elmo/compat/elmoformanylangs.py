"""ELMoForManyLangs' Embedder as a drop-in replacement: change the import, and old code runs with current PyTorch.

    from elmo.compat.elmoformanylangs import Embedder           # was: from elmoformanylangs import Embedder

It uses elmo.embed and reads that project's model folders, also those whose config.json has the path of another machine.
The one difference: each sentence starts from a zero LSTM state. There, the state carries over between batches whose
order is random, so the same sentence gets other vectors each time; the first batch after loading is the same here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elmo.embed.load import load
from elmo.errors import ConfigError
from elmo.settings import check_count

AVERAGE, ALL = -1, -2


class Embedder:
    """`model_dir` is a folder of ELMoForManyLangs, or anything else that `elmo.load` takes."""

    def __init__(self, model_dir: str | Path, batch_size: int = 64) -> None:
        self.model_dir, self.batch_size = model_dir, check_count("batch_size", batch_size)
        self._embedder = load(model_dir)

    def sents2elmo(self, sents: Sequence[Sequence[str]], output_layer: int = AVERAGE) -> list[np.ndarray]:
        """Vectors of tokenised sentences, a list of (n, D), or of (L+1, n, D) for all layers.

        output_layer: 0 for the word encoder, 1 and up for the LSTM layers, -1 for the mean of the layers, -2 for all.
        """
        num_layers = self._embedder.num_layers
        if not ALL <= output_layer < num_layers:
            raise ConfigError(
                f"output_layer is {output_layer}; expected 0 to {num_layers - 1}, -1 (mean) or -2 (all layers)."
            )
        for number, sentence in enumerate([sents] if isinstance(sents, str) else sents):
            if isinstance(sentence, str):
                raise TypeError(f"sents[{number}] is the string {sentence[:40]!r}; expected a list of tokens.")
        layers = {AVERAGE: "average", ALL: "all"}.get(output_layer, output_layer)
        return list(self._embedder.stream(sents, layers=layers, batch_size=self.batch_size))
