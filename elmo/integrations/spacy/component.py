"""The spaCy component `elmo`: it adds the vectors of a biLM to documents.

    nlp.add_pipe("elmo", config={"model": "english", "layers": "average"})

For each document it sets `doc.tensor` (tokens, width), `doc._.elmo` with all layers (L+1, tokens, D), and hooks, so
that `vector` and `similarity` of documents, spans and tokens come from ELMo. A saved pipeline refers to the model by
name or path; the model's checksum is saved with it and compared when the pipeline is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elmo.errors import ConfigError, DataError, WeightsError
from elmo.files import require_extra
from elmo.integrations.spacy.documents import layers_of_docs, load_model
from elmo.integrations.spacy.hooks import set_hooks

if TYPE_CHECKING:
    from elmo.embed.embedder import Embedder

spacy = require_extra("spacy", "spacy", "spaCy")

DEFAULTS = {"model": "default", "layers": "average", "device": "auto", "dtype": "float32", "state": "reset"}
ErrorHandler = Callable[[str, Any, list[Any], Exception], Any]


class ElmoComponent:
    """A component of a spaCy pipeline. The vectors of a document do not depend on the other documents of its batch."""

    def __init__(self, name: str, *, model: str, layers: str | int | list[float], **options: str) -> None:
        self.name, self.model_name, self.layers, self._options = name, model, layers, options
        self._error_handler: ErrorHandler | None = None
        self._sha256: str | None = None
        self._embedder: Embedder | None = None
        if self._choice().stacked:
            raise ConfigError(
                f"layers is {layers!r}; expected one vector per token for doc.tensor.",
                "doc._.elmo has all layers with every setting.",
            )

    @property
    def embedder(self) -> Embedder:
        """The frozen biLM."""
        if self._embedder is None:
            self._embedder = load_model(self.model_name, **self._options)
        return self._embedder

    @property
    def sha256(self) -> str:
        """The checksum of the model's weights."""
        from elmo.embed.model_checksum import model_checksum

        if self._sha256 is None:
            self._sha256 = model_checksum(self.embedder)
        return self._sha256

    def __call__(self, doc: Any) -> Any:
        self._annotate([doc])  # spaCy handles the error of one document
        return doc

    def pipe(self, stream: Iterable[Any], *, batch_size: int = 256) -> Iterator[Any]:
        """The documents with their vectors, in order; the biLM runs once per batch of documents."""
        for docs in spacy.util.minibatch(stream, size=batch_size):
            try:
                self._annotate(docs)
            except Exception as error:
                self.get_error_handler()(self.name, self, docs, error)
            else:
                yield from docs

    def set_error_handler(self, error_handler: ErrorHandler) -> None:
        """Sets the function that spaCy calls with the documents of a batch that failed."""
        self._error_handler = error_handler

    def get_error_handler(self) -> ErrorHandler:
        """The function for the documents of a batch that failed; spaCy's own raises the error."""
        return self._error_handler or spacy.util.raise_error

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """The checksum of the model; the settings are in the pipeline's config."""
        return json.dumps({"model_sha256": self.sha256}).encode()

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> ElmoComponent:
        """Compares the model with the one that the pipeline was saved with."""
        saved = _saved_checksum(data)
        if saved != self.sha256:
            raise WeightsError(
                f"The pipeline was saved with another model than the {self.model_name!r} of this machine.",
                f"Name that model: spacy.load(PIPELINE, config={{'components.{self.name}.model': PATH}}).",
            )
        return self

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Writes what `to_bytes` returns into the folder of the component."""
        Path(path).mkdir(parents=True, exist_ok=True)
        (Path(path) / "elmo.json").write_bytes(self.to_bytes())

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> ElmoComponent:
        """Compares the model with the one that the pipeline was saved with."""
        return self.from_bytes((Path(path) / "elmo.json").read_bytes())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_embedder": None}  # another process loads the model again

    def _annotate(self, docs: list[Any]) -> None:
        import torch

        choice = self._choice()
        every = layers_of_docs(docs, self.embedder.layers, self.embedder.num_layers, self.embedder.dim)
        for doc, layers in zip(docs, every, strict=True):
            vectors = choice.unstack(choice.apply(torch.from_numpy(layers)[:, None]))  # (1, n, D)
            doc.tensor = vectors[0].numpy()
            doc._.elmo = layers
            set_hooks(doc)

    def _choice(self) -> Any:
        from elmo.embed.layer_choice import choose_layers

        return choose_layers(self.layers, self.embedder.num_layers)


def make_component(
    nlp: Any, name: str, model: str, layers: str | int | list[float], device: str, dtype: str, state: str
) -> ElmoComponent:
    """The factory `elmo`."""
    return ElmoComponent(name, model=model, layers=layers, device=device, dtype=dtype, state=state)


def _saved_checksum(data: bytes) -> str:
    try:
        return str(json.loads(data)["model_sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError("The saved component 'elmo' is damaged.", "Save the pipeline again.") from error


def _layers(doc: Any) -> np.ndarray:
    layers = doc._.elmo
    if layers is None:
        raise DataError("The document has no layers.", "Add the component 'elmo' to its pipeline.")
    if layers.shape[1] != len(doc):
        raise DataError(
            f"The document has {len(doc)} tokens and had {layers.shape[1]} when its layers were computed.",
            "Put the component 'elmo' after those that merge or split tokens.",
        )
    result: np.ndarray = layers
    return result


def _span_layers(span: Any) -> np.ndarray:
    return _layers(span.doc)[:, span.start : span.end]  # (L+1, n, D)


def _token_layers(token: Any) -> np.ndarray:
    return _layers(token.doc)[:, token.i]  # (L+1, D)


spacy.language.Language.factory(
    "elmo",
    default_config=DEFAULTS,
    assigns=["doc.tensor", "doc._.elmo", "span._.elmo", "token._.elmo"],
    func=make_component,
)
for kind, extension in (
    (spacy.tokens.Doc, {"default": None}),
    (spacy.tokens.Span, {"getter": _span_layers}),
    (spacy.tokens.Token, {"getter": _token_layers}),
):
    if not kind.has_extension("elmo"):
        kind.set_extension("elmo", **extension)
