"""scikit-learn transformers: ElmoVectorizer for sentences and ElmoTokenVectorizer for tokens in their sentences.

    make_pipeline(ElmoVectorizer(), StandardScaler(), LogisticRegression()).fit(texts, labels)

Both are stateless, as scikit-learn's HashingVectorizer: `fit` learns nothing, so that `transform` works without it. It
does store the checksum of the model, and a transformer that is pickled does not contain the model: where it is loaded,
the model must be there under the same name, and another model of that name is refused. Copies of a transformer, as a
grid search makes them, share one loaded model per process.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import LayerSpec, choose_layers
from elmo.embed.load import load
from elmo.embed.model_checksum import model_checksum
from elmo.errors import ConfigError, WeightsError
from elmo.files import require_extra
from elmo.text.inputs import Missing, normalize_input
from elmo.text.tokenizer_function import TokenizerFunction

require_extra("sklearn", "sklearn", "scikit-learn")

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin  # noqa: E402

MODELS_IN_MEMORY = 4  # the most recently used combinations of model and settings

Sample = tuple[str | Sequence[str], int]  # a sentence, as text or tokens, and the position of a token in it


class _ElmoTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What both transformers share: the model, its checksum, and the estimator tags of text input."""

    model: str | Path
    layers: LayerSpec
    device: str
    dtype: str
    tokenizer: str | TokenizerFunction | None
    state: str

    def fit(self, X: Any, y: Any = None) -> Any:
        """Checks the parameters and stores the model's checksum; the texts are not read."""
        del X, y
        self.model_checksum_ = _checksum(self._loaded())
        self._check_layers()
        return self

    @property
    def embedder(self) -> Embedder:
        """The embedder of the parameters; transformers with the same parameters share it."""
        embedder = self._loaded()
        expected = getattr(self, "model_checksum_", None)
        if expected is not None and _checksum(embedder) != expected:
            raise WeightsError(
                f"The model {str(self.model)!r} is not the one that this {type(self).__name__} was fitted with.",
                "Set `model` to the original one, or fit again.",
            )
        return embedder

    def _loaded(self) -> Embedder:
        if self.state == "carry":
            raise ConfigError("state is 'carry', with which vectors depend on earlier calls.", "Use reset or warm.")
        return _load_shared(
            str(self.model), _file_stamps(self.model), self.device, self.dtype, self.tokenizer, self.state
        )

    def _check_layers(self) -> tuple[int, ...]:
        """The shape (D,) of a vector; a choice of several vectors per token is refused."""
        shape = choose_layers(self.layers, self._loaded().num_layers).shape(self._loaded().dim)
        if len(shape) != 1:
            raise ConfigError(
                f"layers is {self.layers!r}, which gives {shape[0]} vectors per token; expected one.",
                "Use 'concat' for all layers side by side.",
            )
        return shape

    @property
    def _n_features_out(self) -> int:  # which ClassNamePrefixFeaturesOutMixin reads
        return self._check_layers()[0]

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = []
        return tags


class ElmoVectorizer(_ElmoTransformer):
    """Texts to one vector each, (N, D): the pooled vectors of its tokens, as `Embedder.encode` computes them.

    X is a list, array or Series of strings or token lists, or a table with one column of them.
    """

    def __init__(
        self,
        model: str | Path = "default",  # a name or a path, as for `elmo.load`
        *,
        layers: LayerSpec = "average",  # top, average, concat, a number, one weight per layer, a ScalarMix
        pooling: str = "mean",  # mean, max
        split: bool = False,  # each text is a document, which is split into sentences
        normalize: bool = False,  # vectors have length one
        missing: Missing = "error",  # None and NaN: an error, or an empty sentence, whose vector is zero
        batch_size: int = 256,  # most sentences per batch
        device: str = "auto",
        dtype: str = "float32",  # of the computation
        tokenizer: str | TokenizerFunction | None = None,
        state: str = "reset",  # reset, warm
    ) -> None:
        self.model = model
        self.layers = layers
        self.pooling = pooling
        self.split = split
        self.normalize = normalize
        self.missing = missing
        self.batch_size = batch_size
        self.device = device
        self.dtype = dtype
        self.tokenizer = tokenizer
        self.state = state

    def transform(self, X: Any) -> np.ndarray:
        """The vectors (N, D) of N texts."""
        self._check_layers()
        return self.embedder.encode(
            _one_column(X),
            layers=self.layers,
            pooling=self.pooling,
            split=self.split,
            normalize_embeddings=self.normalize,
            missing=self.missing,
            batch_size=self.batch_size,
        )


class ElmoTokenVectorizer(_ElmoTransformer):
    """Tokens in their sentences to one vector each, (N, D).

    X is a list of N pairs (sentence, position), or a table with these two columns; `token_samples` makes the pairs of
    whole sentences. A sentence is a string or a list of tokens, and is embedded once for all of its positions.
    """

    def __init__(
        self,
        model: str | Path = "default",
        *,
        layers: LayerSpec = "average",
        batch_size: int = 256,
        device: str = "auto",
        dtype: str = "float32",
        tokenizer: str | TokenizerFunction | None = None,
        state: str = "reset",
    ) -> None:
        self.model = model
        self.layers = layers
        self.batch_size = batch_size
        self.device = device
        self.dtype = dtype
        self.tokenizer = tokenizer
        self.state = state

    def transform(self, X: Any) -> np.ndarray:
        """The vectors (N, D) of N tokens."""
        (dim,) = self._check_layers()
        embedder = self.embedder
        samples = list(_samples(X))
        sentences = list(dict.fromkeys(sentence for sentence, _ in samples))
        tokens = normalize_input(sentences, embedder.tokenize).sentences
        stream = embedder.stream(tokens, layers=self.layers, batch_size=self.batch_size)
        vectors_of = dict(zip(sentences, stream, strict=True))  # (n, D) each
        vectors = []
        for row, (sentence, position) in enumerate(samples):
            num_tokens = len(vectors_of[sentence])
            if not 0 <= position < num_tokens:
                raise ValueError(f"X[{row}] is position {position} of a sentence of {num_tokens} tokens.")
            vectors.append(vectors_of[sentence][position])
        return np.stack(vectors) if vectors else np.zeros((0, dim), dtype=np.float32)


def token_samples(sentences: Iterable[Sequence[str]]) -> list[Sample]:
    """A pair (tokens, position) for each token of tokenised sentences, in order: the X of ElmoTokenVectorizer."""
    return [(tokens, position) for tokens in map(tuple, sentences) for position in range(len(tokens))]


@functools.lru_cache(maxsize=MODELS_IN_MEMORY)
def _load_shared(
    model: str, stamps: Any, device: str, dtype: str, tokenizer: str | TokenizerFunction | None, state: str
) -> Embedder:
    del stamps  # part of the key: a model folder that is written again is loaded again
    return load(model, device=device, dtype=dtype, tokenizer=tokenizer, state=state)


@functools.lru_cache(maxsize=MODELS_IN_MEMORY)
def _checksum(embedder: Embedder) -> str:
    return model_checksum(embedder)


def _file_stamps(model: str | Path) -> tuple[tuple[str, int, int], ...]:
    """Names, times and sizes of the files of a model that is given by path; a model with a name does not change."""
    path = Path(model).expanduser()
    files = sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []
    return tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)


def _one_column(X: Any) -> Any:
    if isinstance(X, str):
        raise ValueError(f"X is one string, {X[:40]!r}; expected several texts. Pass a list: [text].")
    if getattr(X, "ndim", 1) != 2:
        return X
    if X.shape[1] != 1:
        raise ValueError(f"X has {X.shape[1]} columns; expected one column of texts.")
    return (X.iloc[:, 0] if hasattr(X, "iloc") else np.asarray(X)[:, 0]).tolist()


def _samples(X: Any) -> Iterator[tuple[str | tuple[str, ...], int]]:
    rows = X.itertuples(index=False, name=None) if hasattr(X, "itertuples") else X
    for row, sample in enumerate(rows):
        if isinstance(sample, str) or not hasattr(sample, "__len__") or len(sample) != 2:
            raise ValueError(f"X[{row}] is {sample!r:.60}; expected a pair (sentence, position).")
        sentence, position = sample
        if isinstance(position, bool) or not isinstance(position, (int, np.integer)):
            raise ValueError(f"X[{row}] has position {position!r}; expected a whole number, the token's position.")
        yield sentence if isinstance(sentence, str) else tuple(sentence), int(position)
