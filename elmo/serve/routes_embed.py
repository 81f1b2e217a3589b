"""POST /embed, the vectors of every token, and POST /v1/embeddings, one vector per text in OpenAI's schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from elmo.serve.api_error import ApiError
from elmo.serve.jobs import Failure, Job
from elmo.serve.responses import (
    JSON,
    NPY,
    SAFETENSORS,
    accepted_type,
    base64_floats,
    items_response,
    json_response,
    npy_response,
    safetensors_response,
    vectors_as_json,
)
from elmo.serve.schemas import EmbeddingsRequest, EmbedRequest, EmbedResponse
from elmo.serve.service import Service, checked_layer, checked_weights
from elmo.serve.texts import TextItem

_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_EMBED_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "model": EmbedResponse,
        "description": "JSON, or by Accept one array (layers, all tokens, dimensions) as npy with the header "
        "X-Token-Counts, or one tensor per text as safetensors. In JSON an item that fails has an `error` instead.",
        "content": {NPY: _BINARY, SAFETENSORS: _BINARY},
    }
}


def add_routes(router: APIRouter, service: Service) -> None:
    """Adds both routes to a router."""

    @router.post("/embed", response_class=Response, responses=_EMBED_ANSWERS, summary="Vectors of every token")
    async def embed(body: EmbedRequest, request: Request) -> Response:
        media_type = accepted_type(request.headers.get("accept"))
        job, names = layer_job(body, service.info.num_layers)
        items = await service.read_texts(body.texts, tokenize=body.tokenize, field="texts")
        results = await service.run(job, items, request)
        if media_type != JSON:
            vectors, texts = all_vectors(items, results)
            if media_type == NPY:
                return npy_response(vectors, model=service.info.name)
            return safetensors_response(vectors, texts, names, model=service.info.name)
        return items_response(
            items,
            results,
            lambda vectors: vectors_as_json(vectors, names, body.encoding),
            request_id=request.state.request_id,
            model=service.info.name,
            dim=service.info.dim,
        )

    @router.post("/v1/embeddings", response_class=Response, summary="One vector per text (OpenAI's schema)")
    async def embeddings(body: EmbeddingsRequest, request: Request) -> Response:
        info = service.info
        if body.model not in (info.name, "default"):
            message = f"There is no model of that name; this server has {info.name!r}."
            raise ApiError(404, "model_not_found", message, field="model")
        if body.dimensions is not None and body.dimensions != info.dim:
            message = f"dimensions is {body.dimensions}; the vectors of this model have {info.dim} and are not cut."
            raise ApiError(400, "invalid", message, field="dimensions")
        texts = [body.input] if isinstance(body.input, str) else body.input
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            message = "input must be a string or a list of strings, and not empty. Numbers of tokens are not accepted."
            raise ApiError(400, "invalid", message, field="input")
        layers = body.layers
        if isinstance(layers, int):
            layers = checked_layer(layers, info.num_layers, "layers")
        elif layers not in ("top", "average"):
            raise ApiError(422, "invalid", "layers must be top, average or a number.", field="layers")
        items = await service.read_texts(texts, tokenize=True, field="input")
        for index, item in enumerate(items):
            if isinstance(item, TextItem) and not item.tokens:
                raise ApiError(400, "empty_text", f"input[{index}] has no tokens.", field=f"input[{index}]")
        results = await service.run(Job(operation="pooled", layers=layers, pooling=body.pooling), items, request)
        vectors = [_require(result, f"input[{i}]") for i, result in enumerate(results)]
        if body.normalize:
            vectors = [vector / max(float(np.linalg.norm(vector)), 1e-30) for vector in vectors]
        as_base64 = body.encoding_format == "base64"
        num_tokens = sum(len(item.tokens) for item in items if isinstance(item, TextItem))
        data = [
            {"object": "embedding", "index": i, "embedding": base64_floats(v) if as_base64 else v.tolist()}
            for i, v in enumerate(vectors)
        ]
        usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
        return json_response({"object": "list", "data": data, "model": info.name, "usage": usage})


def layer_job(body: EmbedRequest, num_layers: int) -> tuple[Job, list[str]]:
    """The job of a request for vectors, and the names of its layers."""
    layers = body.layers
    if (body.weights is not None) != (layers == "mix"):
        raise ApiError(422, "invalid", "weights and layers='mix' belong together.", field="weights")
    if layers != "mix" and body.gamma != 1.0:
        raise ApiError(422, "invalid", "gamma is for layers='mix' only.", field="gamma")
    if body.weights is not None:
        weights = checked_weights([body.gamma * w for w in body.weights], num_layers)
        return Job(operation="vectors", layers=weights), ["mix"]
    if isinstance(layers, int):
        layers = [layers]
    if isinstance(layers, list):
        if not layers:
            raise ApiError(422, "invalid", "layers is empty.", field="layers")
        rows = tuple(checked_layer(layer, num_layers, "layers") for layer in layers)
        if len(set(rows)) != len(rows):
            raise ApiError(422, "invalid", "layers names a layer twice.", field="layers")
        if len(rows) == 1:
            return Job(operation="vectors", layers=rows[0]), [str(rows[0])]
        is_all = rows == tuple(range(num_layers))
        return Job(operation="vectors", layers="all", rows=None if is_all else rows), [str(row) for row in rows]
    if layers == "all":
        return Job(operation="vectors", layers="all"), [str(row) for row in range(num_layers)]
    if layers in ("top", "average"):
        return Job(operation="vectors", layers=layers), [layers]
    message = "layers must be all, top, average, mix, a number or a list of numbers."
    raise ApiError(422, "invalid", message, field="layers")


def all_vectors(
    items: Sequence[TextItem | Failure], results: Sequence[np.ndarray | Failure]
) -> tuple[list[np.ndarray], list[TextItem]]:
    """The vectors and texts of a binary answer, which has no place for errors: the first failure fails the request."""
    vectors = [_require(result, f"texts[{index}]") for index, result in enumerate(results)]
    return vectors, [item for item in items if isinstance(item, TextItem)]


def _require(result: np.ndarray | Failure, field: str) -> np.ndarray:
    if isinstance(result, Failure):
        raise ApiError.of_failure(result, field)
    return result
