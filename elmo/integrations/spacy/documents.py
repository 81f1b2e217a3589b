"""From spaCy documents to the layers of their tokens: the step that the component and the trainable layer share.

The tokens are spaCy's. A sentence is one of `doc.sents` where a component has set them, else the whole document. A
whitespace token is not shown to the biLM, which has seen none in training, and its vectors are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elmo.errors import ConfigError

if TYPE_CHECKING:
    from elmo.embed.embedder import Embedder

EmbedSentences = Callable[[list[list[str]]], list[np.ndarray]]  # sentences of tokens -> layers (L+1, n, D) each


def load_model(model: str, *, device: str, dtype: str, state: str) -> Embedder:
    """The embedder of a component. Carried state is refused, because vectors would depend on earlier documents."""
    from elmo.embed.load import load  # spaCy imports this module for every pipeline, also for those without ELMo

    if state == "carry":
        raise ConfigError(
            "state is 'carry'; in a spaCy pipeline the vectors of a document do not depend on other documents.",
            "Use 'reset' or 'warm'.",
        )
    return load(model, device=device, dtype=dtype, state=state)


def layers_of_docs(docs: Sequence[Any], embed: EmbedSentences, num_layers: int, dim: int) -> list[np.ndarray]:
    """All layers of the tokens of each document, (L+1, tokens, D) in float32; `embed` is called once."""
    rows = [words for doc in docs for words in _sentences(doc)]
    vectors = iter(embed([[token.text for token in words] for words in rows]) if rows else [])
    results = []
    for doc in docs:
        layers = np.zeros((num_layers, len(doc), dim), dtype=np.float32)
        for words in _sentences(doc):
            layers[:, [token.i for token in words]] = next(vectors)
        results.append(layers)
    return results


def _sentences(doc: Any) -> list[list[Any]]:
    """The tokens of each sentence that are not whitespace; sentences without any are left out."""
    spans = doc.sents if doc.has_annotation("SENT_START") else [doc]
    return [words for words in ([token for token in span if not token.is_space] for span in spans) if words]
