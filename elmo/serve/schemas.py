"""The bodies of requests and answers with examples: FastAPI checks requests by them and lists them in /openapi.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SENTENCE = "The bank of the river ."
_TEXT_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT_SCHEMA}

# items are checked one by one, so that a bad one does not fail the others
Texts = Annotated[
    list[Any],
    Field(
        description="Sentences: each is a string, which is tokenised, or a list of tokens.",
        json_schema_extra=_TEXTS,
        min_length=1,
    ),
]
Tokenize = Annotated[
    bool, Field(description="Whether strings are tokenised by the model's tokenizer; if not, they are split at spaces.")
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class EmbedRequest(_Body):
    """Texts of which every token gets vectors."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"texts": [SENTENCE, ["Two", "tokens"]], "layers": "all"}]},
    )
    texts: Texts
    layers: str | int | list[int] = Field(
        "average",
        description="all, top, average, mix (with `weights`), the number of a layer, or a list of numbers. Layer 0 "
        "does not depend on the context.",
    )
    weights: list[float] | None = Field(
        None, description="For layers=mix: one weight per layer, used as given (no softmax)."
    )
    gamma: float = Field(1.0, description="For layers=mix: a factor on all weights.")
    tokenize: Tokenize = True
    encoding: Literal["json", "base64"] = Field(
        "json", description="base64: float32, little-endian, with its shape (layers, tokens, dimensions)."
    )


class TextsRequest(_Body):
    """Texts of which every token gets log-probabilities."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"texts": [SENTENCE]}]})
    texts: Texts
    tokenize: Tokenize = True


class SubstitutesRequest(TextsRequest):
    """Texts of which every token gets substitutes."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"texts": [SENTENCE], "top": 5}]}
    )
    top: int = Field(8, ge=1, description="Words per list.")


class SimilarRequest(_Body):
    """A word in a sentence, whose nearest occurrences in the sentence bank are searched."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"text": SENTENCE, "token": 1, "layer": 2, "top": 5}]},
    )
    text: Any = Field(description="A string or a list of tokens.", json_schema_extra=_TEXT_SCHEMA)
    token: int | None = Field(None, ge=0, description="Number of the token in the text, from 0.")
    word: str | None = Field(None, description="The token itself, instead of its number; the first if it repeats.")
    layer: int | None = Field(None, description="Number of a layer. Default: the top layer, unless `weights` is given.")
    weights: list[float] | None = Field(None, description="One weight per layer, instead of `layer`.")
    same_word: bool = Field(False, description="Only occurrences of the same word, regardless of case.")
    top: int = Field(10, ge=1, description="Number of neighbours.")
    tokenize: Tokenize = True


class EmbeddingsRequest(_Body):
    """OpenAI's request. `layers`, `pooling` and `normalize` are additions."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"model": "default", "input": [SENTENCE]}]}
    )
    input: Any = Field(
        description="A string or a list of strings.",
        json_schema_extra={"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    )
    model: str = Field(description="A name that GET /v1/models lists, or default.")
    encoding_format: Literal["float", "base64"] = Field("float", description="base64: float32, little-endian.")
    dimensions: int | None = Field(None, description="Refused, unless it is the width of the model's vectors.")
    user: str | None = Field(None, description="The client's name for its user. It has no effect and is not logged.")
    layers: str | int = Field("average", description="all layers averaged, top, or the number of a layer.")
    pooling: Literal["mean", "max"] = Field("mean", description="How the vectors of the tokens become one.")
    normalize: bool = Field(True, description="Whether vectors have length one, as those of OpenAI.")


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str = Field(description="Stable, for programs.", examples=["overloaded"])
    message: str = Field(description="For people.", examples=["The queue is full. Send the request again later."])
    field: str | None = Field(None, description="The part of the request that caused it.", examples=["texts[3]"])
    id: str | None = Field(None, description="The request's X-Request-Id.")


class ErrorBody(BaseModel):
    """The body of every answer whose status is not 2xx."""

    error: ErrorDetail


class Base64Array(BaseModel):
    """An array as base64."""

    shape: list[int]
    dtype: Literal["float32"]
    data: str = Field(description="Little-endian, in row-major order.")


class EmbedItem(BaseModel):
    """The vectors of one text, or its error."""

    tokens: list[str] | None = None
    offsets: list[tuple[int, int]] | None = Field(None, description="Of each token in the text; null for tokens.")
    layers: dict[str, list[list[float]]] | Base64Array | None = Field(
        None, description="Layer name to one vector per token; with base64, one array of all layers."
    )
    layer_names: list[str] | None = None
    error: ErrorDetail | None = None


class EmbedResponse(BaseModel):
    """The vectors of all texts, in their order."""

    model: str
    dim: int
    items: list[EmbedItem]


class ScoreItem(BaseModel):
    """Natural logarithms of the probabilities of one text's tokens, or its error."""

    tokens: list[str] | None = None
    unknown: list[bool] | None = Field(None, description="Of each token: whether it is scored as <UNK>.")
    forward: list[float] | None = Field(None, description="log p(token | tokens before it).")
    backward: list[float] | None = Field(None, description="log p(token | tokens after it); null: forward model only.")
    forward_end: float | None = Field(None, description="log p(end of the sentence | all tokens).")
    backward_begin: float | None = Field(None, description="log p(begin of the sentence | all tokens).")
    log_prob: float | None = Field(None, description="Of the sentence, the mean of both directions; null if empty.")
    perplexity: float | None = None
    error: ErrorDetail | None = None


class ScoreResponse(BaseModel):
    """The scores of all texts, in their order."""

    model: str
    items: list[ScoreItem]


class SubstituteWord(BaseModel):
    """A word that may replace another one."""

    word: str
    log_prob: float = Field(description="In context; summed over both directions in `both`.")
    score: float = Field(description="What ranks the word; in `both`, log_prob minus the log of the word's frequency.")


class TokenSubstitutes(BaseModel):
    """Substitutes of one token, best first."""

    forward: list[SubstituteWord]
    backward: list[SubstituteWord] | None
    both: list[SubstituteWord]


class SubstitutesItem(BaseModel):
    """The substitutes of each token of one text, or its error."""

    tokens: list[str] | None = None
    offsets: list[tuple[int, int]] | None = None
    substitutes: list[TokenSubstitutes] | None = None
    error: ErrorDetail | None = None


class SubstitutesResponse(BaseModel):
    """The substitutes of all texts, in their order."""

    model: str
    items: list[SubstitutesItem]


class SimilarNeighbor(BaseModel):
    """One occurrence of a word in the bank."""

    tokens: list[str]
    position: int
    cosine: float
    line: int = Field(description="Number of the sentence in the bank, from 0.")


class SimilarResponse(BaseModel):
    """The nearest occurrences, best first."""

    model: str
    token: str
    layer: int | None
    bank: dict[str, int] = Field(description="Numbers of sentences and tokens in the bank.")
    neighbors: list[SimilarNeighbor]
