"""The FastAPI app: routes, strict JSON, and one form of error for everything that can go wrong."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from elmo import __version__
from elmo.serve import routes_embed, routes_status, routes_words
from elmo.serve.api_error import ApiError
from elmo.serve.middleware import Gate
from elmo.serve.schemas import ErrorBody
from elmo.serve.service import Service
from elmo.serve.strict_json import parse_json

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "The request is malformed."},
    401: {"model": ErrorBody, "description": "The API key is missing or wrong."},
    413: {"model": ErrorBody, "description": "The body is too large."},
    415: {"model": ErrorBody, "description": "The body is not JSON."},
    422: {"model": ErrorBody, "description": "A field is unknown, has the wrong type, or is out of range."},
    429: {"model": ErrorBody, "description": "The queue is full; Retry-After says when to try again."},
    503: {"model": ErrorBody, "description": "The worker died; the request may be sent again."},
    504: {"model": ErrorBody, "description": "The deadline passed."},
}


def make_app(service: Service) -> Gate:
    """The whole ASGI app of a server."""
    app = FastAPI(
        title="elmo",
        version=__version__,
        description="Contextual word vectors, scores and substitutes from a biLM (ELMo).",
        docs_url=None,  # their pages load scripts from other servers
        redoc_url=None,
        redirect_slashes=False,  # the address of a redirect is made of the Host header, which a proxy changes
    )
    router = APIRouter(route_class=_StrictRoute, responses=_ERRORS)
    for routes in (routes_embed, routes_words, routes_status):
        routes.add_routes(router, service)
    app.include_router(router)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    return Gate(app, service.settings, service.metrics)


class _StrictRequest(Request):
    async def json(self) -> Any:
        return parse_json(await self.body())


class _StrictRoute(APIRoute):
    """Routes whose bodies are parsed by `strict_json`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    body = error.body(request.state.request_id, openai=request.url.path.startswith("/v1/"))
    headers = {name.decode(): value.decode() for name, value in error.headers()}
    return Response(body, status_code=error.status, headers=headers)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    places = [[str(part) for part in one["loc"] if part != "body"] for one in errors]
    field, texts = ".".join(places[0]), [errors[0]["msg"]]
    if (
        field and len(places) > 1 and len({tuple(place[:1]) for place in places}) == 1
    ):  # each type that the value may have
        field, texts = places[0][0], list(dict.fromkeys(one["msg"] for one in errors))
    message = f"{field or 'The body'}: {' or '.join(texts)}."  # without the input, which may be text
    return await _api_error(request, ApiError(422, "invalid", message, field=field or None))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, ApiError):  # FastAPI wraps what the parser of a body raises
        return await _api_error(request, error.__cause__)
    codes = {404: ("not_found", "There is no such path."), 405: ("method_not_allowed", "Use another method.")}
    code, message = codes.get(error.status_code, ("bad_request", "The request cannot be read."))
    return await _api_error(request, ApiError(error.status_code, code, message))
