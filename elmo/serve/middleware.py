"""The outermost layer of the app: host, API key, body with its limits, disconnects, security headers, the last resort.

FastAPI and uvicorn have no limit of the body, no timeout of its reading, and answer some of what strangers send with
500. Here every request is read and checked before it reaches a route, and every answer leaves through `_Answer`. The
text of requests is never logged: log lines hold the method, the route, the status, times and the request's id.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import re
import time
import traceback
import uuid
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmo.serve.api_error import ApiError
from elmo.serve.body_reader import BodyReader, ClientGone, too_large
from elmo.serve.metrics import Metrics
from elmo.serve.settings import HOST_NAME, MAX_HEADER_BYTES, ServeSettings, is_loopback

log = logging.getLogger(__name__)

SECURITY_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
OPEN_PATHS = ("/", "/healthz", "/readyz", "/openapi.json")  # need no API key; neither do files of the page
_HOST = re.compile(rf"(?P<name>{HOST_NAME})(?::\d{{1,5}})?")
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_CHUNK = 256 * 1024  # bytes of an answer that are written at once
CLIENT_LEFT = 499  # in metrics and logs only


class Gate:
    """The ASGI app around the app with the routes."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._key_digests = [_digest(key.encode()) for key in settings.api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        answer = _Answer(send, _request_id(headers))
        scope["state"] = {"request_id": answer.request_id, "received": asyncio.get_running_loop().time()}
        begin = time.monotonic()
        reader = BodyReader(receive, self._settings.read_timeout)
        try:
            await self._handle(scope, headers, receive, reader, answer)
        except ApiError as error:
            with contextlib.suppress(ClientGone):
                close = not await reader.discard(8 * self._settings.max_body)
                await answer.send_error(error, openai=scope["path"].startswith("/v1/"), close=close)
        except ClientGone:
            pass
        except Exception as error:
            _log_error(error, answer.request_id)
            await answer.send_error(ApiError(500, "internal_error", "The server failed."), openai=False, close=True)
        finally:
            self._record(scope, answer, time.monotonic() - begin)

    async def _handle(
        self, scope: Scope, headers: dict[bytes, str], receive: Receive, reader: BodyReader, answer: _Answer
    ) -> None:
        if _header_bytes(scope) > MAX_HEADER_BYTES:  # h11 limits only headers that arrive in parts
            raise ApiError(431, "headers_too_large", f"The headers of a request may have {MAX_HEADER_BYTES:,} bytes.")
        if not host_is_allowed(headers.get(b"host"), self._settings):
            raise ApiError(400, "bad_host", "The Host header is missing or names another server.", field="Host")
        self._check_key(scope["path"], headers)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise ApiError(405, "method_not_allowed", "Use GET or POST.")
        if scope["method"] == "POST":
            _check_content(headers, self._settings.max_body)
        body = await reader.read(self._settings.max_body)
        if scope["method"] == "POST":
            await self._run_until_disconnect(scope, body, receive, answer)
        else:
            await self._app(scope, _replay(body), answer.send)

    def _check_key(self, path: str, headers: dict[bytes, str]) -> None:
        if not self._key_digests or path in OPEN_PATHS or path.startswith("/static/"):
            return
        scheme, _, key = headers.get(b"authorization", "").partition(" ")
        given = key.strip() if scheme.lower() == "bearer" else headers.get(b"x-api-key", "")
        digest = _digest(given.encode("latin-1"))
        # every key is compared, each in constant time, and lengths are hidden by the digest
        if not any([hmac.compare_digest(digest, known) for known in self._key_digests]):  # noqa: C419
            raise ApiError(401, "unauthorized", "Send the API key as `Authorization: Bearer KEY`.")

    async def _run_until_disconnect(self, scope: Scope, body: bytes, receive: Receive, answer: _Answer) -> None:
        """Runs the app; if the client leaves before the answer, the work that still waits is dropped."""
        task = asyncio.create_task(_call(self._app, scope, _replay(body), answer.send))
        watcher = asyncio.create_task(_disconnect(receive))
        try:
            await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and not answer.started:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                raise ClientGone
            await task
        finally:
            task.cancel()
            watcher.cancel()

    def _record(self, scope: Scope, answer: _Answer, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")  # never the path itself, which may hold text
        status = answer.status or CLIENT_LEFT
        self._metrics.count("elmo_requests_total", route=route, status=str(status))
        self._metrics.observe("elmo_request_seconds", seconds, route=route)
        if self._settings.log_requests:
            log.info("%s %s %d %.1f ms %s", scope["method"], route, status, 1000 * seconds, answer.request_id)


class _Answer:
    """The way out: adds headers, and writes large bodies in parts, so that a slow reader holds little memory."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send, self.request_id = send, request_id
        self.status: int | None = None

    @property
    def started(self) -> bool:
        return self.status is not None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            extra = [*SECURITY_HEADERS, (b"x-request-id", self.request_id.encode())]
            await self._send({**message, "headers": [*message.get("headers", []), *extra]})
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        while len(body) > _CHUNK:
            await self._send({"type": "http.response.body", "body": body[:_CHUNK], "more_body": True})
            body = body[_CHUNK:]
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def send_error(self, error: ApiError, *, openai: bool, close: bool) -> None:
        """An error as the whole answer, unless another has begun."""
        if self.started:
            return
        body = error.body(self.request_id, openai=openai)
        headers = [*error.headers(), (b"content-length", str(len(body)).encode())]
        if close:
            headers.append((b"connection", b"close"))
        await self.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def host_is_allowed(host: str | None, settings: ServeSettings) -> bool:
    """Whether a request names this server: this machine, or one of the allowed hosts.

    Without allowed hosts, a server that does not listen on loopback accepts every valid name. On loopback, a page of
    another site that resolves its own name to 127.0.0.1 is refused by this (DNS rebinding).
    """
    match = _HOST.fullmatch(host or "")
    if match is None:
        return False
    name = match["name"].lower()
    if is_loopback(name) or name in settings.allowed_hosts:
        return True
    return not settings.allowed_hosts and not is_loopback(settings.host)


async def _call(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _replay(body: bytes) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive


def _request_id(headers: dict[bytes, str]) -> str:
    given = headers.get(b"x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _header_bytes(scope: Scope) -> int:
    target = len(scope["raw_path"]) + len(scope["query_string"])
    return target + sum(len(name) + len(value) + 4 for name, value in scope["headers"])  # ": " and the line's end


def _check_content(headers: dict[bytes, str], limit: int) -> None:
    """Raises 415 or 413 for what the headers say of a body."""
    if headers.get(b"content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "encoded_body", "Send the body without Content-Encoding.", field="Content-Encoding")
    if headers.get(b"content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "not_json", "The Content-Type must be application/json.", field="Content-Type")
    length = headers.get(b"content-length", "0")
    if length.isdecimal() and int(length[:20]) > limit:
        raise too_large(limit)


def _log_error(error: Exception, request_id: str) -> None:
    """The type and the places of an error, without its message, which may quote text."""
    frames: Sequence[Any] = traceback.extract_tb(error.__traceback__)[-5:]
    places = " < ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in reversed(frames))
    log.error("%s in request %s at %s", type(error).__name__, request_id, places)
