"""flair's ELMoEmbeddings as a drop-in replacement without AllenNLP: change the import.

    from elmo.compat.flair import ELMoEmbeddings           # was: from flair.embeddings import ELMoEmbeddings
    ELMoEmbeddings("original", embedding_mode="top").embed(sentence)

flair's own class needs AllenNLP 0.9, which cannot be installed with a current Python. This one uses
`elmo.integrations.flair`. Differences: nothing is downloaded (`elmo fetch original`), and each sentence starts from a
zero LSTM state, so that its vectors do not depend on the sentences before. A saved tagger contains the weights; those
that flair has saved with its own class are not read.
"""

from __future__ import annotations

from pathlib import Path

from elmo.embed.load import model_parts
from elmo.errors import ConfigError
from elmo.integrations.flair import ElmoTokenEmbeddings

MODES = ("all", "top", "average")
NAMES = {"large": "original-5.5b", "5.5B": "original-5.5b", "pt": "pt-wikipedia", "portuguese": "pt-wikipedia"}


def ELMoEmbeddings(
    model: str | Path = "original",  # flair's small, medium, original, large, pt and pubmed; whatever `elmo.load` takes
    options_file: str | Path | None = None,
    weight_file: str | Path | None = None,
    embedding_mode: str = "all",  # all (the layers side by side), top, average
) -> ElmoTokenEmbeddings:
    """Token embeddings for flair's taggers, with the arguments of flair's class; two files replace the model's name."""
    if embedding_mode not in MODES:
        raise ConfigError(f"embedding_mode is {embedding_mode!r}; expected one of {', '.join(MODES)}.")
    if (options_file is None) != (weight_file is None):
        raise ConfigError("One of options_file and weight_file is missing.", "Pass both, or the name of a model.")
    if options_file is not None and weight_file is not None:
        return ElmoTokenEmbeddings(model_parts(options_file, weight_file), layers=embedding_mode)
    return ElmoTokenEmbeddings(NAMES.get(str(model), model), layers=embedding_mode)
