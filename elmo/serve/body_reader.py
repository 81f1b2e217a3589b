"""Reads the body of a request within a size and a time."""

from __future__ import annotations

import asyncio
import time

from starlette.types import Message, Receive

from elmo.serve.api_error import ApiError


class ClientGone(Exception):
    """The client closed the connection: there is nobody to answer."""


class BodyReader:
    """The body of one request. The time counts for reading and discarding together."""

    def __init__(self, receive: Receive, timeout: float) -> None:
        self._receive, self._deadline = receive, time.monotonic() + timeout
        self._is_complete = False

    async def read(self, limit: int) -> bytes:
        """The whole body; ApiError 413 if it is larger than the limit, 408 if it takes too long."""
        parts: list[bytes] = []
        size = 0
        while not self._is_complete:
            part = await self._next()
            size += len(part)
            if size > limit:
                raise too_large(limit)
            parts.append(part)
        return b"".join(parts)

    async def discard(self, limit: int) -> bool:
        """Reads what is left and drops it; whether that was all.

        A client that is still sending when the connection closes sees a broken connection and not the answer. Past the
        limit or the time, it has to.
        """
        size = 0
        while not self._is_complete and size <= limit:
            try:
                size += len(await self._next())
            except ApiError:
                return False
        return self._is_complete

    async def _next(self) -> bytes:
        try:
            message = await asyncio.wait_for(self._message(), self._deadline - time.monotonic())
        except asyncio.TimeoutError:
            raise ApiError(408, "slow_body", "The body of the request did not arrive in time.") from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        self._is_complete = not message.get("more_body", False)
        body: bytes = message.get("body", b"")
        return body

    async def _message(self) -> Message:
        return await self._receive()


def too_large(limit: int) -> ApiError:
    """The error for a body above the limit."""
    return ApiError(413, "body_too_large", f"The body of a request may have {limit:,} bytes.")
