"""POST /score, /substitutes and /similar: what the model says of words in their context."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from elmo.errors import ElmoError
from elmo.serve.api_error import ApiError
from elmo.serve.jobs import Failure, Job
from elmo.serve.responses import items_response, json_response
from elmo.serve.schemas import (
    ScoreResponse,
    SimilarRequest,
    SimilarResponse,
    SubstitutesRequest,
    SubstitutesResponse,
    TextsRequest,
)
from elmo.serve.service import Service, checked_layer, checked_weights
from elmo.text.inputs import word_position


def add_routes(router: APIRouter, service: Service) -> None:
    """Adds the three routes to a router."""

    async def answer(body: TextsRequest, request: Request, job: Job, describe: Any) -> Response:
        service.require_softmax()
        items = await service.read_texts(body.texts, tokenize=body.tokenize, field="texts")
        results = await service.run(job, items, request)
        return items_response(items, results, describe, request_id=request.state.request_id, model=service.info.name)

    @router.post(
        "/score", response_class=Response, responses={200: {"model": ScoreResponse}}, summary="Log-probabilities"
    )
    async def score(body: TextsRequest, request: Request) -> Response:
        return await answer(body, request, Job(operation="score"), _scores)

    @router.post(
        "/substitutes",
        response_class=Response,
        responses={200: {"model": SubstitutesResponse}},
        summary="Words that fit in place of each token",
    )
    async def substitutes(body: SubstitutesRequest, request: Request) -> Response:
        service.check_top(body.top)
        job = Job(operation="substitutes", top=body.top)
        return await answer(body, request, job, lambda result: {"substitutes": result})

    @router.post(
        "/similar",
        response_class=Response,
        responses={200: {"model": SimilarResponse}},
        summary="Similar uses of a word in the sentence bank",
    )
    async def similar(body: SimilarRequest, request: Request) -> Response:
        num_layers = service.info.num_layers
        service.check_top(body.top)
        if service.bank is None:
            raise ApiError(404, "no_bank", "This server has no sentence bank.")
        if body.weights is not None and body.layer is not None:
            raise ApiError(422, "invalid", "layer and weights exclude each other.", field="weights")
        if body.weights is not None:
            layer, weights = None, np.array(checked_weights(body.weights, num_layers))
            if not weights.any():
                raise ApiError(422, "invalid", "weights are all zero: no vector is left to compare.", field="weights")
            weights /= np.abs(weights).max()  # the cosine does not change, and tiny squares do not become zero
        else:
            layer = checked_layer(num_layers - 1 if body.layer is None else body.layer, num_layers, "layer")
            weights = np.eye(num_layers)[layer]
        (item,) = await service.read_texts([body.text], tokenize=body.tokenize, field="text")
        if isinstance(item, Failure):
            raise ApiError.of_failure(item, "text")
        position = _position(body, item.tokens)
        (vectors,) = await service.run(Job(operation="vectors", layers="all"), [item], request)
        if isinstance(vectors, Failure):
            raise ApiError.of_failure(vectors, "text")
        await service.bank.wait(service.batcher, service.deadline(request))
        word = item.tokens[position]
        neighbors = await asyncio.to_thread(
            service.bank.nearest,
            vectors[:, position],
            weights,
            top=body.top,
            word=word if body.same_word else None,
            exclude=(tuple(item.tokens), position),
        )
        bank = {"sentences": len(service.bank.sentences), "tokens": service.bank.num_tokens}
        value = {"model": service.info.name, "token": word, "layer": layer, "bank": bank}
        return json_response(value | {"neighbors": [vars(neighbor) for neighbor in neighbors]})


def _position(body: SimilarRequest, tokens: Sequence[str]) -> int:
    """The position of the token that the request gives by its number or by its word."""
    word = body.token if body.word is None else body.word
    if word is None or (body.token is not None and body.word is not None):
        raise ApiError(422, "invalid", "Expected either token, a number, or word.", field="token")
    try:
        return word_position(tokens, word)
    except ElmoError as error:
        raise ApiError(422, "invalid", error.message, field="token" if body.word is None else "word") from error


def _scores(result: dict[str, Any]) -> dict[str, Any]:
    """Lists of one number per token; those of the sentence's boundaries apart. An empty text has none."""
    forward, backward = result["forward"], result["backward"]
    return {
        "unknown": result["unknown"],
        "forward": forward[:-1],
        "backward": None if backward is None else backward[1:],
        "forward_end": forward[-1] if forward else None,
        "backward_begin": backward[0] if backward else None,
        "log_prob": result["log_prob"],
        "perplexity": result["perplexity"],
    }
